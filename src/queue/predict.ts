/** How long an invocation will take at somebody who says what it has to do. Pure: numbers in, number out. */
import type { FunctionCapacity } from './types.ts';

/** Assumed for a function that nobody has measured yet. */
const unmeasuredCallMs = 10;

/**
 * Milliseconds until the answer of one more invocation: the work ahead of it, its function's start where that is not
 * ready, its own run, and the way there and back.
 */
export function predictedMs(capacity: FunctionCapacity, backlogMs: number, overheadMs: number): number {
  return overheadMs + Math.max(0, backlogMs) + capacity.startMs + callMsOf(capacity);
}

/** Milliseconds by which one invocation of the function lengthens the work of somebody with so many cores. */
export function shareMs(capacity: FunctionCapacity, cores: number): number {
  // A function that may not use all cores is in nobody's way on the others, but it is in its own.
  const side = Math.max(1, Math.min(capacity.slots, Math.floor(cores / capacity.threads)));
  return callMsOf(capacity) / side;
}

function callMsOf({ callMs }: FunctionCapacity): number {
  return callMs ?? unmeasuredCallMs;
}

/** A mean in which what is new counts `weight`. */
export function smoothed(meanMs: number | undefined, newMs: number, weight = 0.2): number {
  return meanMs === undefined ? newMs : meanMs + weight * (newMs - meanMs);
}
