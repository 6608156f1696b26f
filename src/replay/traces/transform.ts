/**
 * Derives a trace from another: a window of it, more or fewer requests, fewer functions. Lazily, in order of arrival.
 */
import { deriveSeed, Xoshiro } from '../generate/random.ts';
import type { Trace, TraceInvocation } from '../types.ts';
import { InvocationBuffer } from './invocation-buffer.ts';

export const minuteMs = 60_000;

/** Invocations that arrive from `fromMs` on and before `toMs`; the new trace begins at `fromMs`. */
export function sliceTrace(trace: Trace, fromMs: number, toMs: number): Trace {
  return {
    functionNames: trace.functionNames,
    *invocations() {
      for (const invocation of trace.invocations()) {
        if (invocation.arrivalMs >= toMs) return;
        if (invocation.arrivalMs >= fromMs) yield { ...invocation, arrivalMs: invocation.arrivalMs - fromMs };
      }
    },
  };
}

/**
 * `factor` times the requests: each is kept with that probability, or repeated. A copy arrives between the middles of
 * the gaps before and after the original, within its minute. So each burst stays as short as it was, simultaneous calls
 * stay simultaneous, and each function's share and the course of the load are as before. Memory: one invocation's
 * copies.
 */
export function scaleTrace(trace: Trace, factor: number, seed: number): Trace {
  if (factor === 1) return trace;
  const whole = Math.floor(factor);
  return {
    functionNames: trace.functionNames,
    *invocations() {
      const copies = new InvocationBuffer(whole + 1);
      let minute = -1;
      let random = new Xoshiro(deriveSeed(seed, 0));
      for (const { invocation, fromMs, toMs } of withNeighbours(trace.invocations())) {
        const { arrivalMs, functionIndex, durationMs, sloMs } = invocation;
        const own = Math.floor(arrivalMs / minuteMs);
        if (own !== minute) {
          minute = own;
          // Each minute has its own seed, so that a part of a trace is the same wherever reading begins.
          random = new Xoshiro(deriveSeed(seed, minute));
        }
        const count = whole + (random.uniform() < factor - whole ? 1 : 0);
        copies.clear();
        for (let copy = 0; copy < count; copy++) {
          const atMs = copy === 0 ? arrivalMs : fromMs + random.uniform() * (toMs - fromMs);
          copies.push(atMs, functionIndex, durationMs, sloMs);
        }
        copies.sort();
        for (let index = 0; index < copies.length; index++) yield copies.at(index);
      }
    },
  };
}

/** Each invocation with the time span that is nearer to it than to its neighbours, within its minute. */
function* withNeighbours(
  invocations: Iterable<TraceInvocation>,
): Generator<{ readonly invocation: TraceInvocation; readonly fromMs: number; readonly toMs: number }> {
  let invocation: TraceInvocation | undefined;
  let beforeMs = 0;
  const span = (current: TraceInvocation, nextMs: number) => {
    const startMs = Math.floor(current.arrivalMs / minuteMs) * minuteMs;
    const fromMs = Math.max(startMs, (beforeMs + current.arrivalMs) / 2);
    return { invocation: current, fromMs, toMs: Math.min(startMs + minuteMs, (current.arrivalMs + nextMs) / 2) };
  };
  for (const next of invocations) {
    if (invocation !== undefined) {
      yield span(invocation, next.arrivalMs);
      beforeMs = invocation.arrivalMs;
    } else {
      beforeMs = next.arrivalMs;
    }
    invocation = next;
  }
  if (invocation !== undefined) yield span(invocation, invocation.arrivalMs);
}

/**
 * Folds functions onto `count` of them, as the DeepPlan artifact does: sorted by their invocations, most first, function
 * i of that order becomes function i modulo `count`. With no more functions than that they are only sorted.
 *
 * @returns for each function the folded one, and the name of each folded function: that of its first
 */
export function foldByTotal(
  functionNames: readonly string[],
  totals: Float64Array,
  count: number,
): { readonly foldedIndex: Uint32Array; readonly names: readonly string[] } {
  const order = Uint32Array.from(functionNames.keys()).sort((a, b) => totals[b]! - totals[a]! || a - b);
  const foldedIndex = new Uint32Array(order.length);
  const names: string[] = [];
  for (const [rank, index] of order.entries()) {
    foldedIndex[index] = rank % count;
    if (rank < count) names.push(functionNames[index]!);
  }
  return { foldedIndex, names };
}

/** Folds the functions onto `count` of them, the most invoked first; `totals` are the invocations of each. */
export function foldTrace(trace: Trace, totals: Float64Array, count: number): Trace {
  const { foldedIndex, names } = foldByTotal(trace.functionNames, totals, count);
  return {
    functionNames: names,
    *invocations() {
      for (const invocation of trace.invocations()) {
        yield { ...invocation, functionIndex: foldedIndex[invocation.functionIndex]! };
      }
    },
  };
}

/** At most the first `requests` invocations. */
export function limitTrace(trace: Trace, requests: number): Trace {
  return {
    functionNames: trace.functionNames,
    *invocations() {
      let left = requests;
      if (left <= 0) return;
      for (const invocation of trace.invocations()) {
        yield invocation;
        if (--left === 0) return;
      }
    },
  };
}

/** Counts a trace in one pass. */
export function summarizeTrace(trace: Trace) {
  /** Invocations of each function. */
  let totals = new Float64Array(Math.max(1, trace.functionNames.length));
  let requests = 0;
  /** 0 without any. */
  let lastArrivalMs = 0;
  for (const { arrivalMs, functionIndex } of trace.invocations()) {
    if (functionIndex >= totals.length) {
      const grown = new Float64Array(functionIndex * 2);
      grown.set(totals);
      totals = grown;
    }
    totals[functionIndex]!++;
    requests++;
    lastArrivalMs = arrivalMs;
  }
  return { requests, totals: totals.subarray(0, trace.functionNames.length), lastArrivalMs };
}
