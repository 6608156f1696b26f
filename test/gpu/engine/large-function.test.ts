/** While a large function is read from disk, the GPU process answers other functions. */
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

// `npm run bench -- gpu-counts` does the same with 4 GiB, and also measures waits for the driver.
test.skipIf(emulatorMissing).each(['exact', 'fp16'] as const)(
  'the GPU process answers other calls while 256 MiB come from disk (%s)',
  { timeout: 120_000 },
  async (precision) => {
    const { environment } = (await buildEmulatedDriver())!;
    const bytes = 2 ** 28;
    const stops = await stopsWhileFilling({ folder: join(folder, precision), bytes, precision, environment });
    // CPU time of the thread, which other processes do not lengthen. Filled in one go it would be half a second.
    expect(stops.longestWorkMs).toBeLessThan(50);
    expect(stops.answered).toBeGreaterThan(4);
    expect(stops.beats).toBeGreaterThan(8);
  },
);
