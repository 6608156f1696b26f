import type { PoolInput } from '../../src/cpu/index.ts';
import type { OtherPlace, RanThere } from '../../src/host/index.ts';
import type { SideOffer } from '../../src/schedule/index.ts';
import type { Tensor } from '../../src/tensor/index.ts';
import { NpuLane } from './npu-lane.ts';

/** The device's own library. */
export interface NpuDevice {
  /** Milliseconds of a run of the function; undefined if no model of it was compiled. */
  runMs(key: string): number | undefined;
  /** Whether its current model is the function's. */
  hasModelOf(key: string): boolean;
  /** @throws DeviceError if it cannot, and something else may */
  run(key: string, inputs: readonly Tensor[]): Promise<readonly Tensor[]>;
}

export class DeviceError extends Error {}

/** A neural processor of this machine as a place of a host. */
export class NpuPlace implements OtherPlace {
  readonly id = 'npu';
  readonly countedAs = 'npu';
  readonly roundTripMs = 0;
  readonly runsHandlers = false;
  readonly #device: NpuDevice;
  readonly #switchMs: number;
  #changed: ((to: object | null) => void) | undefined;

  constructor(device: NpuDevice, switchMs: number) {
    this.#device = device;
    this.#switchMs = switchMs;
  }

  lanes(): NpuLane {
    return new NpuLane({ switchMs: this.#switchMs });
  }

  offer(key: string): SideOffer | null {
    const latencyMs = this.#device.runMs(key);
    return latencyMs === undefined ? null : { latencyMs };
  }

  follow(changed: (to: object | null) => void): void {
    this.#changed = changed;
  }

  /** The device has gone, or is back. */
  isThere(isThere: boolean): void {
    this.#changed?.(isThere ? { switchMs: this.#switchMs } : null);
  }

  async run(key: string, input: PoolInput): Promise<RanThere> {
    if (input.kind === 'request') throw new DeviceError('it runs no handlers');
    const coldStart = !this.#device.hasModelOf(key);
    const beganMs = performance.now();
    const outputs = await this.#device.run(key, input.tensors);
    const inferMs = performance.now() - beganMs;
    const tensors = outputs.filter(({ name }) => input.outputs?.includes(name) ?? true);
    const result = {
      output: { kind: 'tensors', tensors },
      timings: { queueMs: 0, loadMs: 0, preprocessMs: 0, inferMs, postprocessMs: 0 },
      coldStart,
      batchSize: 1,
      instancePid: process.pid,
    } as const;
    return { result, where: 'npu' };
  }

  refusalOf(error: unknown): string | undefined {
    return error instanceof DeviceError ? `npu: ${error.message}` : undefined;
  }
}
