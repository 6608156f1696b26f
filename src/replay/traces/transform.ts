/** A trace made of another: a window of it, more or fewer requests, fewer functions. Lazily, in order of arrival. */
import { deriveSeed, Xoshiro } from '../generate/random.ts';
import type { TraceInvocation } from '../types.ts';
import { InvocationBuffer } from './invocation-buffer.ts';
import { foldByTotal } from './minute-table.ts';
import { minuteMs, type SyncTrace } from './place.ts';

/** Invocations that arrive from `fromMs` on and before `toMs`; the new trace begins at `fromMs`. */
export function sliceTrace(trace: SyncTrace, fromMs: number, toMs: number): SyncTrace {
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
 * `factor` times the requests: each is kept with that chance, or repeated, at another instant of its minute; so the course
 * of the load and the share of each function stay as they are. Memory: one minute's invocations.
 */
export function scaleTrace(trace: SyncTrace, factor: number, seed: number): SyncTrace {
  if (factor === 1) return trace;
  return {
    functionNames: trace.functionNames,
    *invocations() {
      const buffer = new InvocationBuffer();
      let minute = 0;
      let random = new Xoshiro(deriveSeed(seed, minute));
      for (const { arrivalMs, functionIndex, durationMs = NaN } of trace.invocations()) {
        const own = Math.floor(arrivalMs / minuteMs);
        if (own !== minute) {
          yield* inOrder(buffer);
          buffer.clear();
          minute = own;
          random = new Xoshiro(deriveSeed(seed, minute));
        }
        const whole = Math.floor(factor);
        const copies = whole + (random.uniform() < factor - whole ? 1 : 0);
        for (let copy = 0; copy < copies; copy++) {
          const atMs = copy === 0 ? arrivalMs : (minute + random.uniform()) * minuteMs;
          buffer.push(atMs, functionIndex, durationMs);
        }
      }
      yield* inOrder(buffer);
    },
  };
}

function* inOrder(buffer: InvocationBuffer): Generator<TraceInvocation> {
  buffer.sort();
  for (let index = 0; index < buffer.length; index++) {
    const arrivalMs = buffer.arrivalMs[index]!;
    const functionIndex = buffer.functionIndex[index]!;
    const durationMs = buffer.durationMs[index]!;
    yield Number.isNaN(durationMs) ? { arrivalMs, functionIndex } : { arrivalMs, functionIndex, durationMs };
  }
}

/** The functions folded onto `count` of them, those invoked most first; `totals` are the invocations of each. */
export function foldTrace(trace: SyncTrace, totals: Float64Array, count: number): SyncTrace {
  const { foldedIndex, names } = foldByTotal({ functionNames: trace.functionNames, totals }, count);
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
export function limitTrace(trace: SyncTrace, requests: number): SyncTrace {
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

export interface TraceSummary {
  readonly requests: number;
  /** Invocations of each function. */
  readonly totals: Float64Array;
  /** Of the last arrival; 0 without any. */
  readonly lastArrivalMs: number;
}

/** Counts a trace, by going through it once. */
export function summarizeTrace(trace: SyncTrace): TraceSummary {
  let totals = new Float64Array(Math.max(1, trace.functionNames.length));
  let requests = 0;
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
