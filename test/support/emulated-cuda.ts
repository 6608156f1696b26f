/** The CUDA driver as the engine opens it, on the emulated libraries. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
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

interface Opened {
  readonly cuda: Cuda;
  readonly emulator: Emulator;
  readonly cacheFolder: string;
}

/** Nothing may be left of what used it. */
function check({ cuda, emulator }: Opened, allow: NonNullable<EmulatedOptions['allow']> = []): void {
  const { races, faults, unrecordedWaits, freesInUse } = emulator.report();
  const seen = { races, faults, unrecordedWaits, freesInUse };
  for (const name of Object.keys(seen) as (keyof typeof seen)[]) {
    if (!allow.includes(name)) expect(seen[name], name).toEqual([]);
  }
  if (allow.includes('leaks')) return;
  const counts = Object.entries(cuda.counts()).filter(([, count]) => count !== 0);
  expect(counts, 'what was not released').toEqual([]);
}

/** Nothing may be left of the driver itself. */
function release({ cuda, emulator }: Opened): void {
  cuda.release();
  const { live, leaks } = emulator.report();
  expect(leaks).toEqual([]);
  expect(Object.entries(live).filter(([, count]) => count !== 0)).toEqual([]);
}

/** Also after a test that failed. */
async function close({ cuda, emulator, cacheFolder }: Opened): Promise<void> {
  cuda.release();
  resetDevices(emulator, cuda.devices.length);
  await rm(cacheFolder, { recursive: true, force: true });
}

async function open({ need, ...machine }: Omit<EmulatedOptions, 'allow'>): Promise<Opened> {
  if (driver === undefined) throw new Error('the emulated driver was not built: skip this test by emulatorMissing');
  const emulator = new Emulator(driver);
  emulator.forget();
  emulator.configure({ seed: Number(process.env['TURNTABLE_SEED'] ?? 1), ...machine });
  const cacheFolder = await mkdtemp(join(tmpdir(), 'turntable-kernels-'));
  const cuda = openCuda({ environment: driver.environment, cacheFolder, ...(need === undefined ? {} : { need }) });
  return { cuda, emulator, cacheFolder };
}

/**
 * Opens an emulated machine for `work`. At the end nothing may be left: no allocation, handle, race, wait without a
 * record, fault, or memory freed while in use.
 */
export async function withEmulatedCuda<Result>(
  { allow = [], ...options }: EmulatedOptions,
  work: (cuda: Cuda, emulator: Emulator) => Promise<Result> | Result,
): Promise<Result> {
  const opened = await open(options);
  try {
    const result = await work(opened.cuda, opened.emulator);
    check(opened, allow);
    if (!allow.includes('leaks')) release(opened);
    return result;
  } finally {
    await close(opened);
  }
}

/**
 * One emulated machine for the tests of a file or `describe` block, since the threads of each new driver take more time
 * than most tests. As {@link withEmulatedCuda}; what was left of the driver itself is seen at the end. There can be one
 * machine at a time.
 */
export function sharedEmulatedCuda(
  options: Omit<EmulatedOptions, 'allow'>,
): <Result>(work: (cuda: Cuda) => Promise<Result>) => Promise<Result> {
  let opened: Opened | undefined;
  beforeAll(async () => {
    if (!emulatorMissing) opened = await open(options);
  });
  afterAll(async () => {
    if (opened === undefined) return;
    try {
      release(opened);
    } finally {
      await close(opened);
    }
  });
  return async (work) => {
    opened!.emulator.forget();
    const result = await work(opened!.cuda);
    check(opened!);
    return result;
  };
}
