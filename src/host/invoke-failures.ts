/** How an invocation that failed counts. */
import type { ErrorCode, HostError } from './errors.ts';
import type { FailureReason, VersionStatistics } from './statistics.ts';
import type { Outcome } from './placement.ts';

/** Failures that stand in the statistics already: those of invocations, as opposed to calls that never became one. */
export const accounted = new WeakSet<HostError>();

export const isAccounted = (failure: HostError): boolean => accounted.has(failure);

export function account(
  statistics: VersionStatistics,
  failure: HostError,
  totalMs: number,
  sloMs: number,
): Outcome | undefined {
  statistics.failed(reasonOf(failure.code), totalMs);
  const outcome = outcomeOf(failure, totalMs, sloMs);
  if (outcome !== undefined) statistics.outcomes[outcome]++;
  return outcome;
}

/** The outcome of a failed invocation; undefined where the client's own input or leaving was the cause. */
function outcomeOf(failure: HostError, totalMs: number, sloMs: number): Outcome | undefined {
  switch (failure.code) {
    case 'queue-full':
    case 'shed':
    case 'deadline-passed':
    case 'draining':
      return 'shed';
    case 'client-gone':
      // Who leaves after the SLO has passed was served too late; who leaves before made no claim on it.
      return totalMs > sloMs ? 'late' : undefined;
    default:
      return failure.status >= 500 ? 'failed' : undefined;
  }
}

/** Triton's reason. What the client's own input caused is none of the backend's failures. */
export function reasonOf(code: ErrorCode): FailureReason {
  switch (code) {
    case 'queue-full':
    case 'shed':
    case 'deadline-passed':
    case 'draining':
    case 'too-many-requests':
    case 'not-ready':
    case 'unloaded':
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
