/** Predicts how long an invocation will take at a worker that reports its work. Pure: numbers in, number out. */
import type { FunctionCapacity } from './types.ts';

/** Assumed for a function that was never measured. */
const unmeasuredCallMs = 10;

/**
 * Milliseconds until the answer of one more invocation: the work ahead of it, its function's start if that is not
 * ready, its own run, and the round trip.
 */
export function predictedMs(capacity: FunctionCapacity, backlogMs: number, overheadMs: number): number {
  return overheadMs + Math.max(0, backlogMs) + capacity.startMs + callMsOf(capacity);
}

/** How many milliseconds one invocation of the function adds to the backlog of a worker with so many cores. */
export function shareMs(capacity: FunctionCapacity, cores: number): number {
  // A function that may not use all cores delays only itself.
  const side = Math.max(1, Math.min(capacity.slots, Math.floor(cores / capacity.threads)));
  return callMsOf(capacity) / side;
}

function callMsOf({ callMs }: FunctionCapacity): number {
  return callMs ?? unmeasuredCallMs;
}
