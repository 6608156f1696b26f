/** How failed invocations are counted. */
import type { PoolInput } from '../../cpu/index.ts';
import { HostError, type ErrorCode } from '../errors.ts';
import { disagreement, modelSpec } from '../infer/model-spec.ts';
import type { Outcome } from './placement.ts';
import type { FunctionVersion } from '../types.ts';

/** Triton's reasons of a failure. */
export type FailureReason = 'REJECTED' | 'CANCELED' | 'BACKEND' | 'OTHER';

/** Failures that are already in the statistics: those of invocations, not of calls that never became one. */
export const accounted = new WeakSet<HostError>();

/** A failed run of inputs whose sizes do not agree where the model gives them one name: that is why, and the client's. */
export function withExplanation(failure: HostError, { metadata }: FunctionVersion, input: PoolInput): HostError {
  if (failure.code !== 'inference-failed' && failure.code !== 'inference-input') return failure;
  if (metadata === undefined || input.kind !== 'tensors') return failure;
  const reason = disagreement(modelSpec(metadata), input.tensors);
  if (reason === undefined) return failure;
  return new HostError('inference-input', `${reason}: ${failure.message}`, { cause: failure });
}

/** The outcome of a failed invocation; undefined if the client's own input or leaving was the cause. */
export function outcomeOf(failure: HostError, totalMs: number, sloMs: number): Outcome | undefined {
  switch (failure.code) {
    case 'queue-full':
    case 'shed':
    case 'deadline-passed':
    case 'draining':
    case 'machine-short':
      return 'shed';
    case 'client-gone':
      // A client that leaves after the SLO has passed was served too late; one that leaves before does not count.
      return totalMs > sloMs ? 'late' : undefined;
    default:
      return failure.status >= 500 ? 'failed' : undefined;
  }
}

/** Triton's reason. Errors caused by the client's input are no failures of the backend. */
export function reasonOf(code: ErrorCode): FailureReason {
  switch (code) {
    case 'queue-full':
    case 'shed':
    case 'deadline-passed':
    case 'draining':
    case 'too-many-requests':
    case 'not-ready':
    case 'unloaded':
    case 'machine-short':
      return 'REJECTED';
    case 'client-gone':
      return 'CANCELED';
    case 'inference-failed':
    case 'inference-timeout':
    case 'instance-died':
    case 'model-load-failed':
    case 'handler-failed':
    case 'handler-timeout':
      return 'BACKEND';
    default:
      return 'OTHER';
  }
}
