/**
 * A mix like that of Azure Functions, with the kinds of load in DeepPlan's section 5.3.2: heavy sustained requests,
 * rates that fluctuate, spikes, and many functions that are rarely invoked. Shares follow "Serverless in the Wild"
 * (Shahrad et al., USENIX ATC 2020): a fifth of the functions makes nearly all requests, most are invoked less than
 * once a minute, and some by a timer.
 */
import { InvocationBuffer } from '../traces/invocation-buffer.ts';
import { minuteMs } from '../traces/transform.ts';
import type { Trace } from '../types.ts';
import { deriveSeed, poissonCount, shuffledIndices, Xoshiro } from './random.ts';

/** Shares of the functions and of the requests. */
const azureLikeShares = [
  { kind: 'sustained', functions: 0.1, requests: 0.5 },
  { kind: 'fluctuating', functions: 0.25, requests: 0.34 },
  { kind: 'spiky', functions: 0.25, requests: 0.14 },
  { kind: 'rare', functions: 0.4, requests: 0.02 },
] as const;

export type LoadKind = (typeof azureLikeShares)[number]['kind'];

export interface AzureLikeOptions {
  readonly functionNames: readonly string[];
  /** Requests per second on average, over all functions. */
  readonly ratePerS: number;
  /** A trace of 2019 has 1440. */
  readonly minutes: number;
  readonly seed?: number;
}

/** The kind of each function, in seeded order. */
export function azureLikeKinds({ functionNames, seed = 0 }: AzureLikeOptions): LoadKind[] {
  const { length } = functionNames;
  const kinds = Array<LoadKind>(length).fill('rare');
  const order = shuffledIndices(length, new Xoshiro(deriveSeed(seed, 0xa2)));
  let next = 0;
  let share = 0;
  for (const { kind, functions } of azureLikeShares) {
    share += functions;
    const end = kind === 'rare' ? length : Math.max(next + 1, Math.round(length * share));
    for (; next < Math.min(end, length); next++) kinds[order[next]!] = kind;
  }
  return kinds;
}

/** One function's counts, minute by minute, from its own seed. */
function functionLoad(kind: LoadKind, mean: number, seed: number) {
  const random = new Xoshiro(seed);
  const periodMinutes = 20 + random.uniform() * 160;
  const phase = random.uniform();
  /** fluctuating: logarithm of the current rate over the mean; spiky: minutes left of the spike. */
  let state = 0;
  let height = 0;
  /** Half of the rare ones are invoked by a timer. */
  const fires = (minute: number): boolean => {
    const everyMinutes = Math.max(1, Math.round(1 / mean));
    return (minute + Math.floor(phase * everyMinutes)) % everyMinutes === 0;
  };
  const ratePerMinute = (minute: number): number => {
    switch (kind) {
      case 'sustained':
        return mean;
      case 'fluctuating': {
        // A wave with its own period and a wandering rate (a first-order autoregression), both around the mean.
        state = 0.9 * state + 0.15 * (random.uniform() + random.uniform() + random.uniform() - 1.5);
        const wave = Math.sin(2 * Math.PI * (minute / periodMinutes + phase));
        return mean * (1 + 0.6 * wave) * Math.exp(state);
      }
      case 'spiky': {
        // A third of its requests is a low base; the rest comes in spikes of 1 to 3 minutes, about one in 30 minutes.
        if (state > 0) state--;
        else if (random.uniform() < 1 / 30) {
          state = 1 + random.below(3);
          height = 0.5 + random.uniform();
        }
        return state > 0 ? mean * spikeHeight * height : mean / 3;
      }
      case 'rare':
        return mean;
    }
  };
  /** Call it for minutes 0, 1, 2, ... in order. */
  const count = (minute: number): number => {
    if (kind === 'rare' && phase >= 0.5) return fires(minute) ? Math.max(1, Math.round(mean)) : 0;
    return poissonCount(ratePerMinute(minute), random);
  };
  return { count };
}

/**
 * A spike begins in 1 of 30 minutes without one and lasts 2 on average: a share of 2 / 32 of the time, for 2/3 of all.
 */
const spikeHeight = (2 / 3 + (1 / 3) * (2 / 32)) / (2 / 32);

/** Mean requests per minute of each function: within a kind, the k-th in proportion to 1 / k (rare ones all alike). */
function meansPerMinute(kinds: readonly LoadKind[], ratePerS: number): Float64Array {
  const means = new Float64Array(kinds.length);
  const present = azureLikeShares.filter(({ kind }) => kinds.includes(kind));
  const shareTotal = present.reduce((sum, { requests }) => sum + requests, 0);
  for (const { kind, requests } of present) {
    const members = [...kinds.keys()].filter((index) => kinds[index] === kind);
    // A Zipf exponent under 1 within a kind: the kinds themselves make most of the difference.
    const weights = members.map((_, rank) => (kind === 'rare' ? 1 : (rank + 1) ** -0.5));
    const weightTotal = weights.reduce((sum, weight) => sum + weight, 0);
    for (const [rank, index] of members.entries()) {
      means[index] = ((weights[rank]! / weightTotal) * requests * ratePerS * 60) / shareTotal;
    }
  }
  return means;
}

function check({ functionNames, ratePerS, minutes }: AzureLikeOptions): void {
  if (functionNames.length === 0) throw new RangeError('there is no function to invoke');
  if (!(ratePerS > 0 && ratePerS < Infinity)) throw new RangeError(`ratePerS is ${ratePerS}, but must be above 0`);
  if (!(minutes >= 1)) throw new RangeError(`minutes is ${minutes}, but must be at least 1`);
}

/** The counts of each function, minute after minute. */
export function azureLikeLoads(options: AzureLikeOptions): readonly ReturnType<typeof functionLoad>[] {
  check(options);
  const { ratePerS, seed = 0 } = options;
  const kinds = azureLikeKinds(options);
  const means = meansPerMinute(kinds, ratePerS);
  return kinds.map((kind, index) => functionLoad(kind, means[index]!, deriveSeed(seed, 0xf0, index)));
}

/** The mix as a trace. Memory: the state of each function, and one minute's invocations. */
export function azureLikeTrace(options: AzureLikeOptions): Trace {
  const { functionNames, minutes, seed = 0 } = options;
  check(options);
  return {
    functionNames,
    *invocations() {
      const loads = azureLikeLoads(options);
      const buffer = new InvocationBuffer();
      for (let minute = 0; minute < minutes; minute++) {
        buffer.clear();
        // Each minute has its own seed, so that a part of a trace is the same wherever reading begins.
        const random = new Xoshiro(deriveSeed(seed, minute));
        for (const [index, load] of loads.entries()) {
          const count = load.count(minute);
          for (let call = 0; call < count; call++) buffer.push(minute * minuteMs + random.uniform() * minuteMs, index);
        }
        buffer.sort();
        for (let index = 0; index < buffer.length; index++) yield buffer.at(index);
      }
    },
  };
}
