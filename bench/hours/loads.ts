/** The loads of the rows: the generators of `turntable replay`, and bursts on cold functions. */
import {
  burstTrace,
  diurnalTrace,
  instanceNames,
  orderGroups,
  poissonTrace,
  Xoshiro,
  type FunctionGroup,
  type Popularity,
  type Trace,
} from '../../src/replay/index.ts';

export type TraceOf = (seed: number) => Trace;

export interface LoadShape {
  readonly functions: readonly FunctionGroup[];
  readonly ratePerS: number;
  readonly requests: number;
  readonly popularity?: Popularity;
}

export const bert = (count: number): FunctionGroup[] => [{ model: 'bert-base', count }];

export const namesOf = (groups: readonly FunctionGroup[]): string[] =>
  instanceNames(groups, orderGroups(groups, 'mixed'));

export function poisson({ functions, ...load }: LoadShape): TraceOf {
  const functionNames = namesOf(functions);
  return (seed) => poissonTrace({ functionNames, seed, ...load });
}

/**
 * In bursts the total rate of all functions is `height` times as high: a two-state Markov-modulated Poisson process.
 */
export function mmpp({ functions, ...load }: LoadShape, height: number): TraceOf {
  const functionNames = namesOf(functions);
  return (seed) => burstTrace({ functionNames, seed, ...load, height, width: 1, everyS: 20, lengthS: 5 });
}

/** A day of `periodMs`. */
export function diurnal({ functions, ...load }: LoadShape, periodMs: number): TraceOf {
  const functionNames = namesOf(functions);
  return (seed) => diurnalTrace({ functionNames, seed, ...load, periodMs });
}

/** Every `everyMs`, `size` calls at once to the next function: each has long been evicted when it is called again. */
export function coldBursts(functionCount: number, size: number, everyMs: number, bursts: number): TraceOf {
  const functionNames = namesOf(bert(functionCount));
  return () => ({
    functionNames,
    *invocations() {
      for (let burst = 0; burst < bursts; burst++) {
        for (let call = 0; call < size; call++) {
          yield { arrivalMs: burst * everyMs, functionIndex: burst % functionCount };
        }
      }
    },
  });
}

/** Function 0 gets `share` of the requests, all others together the rest. */
export function oneHot({ functions, ratePerS, requests }: LoadShape, share: number): TraceOf {
  const functionNames = namesOf(functions);
  return (seed) => ({
    functionNames,
    *invocations() {
      const random = new Xoshiro(seed);
      let arrivalMs = 0;
      for (let index = 0; index < requests; index++) {
        arrivalMs += random.exponential(ratePerS) * 1000;
        const isHot = random.uniform() < share;
        yield { arrivalMs, functionIndex: isHot ? 0 : 1 + random.below(functionNames.length - 1) };
      }
    },
  });
}
