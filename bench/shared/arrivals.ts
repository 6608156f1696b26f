/** Poisson arrivals at a number of functions, and what calls them. */
import { setTimeout as delay } from 'node:timers/promises';
import { poissonTrace, Xoshiro, type Popularity, type TraceInvocation } from '../../src/replay/index.ts';

export interface ArrivalsOptions {
  readonly functions: number;
  readonly ratePerS: number;
  readonly forMs: number;
  /** Decides which function is the most popular, whatever `turn` is. */
  readonly seed: number;
  /** Others come with another turn. */
  readonly turn?: number;
  readonly popularity?: Popularity;
}

/** How much more often the most popular functions are called. */
export const popularities = {
  uniform: { kind: 'uniform' },
  zipf: { kind: 'zipf', exponent: 1 },
} as const satisfies Record<string, Popularity>;

export function arrivalsOf({
  functions,
  ratePerS,
  forMs,
  seed,
  turn = 0,
  popularity = popularities.uniform,
}: ArrivalsOptions): TraceInvocation[] {
  const functionNames = Array.from({ length: functions }, (_, index) => String(index));
  const random = (): Xoshiro => new Xoshiro(seed + turn);
  return [...poissonTrace({ functionNames, ratePerS, durationMs: forMs, seed, random, popularity }).invocations()];
}

/**
 * Calls each function when it is due, whatever the state of earlier calls. Resolves when all have ended.
 * @param startMs of the arrivals, by `performance.now()`
 * @param spinMs for which the thread stays busy before a call: a timer may end a millisecond late
 */
export async function openLoop(
  arrivals: readonly TraceInvocation[],
  startMs: number,
  call: (functionIndex: number, dueMs: number) => Promise<void>,
  spinMs = 0,
): Promise<void> {
  const calls: Promise<void>[] = [];
  for (const { arrivalMs, functionIndex } of arrivals) {
    const dueMs = startMs + arrivalMs;
    const waitMs = dueMs - performance.now();
    if (waitMs > spinMs) await delay(waitMs - spinMs);
    if (spinMs > 0) while (performance.now() < dueMs) await new Promise((resolve) => setImmediate(resolve));
    calls.push(call(functionIndex, dueMs));
  }
  await Promise.all(calls);
}

/** So many callers call again as soon as they are answered. Resolves to the number of calls. */
export async function closedLoop(callers: number, untilMs: number, call: () => Promise<unknown>): Promise<number> {
  let calls = 0;
  const caller = async (): Promise<void> => {
    for (; performance.now() < untilMs; calls++) await call();
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return calls;
}
