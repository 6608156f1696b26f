/** While a large function is read from disk, the GPU process can answer other functions. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { stopsWhileFilling } from '../../support/large-function.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-large-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Weights come a layer of 16 MiB at a time. */
const mostBytes = 64 * 2 ** 20;

// `npm run bench -- gpu-counts` does the same with 4 GiB, and measures for how long the loop stops.
test.skipIf(emulatorMissing).each(['exact', 'fp16'] as const)(
  'the event loop of the GPU process turns while 256 MiB come from disk (%s)',
  async (precision) => {
    const { environment } = (await buildEmulatedDriver())!;
    const bytes = 2 ** 28;
    const stops = await stopsWhileFilling({ folder: join(folder, precision), bytes, precision, environment });
    expect(stops.mostBytesRead).toBeLessThan(mostBytes);
  },
);
