/** Functions that only an emulated driver has: defining its machine, injecting failures, and reading observations. */
import { loadLibrary } from '../../src/gpu/driver/libraries.ts';
import type { EmulatedDriver } from '../emulated-driver/build.ts';

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
  /** A number of equal ones, or a list. Default: one. */
  readonly devices?: number | readonly EmulatedDevice[];
  /** Pairs [from, to] that can reach each other's memory; default: all. */
  readonly peers?: readonly (readonly [number, number])[];
  readonly nvlink?: readonly (readonly [number, number])[];
  readonly seed?: number;
  /** The order of operations in different streams. */
  readonly hostility?: 'late' | 'random' | 'early';
  /** Whether a race also fails the call that waits, besides being reported. */
  readonly failOnRace?: boolean;
  readonly driverVersion?: number;
  /** False: kernels and products are counted and checked, but compute nothing. Default true. */
  readonly computes?: boolean;
  /** Defects of the machine, see the emulated driver's README. */
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
  /** Kernels that ran, also in graphs; without the library's products. */
  readonly launches: number;
  readonly products: number;
  /** How many of these got an address of host memory to read. */
  readonly kernelsReadingHost: number;
  readonly productsReadingHost: number;
  /** Bytes of copies, by their ends. */
  readonly copied: Readonly<Record<'toDevice' | 'toHost' | 'onDevice' | 'acrossDevices', number>>;
  readonly pageableCopies: number;
  readonly seed: number;
}

/** The variables of a process that opens the emulated driver with these devices. */
export const emulatedEnvironment = (
  { environment }: EmulatedDriver,
  devices: readonly EmulatedDevice[],
): Readonly<Record<string, string>> => ({ ...environment, TURNTABLE_EMULATOR: JSON.stringify({ devices }) });

/** The emulated driver's own functions, for tests. */
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

  /** Forgets observed races and the like, but not live objects. */
  forget(): void {
    this.#call('emuForget', 'void', []);
  }

  /** The driver's function of this name returns `status` once, after it has worked `after` times. */
  failNext(name: string, status: number, after = 0): void {
    this.#call('emuFailNext', 'void', ['const char *', 'int', 'int'], name, status, after);
  }

  /** Calls that use the device return `status` from now on; 0: it is back. */
  loseDevice(index: number, status: number): void {
    this.#call('emuLoseDevice', 'void', ['int', 'int'], index, status);
  }

  /** Frees everything in the device's context, as the end of the process would. */
  resetDevice(index: number): void {
    this.loseDevice(index, 0);
    this.#call('cuDevicePrimaryCtxReset_v2', 'int', ['int'], index);
  }
}
