/**
 * A circuit breaker per function. After three failed GPU runs in a row, calls go elsewhere; the GPU is retried after 2
 * s, then 4 s, up to 5 min. A run that hangs ends the GPU process for every function, so one is enough for the longest
 * pause.
 */

import { backoffMs } from '../../tools/index.ts';

/** Failed runs in a row that open the breaker. */
export const failuresMax = 3;
const pauseMsMin = 2000;
const pauseMsMax = 300_000;

export interface Breaker {
  readonly failures: number;
  readonly reason: string;
  /** The latest run did not end. */
  readonly isHung: boolean;
  /** When the GPU is retried (performance.now()). */
  readonly untilMs: number;
}

export function afterFailure(before: Breaker | undefined, reason: string, nowMs: number): Breaker {
  const failures = (before?.failures ?? 0) + 1;
  const pauseMs = backoffMs(pauseMsMin, failures - failuresMax, pauseMsMax);
  return { failures, reason, isHung: false, untilMs: nowMs + pauseMs };
}

export function afterHang(before: Breaker | undefined, reason: string, nowMs: number): Breaker {
  const failures = Math.max(failuresMax, (before?.failures ?? 0) + 1);
  return { failures, reason, isHung: true, untilMs: nowMs + pauseMsMax };
}

export const isOpen = (breaker: Breaker | undefined, nowMs: number): breaker is Breaker =>
  breaker !== undefined && breaker.failures >= failuresMax && nowMs < breaker.untilMs;

export function breakerWords({ failures, reason, isHung, untilMs }: Breaker, nowMs: number): string {
  const when = `retried in ${Math.max(0, Math.ceil((untilMs - nowMs) / 1000))} s`;
  return isHung ? `${reason}; ${when}` : `${failures} GPU runs failed in a row, the last with: ${reason}; ${when}`;
}
