/**
 * Generated arrivals: constant, with bursts, or over the hours of a day. Drawn lazily, in order, the same for a seed.
 */
import type { Trace, TraceInvocation } from '../types.ts';
import { deriveSeed, shuffledIndices, WeightedChoice, Xoshiro, type RandomSource } from './random.ts';

/**
 * How requests are distributed over functions: evenly; the k-th most popular in proportion to 1 / k^exponent; or a
 * share of the requests on a share of the functions (0.99 of the requests on 0.01 of the functions; at least one).
 */
export type Popularity =
  | { readonly kind: 'uniform' }
  | { readonly kind: 'zipf'; readonly exponent: number }
  | { readonly kind: 'skewed'; readonly requestShare: number; readonly functionShare: number };

export interface ArrivalOptions {
  readonly functionNames: readonly string[];
  /** Requests per second on average, over all functions. */
  readonly ratePerS: number;
  readonly seed?: number;
  /** The trace ends with so many requests, or at this instant, whichever comes first; one of them is required. */
  readonly requests?: number;
  readonly durationMs?: number;
  /** The seed decides which function is the most popular. */
  readonly popularity?: Popularity;
}

export interface PoissonOptions extends ArrivalOptions {
  /** Another source than that of the seed, new for each reading: the DeepPlan artifact has one of its own. */
  readonly random?: () => RandomSource;
}

/** Arrivals at a constant rate, independent of each other. */
export function poissonTrace(options: PoissonOptions): Trace {
  const { ratePerS, seed = 0, random: source = () => new Xoshiro(seed) } = options;
  return traceOf(options, (choose) => {
    const random = source();
    let atMs = 0;
    return () => {
      atMs += random.exponential(ratePerS) * 1000;
      return { arrivalMs: atMs, functionIndex: choose(random) };
    };
  });
}

export interface BurstOptions extends ArrivalOptions {
  /** Mean seconds from the end of a burst to the next; exponential. */
  readonly everyS?: number;
  /** Mean length in seconds; exponential. */
  readonly lengthS?: number;
  /** Rate within a burst over the rate outside. */
  readonly height?: number;
  /** Share of the functions that get a burst's additional requests, drawn for each burst. */
  readonly width?: number;
}

/** A constant rate with bursts of a few functions on top; `ratePerS` is the mean of both together. */
export function burstTrace(options: BurstOptions): Trace {
  const { functionNames, ratePerS, seed = 0, everyS = 60, lengthS = 5, height = 5, width = 0.1 } = options;
  positive({ everyS, lengthS, height });
  if (!(width > 0 && width <= 1)) throw new RangeError(`the width of bursts is ${width}, not a share above 0`);
  const basePerS = ratePerS / (1 + ((height - 1) * lengthS) / (everyS + lengthS));
  const additionalPerS = basePerS * (height - 1);
  const burstFunctions = Math.max(1, Math.round(functionNames.length * width));
  return traceOf(options, (choose) => {
    const random = new Xoshiro(seed);
    let atMs = 0;
    let bursting = false;
    let switchMs = random.exponential(1 / everyS) * 1000;
    let first = 0;
    const intervalMs = (): number => random.exponential(bursting ? basePerS + additionalPerS : basePerS) * 1000;
    return () => {
      let nextMs = atMs + intervalMs();
      while (nextMs >= switchMs) {
        // An exponential interval has no memory, so a new one may begin at the switch.
        atMs = switchMs;
        bursting = !bursting;
        first = random.below(functionNames.length);
        switchMs += random.exponential(1 / (bursting ? lengthS : everyS)) * 1000;
        nextMs = atMs + intervalMs();
      }
      atMs = nextMs;
      const ofBurst = bursting && random.uniform() * (basePerS + additionalPerS) < additionalPerS;
      const functionIndex = ofBurst ? (first + random.below(burstFunctions)) % functionNames.length : choose(random);
      return { arrivalMs: atMs, functionIndex };
    };
  });
}

export interface DiurnalOptions extends ArrivalOptions {
  /** Milliseconds of a day. */
  readonly periodMs?: number;
}

const dayMs = 24 * 60 * 60 * 1000;
/** From 20% to 180% of the mean rate. */
const amplitude = 0.8;

/** A rate that follows a sine: it starts at the mean, and peaks a quarter of the period later. */
export function diurnalTrace(options: DiurnalOptions): Trace {
  const { ratePerS, seed = 0, periodMs = dayMs } = options;
  positive({ periodMs });
  return traceOf(options, (choose) => {
    const random = new Xoshiro(seed);
    let atMs = 0;
    return () => {
      let share: number;
      do {
        // Thinning (Lewis and Shedler 1979): arrivals at the highest rate, each kept with the probability of the current
        // rate.
        atMs += random.exponential(ratePerS * (1 + amplitude)) * 1000;
        share = 1 + amplitude * Math.sin((2 * Math.PI * atMs) / periodMs);
      } while (random.uniform() * (1 + amplitude) >= share);
      return { arrivalMs: atMs, functionIndex: choose(random) };
    };
  });
}

type Choose = (random: RandomSource) => number;

/** A trace of what the draws of one reading give without end, up to the number of requests and the duration. */
function traceOf(options: ArrivalOptions, drawing: (choose: Choose) => () => TraceInvocation): Trace {
  check(options);
  const { functionNames, requests = Infinity, durationMs = Infinity } = options;
  const choose = chooser(options);
  return {
    functionNames,
    *invocations() {
      const draw = drawing(choose);
      for (let left = requests; left > 0; left--) {
        const invocation = draw();
        if (invocation.arrivalMs >= durationMs) return;
        yield invocation;
      }
    },
  };
}

function check({ functionNames, ratePerS, requests, durationMs }: ArrivalOptions): void {
  if (functionNames.length === 0) throw new RangeError('there is no function to invoke');
  positive({ ratePerS });
  if (requests === undefined && durationMs === undefined) {
    throw new RangeError('the trace has no end: it needs a number of requests or a duration');
  }
}

function positive(values: Readonly<Record<string, number>>, below = Infinity, wanted = 'above 0'): void {
  for (const [name, value] of Object.entries(values)) {
    if (!(value > 0 && value < below)) throw new RangeError(`${name} is ${value}, but must be ${wanted}`);
  }
}

function chooser({ functionNames, popularity, seed = 0 }: ArrivalOptions): Choose {
  const { length } = functionNames;
  if (popularity === undefined || popularity.kind === 'uniform') return (random) => random.below(length);
  const byRank = shuffledIndices(length, new Xoshiro(deriveSeed(seed, 0x21bf)));
  if (popularity.kind === 'skewed') {
    const { requestShare, functionShare } = popularity;
    positive({ requestShare, functionShare }, 1, 'a share between 0 and 1');
    const hot = Math.min(length, Math.max(1, Math.round(length * functionShare)));
    const hotShare = hot === length ? 1 : requestShare;
    return (random) => byRank[random.uniform() < hotShare ? random.below(hot) : hot + random.below(length - hot)]!;
  }
  const { exponent } = popularity;
  if (!(exponent >= 0 && exponent < Infinity)) {
    throw new RangeError(`the exponent of the Zipf popularity is ${exponent}, but must be 0 or above`);
  }
  const choice = new WeightedChoice(Float64Array.from({ length }, (_, rank) => (rank + 1) ** -exponent));
  return (random) => byRank[choice.draw(random)]!;
}
