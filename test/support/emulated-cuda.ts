/**
 * The CUDA driver as the engine opens it, on the emulated libraries; and what only an emulated driver can be asked for.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import { loadLibrary } from '../../src/gpu/driver/libraries.ts';
import { openCuda, type CudaOptions } from '../../src/gpu/driver/open.ts';
import type { Cuda } from '../../src/gpu/driver/types.ts';
import { buildEmulatedDriver, type EmulatedDriver } from '../emulated-driver/build.ts';

const driver: EmulatedDriver | undefined = await buildEmulatedDriver();

/** True where there is no g++ to build it: `test.skipIf(emulatorMissing)`. */
export const emulatorMissing = driver === undefined;

export interface EmulatedDevice {
  readonly name?: string;
  readonly memoryBytes?: number;
  readonly multiprocessors?: number;
  readonly computeCapability?: readonly [number, number];
  readonly pciSwitch?: number;
  readonly numaNode?: number;
  readonly pciBusId?: string;
}

export interface EmulatedMachine {
  /** A number: so many alike. Default: one. */
  readonly devices?: number | readonly EmulatedDevice[];
  /** Pairs [from, to] that can reach each other's memory; default: all. */
  readonly peers?: readonly (readonly [number, number])[];
  readonly nvlink?: readonly (readonly [number, number])[];
  readonly seed?: number;
  /** In which order operations of different streams run. */
  readonly hostility?: 'late' | 'random' | 'early';
  /** Whether a race makes the call that waits fail, beside being reported. */
  readonly failOnRace?: boolean;
  readonly driverVersion?: number;
  /** What the machine does wrong, see the emulated driver's README. */
  readonly defects?: readonly string[];
}

export interface EmulatorReport {
  readonly races: readonly string[];
  readonly racesFound: number;
  readonly unrecordedWaits: readonly string[];
  readonly faults: readonly string[];
  readonly freesInUse: readonly string[];
  readonly leaks: readonly string[];
  readonly live: Readonly<Record<string, number>>;
  readonly devices: readonly { readonly usedBytes: number; readonly peakBytes: number }[];
  /** How often each call of the driver was made. */
  readonly calls: Readonly<Record<string, number>>;
  readonly operations: number;
  readonly launches: number;
  readonly pageableCopies: number;
  readonly seed: number;
}

/** What tests ask of the emulated driver itself. */
export class Emulator {
  readonly libraries: EmulatedDriver;
  readonly #call: (name: string, result: string, parameters: readonly string[], ...values: unknown[]) => unknown;

  constructor(libraries: EmulatedDriver) {
    this.libraries = libraries;
    const { handle } = loadLibrary('libcuda', { path: libraries.libcuda });
    this.#call = (name, result, parameters, ...values) => handle.func(name, result, [...parameters])(...values);
  }

  configure(machine: EmulatedMachine): void {
    const { devices = 1, ...rest } = machine;
    const list = typeof devices === 'number' ? Array.from({ length: devices }, () => ({})) : devices;
    const text = JSON.stringify({ ...rest, devices: list });
    if (this.#call('emuConfigure', 'int', ['const char *'], text) !== 0) {
      throw new Error(`the emulated driver refuses ${text}: ${String(this.#call('emuLastError', 'const char *', []))}`);
    }
  }

  report(): EmulatorReport {
    return JSON.parse(this.#call('emuReport', 'const char *', []) as string) as EmulatorReport;
  }

  /** Forgets races and the like that were seen, not what is live. */
  forget(): void {
    this.#call('emuForget', 'void', []);
  }

  /** The driver's function of this name gives `status` once, after it has worked `after` times. */
  failNext(name: string, status: number, after = 0): void {
    this.#call('emuFailNext', 'void', ['const char *', 'int', 'int'], name, status, after);
  }

  /** Calls that use the device give `status` from now on; 0: it is back. */
  loseDevice(index: number, status: number): void {
    this.#call('emuLoseDevice', 'void', ['int', 'int'], index, status);
  }

  /** Takes back everything that the device's context has, as the end of the process would. */
  resetDevice(index: number): void {
    this.loseDevice(index, 0);
    this.#call('cuDevicePrimaryCtxReset_v2', 'int', ['int'], index);
  }
}

/** For the next machine: a context that went wrong keeps what could not be given back. */
function resetDevices(emulator: Emulator, count: number): void {
  for (let index = 0; index < count; index++) emulator.resetDevice(index);
}

export interface EmulatedOptions extends EmulatedMachine {
  readonly need?: CudaOptions['need'];
  /** What the test provokes, and checks itself: then it is not an error at the end. */
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
