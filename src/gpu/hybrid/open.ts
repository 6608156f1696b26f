/** A hybrid program that is ready to run: kernels are loaded on every GPU, sub-graphs are open on their cores. */
import type { Tensor } from '../../tensor/index.ts';
import type { Engine } from '../engine/index.ts';
import { GpuError, type RunOptions, type RunResult } from '../types.ts';
import type { HybridProgram } from './compile.ts';
import { HybridRun, type OpenCall } from './run.ts';
import type { CpuCores } from './cpu-cores.ts';

export class OpenHybrid {
  readonly hybrid: HybridProgram;
  readonly #engine: Engine;
  readonly #key: string;
  readonly #calls: readonly OpenCall[];

  private constructor(engine: Engine, key: string, hybrid: HybridProgram, calls: readonly OpenCall[]) {
    this.#engine = engine;
    this.#key = key;
    this.hybrid = hybrid;
    this.#calls = calls;
  }

  /** The function must be registered with the engine. @throws GpuError, CudaError */
  static async open(engine: Engine, key: string, hybrid: HybridProgram, cores: CpuCores): Promise<OpenHybrid> {
    if (hybrid.promise.cores > cores.count) {
      throw new GpuError(
        'invalid',
        `plan '${hybrid.promise.plan}' uses ${hybrid.promise.cores} cores, and there are ${cores.count}`,
      );
    }
    const calls: OpenCall[] = [];
    const { program } = hybrid;
    try {
      for (const call of hybrid.calls) {
        calls.push({ call, part: await cores.open(call.core, call.modelPath) });
      }
      if (program !== null) {
        await Promise.all(engine.devices.map(({ index }) => engine.bind(key, program, index)));
      }
    } catch (error) {
      await Promise.all(calls.map(({ part }) => part.release()));
      throw error;
    }
    return new OpenHybrid(engine, key, hybrid, calls);
  }

  /** @throws GpuError */
  run(inputs: readonly Tensor[], options: RunOptions): Promise<RunResult> {
    return new HybridRun(this.#engine, this.#key, this.hybrid, this.#calls, inputs, options).execute();
  }

  /** Frees its kernels and sub-graphs; the function's weights stay. */
  async close(): Promise<void> {
    const { program } = this.hybrid;
    await Promise.all(this.#calls.map(({ part }) => part.release()));
    if (program !== null) await this.#engine.unbind(this.#key, program.key);
  }
}
