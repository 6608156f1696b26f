/** What the commands of `turntable store` need of the host. */
import { createLogger } from '../host/index.ts';

export { checkStore, collectStore, importData, putFolder, Validator } from '../host/index.ts';

export const quietLog = () => createLogger({ level: 'error', format: process.stderr.isTTY ? 'pretty' : 'json' });
