/** A hybrid program that is ready to run: kernels are loaded on every GPU, sub-graphs are open on their cores. */
import type { Tensor } from '../../tensor/index.ts';
import type { Engine } from '../engine/engine.ts';
import { GpuError, type RunOptions, type RunResult } from '../types.ts';
import type { HybridProgram } from './compile.ts';
import { HybridRun, type OpenCall } from './run.ts';
import type { CpuCores } from './cpu-cores.ts';

export type OpenHybrid = Awaited<ReturnType<typeof openHybrid>>;

/** The function must be registered with the engine. @throws GpuError */
export async function openHybrid(engine: Engine, key: string, hybrid: HybridProgram, cores: CpuCores) {
  const { program, promise } = hybrid;
  if (promise.cores > cores.count) {
    throw new GpuError('invalid', `plan '${promise.plan}' uses ${promise.cores} cores, and there are ${cores.count}`);
  }
  const calls: OpenCall[] = [];
  const releaseCalls = () => Promise.all(calls.map(({ part }) => part.release()));
  try {
    for (const call of hybrid.calls) calls.push({ call, part: await cores.core(call.core).open(call.modelPath) });
    if (program !== null) {
      await Promise.all(engine.devices.map(({ index }) => engine.bind(key, program, index)));
    }
  } catch (error) {
    await releaseCalls();
    throw error;
  }
  return {
    hybrid,
    /** @throws GpuError */
    run: (inputs: readonly Tensor[], options: RunOptions): Promise<RunResult> =>
      new HybridRun(engine, key, hybrid, calls, inputs, options).execute(),
    /** Frees its kernels and sub-graphs; the function's weights stay. */
    close: async (): Promise<void> => {
      await releaseCalls();
      if (program !== null) await engine.unbind(key, program.key);
    },
  };
}

/** A hybrid program that several runs share, and that may be retired while they run. */
export class SharedHybrid {
  readonly #opening: Promise<OpenHybrid>;
  readonly #running = new Set<Promise<unknown>>();

  constructor(opening: Promise<OpenHybrid>) {
    this.#opening = opening;
    // Each `use` throws the error.
    opening.catch(() => undefined);
  }

  /** Keeps the program open until `act` has ended. @throws the error of opening or of `act` */
  async use<Result>(act: (open: OpenHybrid) => Promise<Result>): Promise<Result> {
    const running = this.#opening.then(act);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Frees kernels and sub-graphs once all uses have ended. Must not be used any more. */
  async retire(): Promise<void> {
    await Promise.allSettled(this.#running);
    await this.#opening.then((open) => open.close()).catch(() => undefined);
  }
}
