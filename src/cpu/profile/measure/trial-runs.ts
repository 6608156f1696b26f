/** Inputs on which a model runs, found by trials: sizes of open dimensions that nobody gave are guesses. */
import type { Sizes, TensorSpec } from '../../../onnx/index.ts';
import type { Tensor } from '../../../tensor/index.ts';
import { CpuError, type InstanceSpec } from '../../types.ts';
import { makeInputs } from './inputs.ts';
import { InstanceSet } from './instance-set.ts';
import { poolSockets } from './sockets.ts';

export interface TrialRun {
  /** Sizes of the open dimensions. */
  readonly sizes: Sizes;
  readonly tensors: readonly Tensor[];
}

/** Whole numbers are 1 where the model takes that, else 0. */
export function* trialRuns(
  inputs: readonly TensorSpec[],
  rows: number,
  trials: readonly Sizes[],
): Generator<TrialRun, void> {
  for (const sizes of trials) {
    for (const integer of [1, 0] as const) yield { sizes, tensors: makeInputs(inputs, rows, sizes, integer) };
  }
}

/** What the inputs of a run cause; an instance that died or hung would do so with the next ones as well. */
const isOfInputs = (error: unknown): boolean =>
  error instanceof CpuError && (error.code === 'inference-failed' || error.code === 'inference-input');

/** @throws the error of the first trial if the model runs on none, and any error that is not about the inputs */
export async function firstThatRuns<Trial extends { readonly tensors: readonly Tensor[] }>(
  trials: Iterable<Trial>,
  run: (tensors: readonly Tensor[]) => Promise<unknown>,
): Promise<Trial> {
  let refusal: unknown = new CpuError('inference-input', 'there are no inputs to try');
  let isFirst = true;
  for (const trial of trials) {
    try {
      await run(trial.tensors);
      return trial;
    } catch (error) {
      if (!isOfInputs(error)) throw error;
      if (isFirst) refusal = error;
      isFirst = false;
    }
  }
  throw refusal;
}

/** As {@link firstThatRuns}, with the model in a process of its own on one thread. @throws CpuError */
export async function firstThatRunsAlone<Trial extends { readonly tensors: readonly Tensor[] }>(
  model: Pick<InstanceSpec, 'modelPath' | 'opening'>,
  trials: Iterable<Trial>,
  timeoutMs: number,
): Promise<Trial> {
  const spec = { ...model, key: 'tried', threads: 1 };
  const limits = { loadTimeoutMs: timeoutMs, runTimeoutMs: timeoutMs };
  const set = new InstanceSet({ spec, sockets: poolSockets(1), ...limits, log: () => undefined });
  try {
    const [instance] = await set.acquire([1]);
    return await firstThatRuns(trials, (tensors) => set.run(instance!, [tensors]));
  } finally {
    set.stop();
  }
}
