/** The CUDA driver as the engine opens it, on the emulated libraries. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { openCuda, type CudaOptions } from '../../src/gpu/driver/open.ts';
import type { Cuda } from '../../src/gpu/driver/types.ts';
import { buildEmulatedDriver, type EmulatedDriver } from '../emulated-driver/build.ts';
import { Emulator, type EmulatedMachine } from './emulator.ts';

const driver: EmulatedDriver | undefined = await buildEmulatedDriver();

/** True without g++ to build it: use `test.skipIf(emulatorMissing)`. */
export const emulatorMissing = driver === undefined;

/** For the next machine: a failed context keeps memory that could not be freed. */
function resetDevices(emulator: Emulator, count: number): void {
  for (let index = 0; index < count; index++) emulator.resetDevice(index);
}

export interface EmulatedOptions extends EmulatedMachine {
  readonly need?: CudaOptions['need'];
  /** Problems that the test provokes and checks itself, so they are no errors at the end. */
  readonly allow?: readonly ('races' | 'faults' | 'unrecordedWaits' | 'freesInUse' | 'leaks')[];
}

/**
 * Opens an emulated machine for `work`. At the end nothing may be left: no allocation, handle, race, wait without a
 * record, fault, or memory freed while in use.
 */
export async function withEmulatedCuda<Result>(
  options: EmulatedOptions,
  work: (cuda: Cuda, emulator: Emulator) => Promise<Result> | Result,
): Promise<Result> {
  if (driver === undefined) throw new Error('the emulated driver was not built: skip this test by emulatorMissing');
  const { need, allow = [], ...machine } = options;
  const emulator = new Emulator(driver);
  emulator.forget();
  emulator.configure({ seed: Number(process.env['TURNTABLE_SEED'] ?? 1), ...machine });
  const cacheFolder = await mkdtemp(join(tmpdir(), 'turntable-kernels-'));
  const cuda = openCuda({ libraries: driver, cacheFolder, ...(need === undefined ? {} : { need }) });
  try {
    const result = await work(cuda, emulator);
    const { races, faults, unrecordedWaits, freesInUse } = emulator.report();
    const seen = { races, faults, unrecordedWaits, freesInUse };
    for (const name of Object.keys(seen) as (keyof typeof seen)[]) {
      if (!allow.includes(name)) expect(seen[name], name).toEqual([]);
    }
    if (!allow.includes('leaks')) {
      const counts = Object.entries(cuda.counts()).filter(([, count]) => count !== 0);
      expect(counts, 'what was not released').toEqual([]);
      cuda.release();
      const { live, leaks } = emulator.report();
      expect(leaks).toEqual([]);
      expect(Object.entries(live).filter(([, count]) => count !== 0)).toEqual([]);
    }
    return result;
  } finally {
    cuda.release();
    resetDevices(emulator, cuda.devices.length);
    await rm(cacheFolder, { recursive: true, force: true });
  }
}
