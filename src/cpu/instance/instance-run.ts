/** A run as an instance gets it, and how it ends. */
import type { Tensor } from '../../tensor/index.ts';
import { callTimesOf, timesOf, withTensors } from './protocol.ts';
import type { CallHeader, CallTimes, FromInstance, LoadedLate, Phase, ResultHeader } from './protocol.ts';
import { CpuError, type InvokeOthers, type PoolLimits, type RunModel } from '../types.ts';

/** `loadTimeoutMs`: for a model that is loaded at its first run. */
export type RunLimits = Pick<PoolLimits, 'handlerTimeoutMs' | 'loadTimeoutMs' | 'inferTimeoutMs'>;

/** The work that an instance is given. */
export interface RunOrder {
  /** Whether calls with like inputs may share a run of the model. */
  readonly join: boolean;
  readonly calls: readonly CallHeader[];
  /** The calls' tensors, in their order. */
  readonly tensors: readonly Tensor[];
  readonly limits: RunLimits;
  /** For a single call: runs its model in place of the instance. */
  readonly runModel?: RunModel | undefined;
  /** Calls other functions for the handler of one of the calls. */
  readonly invokeOthers?: ((call: number) => InvokeOthers | undefined) | undefined;
  /**
   * Called when the instance waits for the model's run or for other functions and is free for other work; and when it
   * resumes the call.
   */
  readonly onAway?: (() => void) | undefined;
  readonly onBack?: (() => void) | undefined;
}

/** What one run answered: a result per call, with its tensors (a handler's reply: one tensor, the body). */
export interface RunResult {
  /** How long the instance worked on it, by its own clock. */
  readonly busyMs: number;
  /** The instance loaded the model for it. */
  readonly loaded: LoadedLate | undefined;
  readonly results: readonly {
    readonly header: ResultHeader;
    readonly times: CallTimes;
    readonly tensors: readonly Tensor[];
  }[];
}

/** How a run ended. `startedMs` (performance.now()) is when the instance began it. */
export type RunOutcome =
  | { readonly kind: 'ran'; readonly startedMs: number; readonly result: RunResult }
  /** The instance died. `suspect`: it was working on this run, which may have killed it. */
  | { readonly kind: 'died'; readonly reason: string; readonly suspect: boolean }
  /** The instance was stopped because a step took too long: a step of `call`, or the model's run for all calls (-1). */
  | { readonly kind: 'timeout'; readonly error: CpuError; readonly call: number };

/** A load that exceeded its time limit. */
export class LoadTimeout extends CpuError {
  constructor(key: string, limitMs: number) {
    super('model-load-failed', `loading the model of ${key} took longer than ${limitMs} ms`);
  }
}

/** Lines that an instance, or the handler in it, wrote to its standard output and error. */
export type InstanceLog = (pid: number, key: string | undefined, line: string) => void;

/** How a load ended; `loadMs` by the instance's own clock. */
export type LoadedModel = Omit<FromInstance & { readonly op: 'loaded' }, 'op'>;

/** Each result with its own tensors and times. */
export function takeResults(header: FromInstance & { op: 'ran' }, [first, ...tensors]: readonly Tensor[]): RunResult {
  const numbers = timesOf(first!);
  const results = withTensors(header.results, tensors).map(({ header: result, tensors: own }, call) => ({
    header: result,
    times: callTimesOf(numbers, call),
    tensors: own,
  }));
  return { busyMs: numbers[0]!, results, loaded: header.loaded };
}

export function limitMsOf(phase: Phase, { loadTimeoutMs, inferTimeoutMs, handlerTimeoutMs }: RunLimits): number {
  return phase === 'load' ? loadTimeoutMs : phase === 'infer' ? inferTimeoutMs : handlerTimeoutMs;
}

/** The error of a run that was stopped in this step. */
export function tookTooLong(phase: Phase, key: string, limits: RunLimits): CpuError {
  const limitMs = limitMsOf(phase, limits);
  if (phase === 'load') return new LoadTimeout(key, limitMs);
  const [code, what] =
    phase === 'infer' ? (['inference-timeout', 'a run of the model'] as const) : (['handler-timeout', phase] as const);
  return new CpuError(code, `${what} of ${key} took longer than ${limitMs} ms and was stopped`);
}
