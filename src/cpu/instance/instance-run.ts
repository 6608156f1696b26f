/** What an instance is given to do, and how that ends. */
import type { Tensor } from '../../tensor/index.ts';
import { callTimesOf, timesOf } from './protocol.ts';
import type { CallHeader, CallTimes, FromInstance, LoadedLate, Phase, ResultHeader } from './protocol.ts';
import { CpuError, type InvokeOthers, type RunModel } from '../types.ts';

export interface RunLimits {
  readonly handlerTimeoutMs: number;
  /** Of a model that is loaded when it is first run. */
  readonly loadTimeoutMs: number;
  readonly inferTimeoutMs: number;
}

/** What an instance is given to do. */
export interface RunOrder {
  /** Whether calls with like inputs may share a run of the model. */
  readonly join: boolean;
  readonly calls: readonly CallHeader[];
  /** Of the calls, in their order. */
  readonly tensors: readonly Tensor[];
  readonly limits: RunLimits;
  /** For one call alone: who runs the model instead. */
  readonly runModel?: RunModel | undefined;
  /** Who asks other functions for the handler of one of the calls. */
  readonly invokeOthers?: ((call: number) => InvokeOthers | undefined) | undefined;
  /**
   * Told when the instance has handed the model's run to it, or waits for other functions, and has a hand free; and
   * when it takes the call up again.
   */
  readonly onAway?: (() => void) | undefined;
  readonly onBack?: (() => void) | undefined;
}

/** What one run answered: a result per call, with its tensors (a handler's reply: one tensor, the body). */
export interface RunResult {
  /** How long the instance was at it, by its own clock. */
  readonly busyMs: number;
  /** The instance loaded the model for it. */
  readonly loaded: LoadedLate | undefined;
  readonly results: readonly {
    readonly header: ResultHeader;
    readonly times: CallTimes;
    readonly tensors: readonly Tensor[];
  }[];
}

/** How a run ended. `startedMs` (performance.now()) is when the instance turned to it. */
export type RunOutcome =
  | { readonly kind: 'ran'; readonly startedMs: number; readonly result: RunResult }
  /** The instance died; `suspect` when this run was the one it was at, and may be what killed it. */
  | { readonly kind: 'died'; readonly reason: string; readonly suspect: boolean }
  /** The instance was stopped because of this run: of `call`, or of the model's run for all calls (-1). */
  | { readonly kind: 'timeout'; readonly error: CpuError; readonly call: number };

/** A load that was not over within its limit. */
export class LoadTimeout extends CpuError {
  constructor(key: string, limitMs: number) {
    super('model-load-failed', `loading the model of ${key} took longer than ${limitMs} ms`);
  }
}

/** Lines that an instance, or the handler in it, wrote to its standard output and error. */
export type InstanceLog = (pid: number, key: string | undefined, line: string) => void;

/** How a load ended. */
export interface LoadedModel {
  /** By the instance's own clock. */
  readonly loadMs: number;
  /** How much its process grew meanwhile. */
  readonly bytes: number;
  /** Why the instance could not use the prepared model and loaded the model itself. */
  readonly sharedProblem: string | undefined;
}

/** Each result with its own tensors and times. */
export function takeResults(header: FromInstance & { op: 'ran' }, [first, ...tensors]: readonly Tensor[]): RunResult {
  const numbers = timesOf(first!);
  let at = 0;
  const results = header.results.map((result, call) => {
    const count = result.kind === 'tensors' ? result.count : result.kind === 'response' ? 1 : 0;
    return { header: result, times: callTimesOf(numbers, call), tensors: tensors.slice(at, (at += count)) };
  });
  const { loaded } = header;
  return { busyMs: numbers[0]!, results, loaded };
}

/** What a run that was stopped is told of the step it was at. */
export function tookTooLong(phase: Phase, key: string, limits: RunLimits): CpuError {
  switch (phase) {
    case 'load':
      return new LoadTimeout(key, limits.loadTimeoutMs);
    case 'infer':
      return new CpuError(
        'inference-timeout',
        `a run of the model of ${key} took longer than ${limits.inferTimeoutMs} ms and was stopped`,
      );
    case 'preprocess':
    case 'postprocess':
      return new CpuError(
        'handler-timeout',
        `${phase} of ${key} took longer than ${limits.handlerTimeoutMs} ms and was stopped`,
      );
  }
}
