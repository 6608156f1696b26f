import type { Log } from '../../src/tools/index.ts';

export const silentLog: Log = { info: () => undefined, warn: () => undefined, error: () => undefined };
