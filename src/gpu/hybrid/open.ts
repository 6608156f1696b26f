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
    for (const call of hybrid.calls) calls.push({ call, part: await cores.open(call.core, call.modelPath) });
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
