import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { summarizeTrace } from '../traces/transform.ts';
import { burstTrace, diurnalTrace, poissonTrace } from './arrivals.ts';
import { azureLikeKinds, azureLikeTrace } from './azure-like.ts';
import { functionOrders, instanceNames, orderGroups, paperMix } from './functions.ts';
import { poissonCount, shuffledIndices, WeightedChoice, Xoshiro } from './random.ts';

const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `f${index}`);

describe('the random source', () => {
  it('the random source is uniform enough: mean, variance and every sixteenth', () => {
    const random = new Xoshiro(7);
    const count = 200_000;
    const sixteenths = Array<number>(16).fill(0);
    let sum = 0;
    let squares = 0;
    for (let index = 0; index < count; index++) {
      const value = random.uniform();
      sum += value;
      squares += value * value;
      sixteenths[Math.floor(value * 16)]!++;
    }
    expect(sum / count).toBeCloseTo(0.5, 2);
    expect(squares / count - (sum / count) ** 2).toBeCloseTo(1 / 12, 2);
    for (const found of sixteenths) expect(Math.abs(found - count / 16)).toBeLessThan(6 * Math.sqrt(count / 16));
  });

  it('differs between neighbouring seeds and is the same for one', () => {
    const firsts = new Set(Array.from({ length: 1000 }, (_, seed) => new Xoshiro(seed).uniform()));
    expect(firsts.size).toBe(1000);
    expect(new Xoshiro(2 ** 40 + 1).uniform()).not.toBe(new Xoshiro(1).uniform());
    expect(new Xoshiro(5).uniform()).toBe(new Xoshiro(5).uniform());
  });

  it('the random source chooses in proportion to weights, and never an index of weight 0', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(9), { minLength: 1, maxLength: 12 }), fc.nat(), (weights, seed) => {
        fc.pre(weights.some((weight) => weight > 0));
        const choice = new WeightedChoice(weights);
        const random = new Xoshiro(seed);
        const drawn = weights.map(() => 0);
        for (let index = 0; index < 5000; index++) drawn[choice.draw(random)]!++;
        const total = weights.reduce((sum, weight) => sum + weight, 0);
        for (const [index, weight] of weights.entries()) {
          const expected = (5000 * weight) / total;
          const allowed = weight === 0 ? 0 : 6 * Math.sqrt(expected) + 6;
          expect(Math.abs(drawn[index]! - expected)).toBeLessThanOrEqual(allowed);
        }
      }),
      { numRuns: 30 },
    );
    expect(() => new WeightedChoice([0, 0])).toThrow(/no weight above 0/);
    expect(() => new WeightedChoice([1, -1])).toThrow(/weight 1 is -1/);
  });

  it('the random source counts with the mean and variance of Poisson, small and large', () => {
    for (const mean of [0.3, 4, 29, 31, 400]) {
      const random = new Xoshiro(11);
      const counts = Array.from({ length: 20_000 }, () => poissonCount(mean, random));
      const average = counts.reduce((sum, count) => sum + count, 0) / counts.length;
      const variance = counts.reduce((sum, count) => sum + (count - average) ** 2, 0) / counts.length;
      expect(Math.abs(average - mean) / mean).toBeLessThan(0.05);
      expect(Math.abs(variance - mean) / mean).toBeLessThan(0.08);
    }
    expect(poissonCount(0, new Xoshiro(1))).toBe(0);
  });

  it('shuffles without losing any', () => {
    expect([...shuffledIndices(50, new Xoshiro(3))].toSorted((a, b) => a - b)).toEqual([...names(50).keys()]);
  });
});

const generators = {
  poisson: poissonTrace,
  burst: burstTrace,
  diurnal: (options: Parameters<typeof diurnalTrace>[0]) => diurnalTrace({ ...options, periodMs: 60_000 }),
};

describe.each(Object.entries(generators))('%s arrivals', (_, generate) => {
  it('come in order, to known functions, as many as wanted, the same for a seed', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 1, max: 400 }),
        fc.double({ min: 0.1, max: 1000, noNaN: true }),
        fc.nat(),
        (functions, requests, ratePerS, seed) => {
          const trace = generate({ functionNames: names(functions), ratePerS, requests, seed });
          const all = [...trace.invocations()];
          expect(all).toHaveLength(requests);
          for (const [index, { arrivalMs, functionIndex }] of all.entries()) {
            expect(arrivalMs).toBeGreaterThanOrEqual(all[index - 1]?.arrivalMs ?? 0);
            expect(functionIndex).toBeLessThan(functions);
          }
          expect([...trace.invocations()]).toEqual(all);
        },
      ),
      { numRuns: 25 },
    );
  });

  it('have the wanted rate on average', () => {
    const options = { functionNames: names(10), ratePerS: 40, durationMs: 3_600_000, seed: 6 };
    const { requests, lastArrivalMs } = summarizeTrace(generate(options));
    expect(requests / 3600 / 40).toBeGreaterThan(0.93);
    expect(requests / 3600 / 40).toBeLessThan(1.07);
    expect(lastArrivalMs).toBeLessThan(3_600_000);
  });

  it('follow Zipf when told to', () => {
    const popularity = { kind: 'zipf', exponent: 1 } as const;
    const { totals } = summarizeTrace(
      generate({ functionNames: names(50), ratePerS: 100, requests: 60_000, seed: 2, popularity }),
    );
    const sorted = [...totals].toSorted((a, b) => b - a);
    // The tenth most popular has a tenth of the first's; bursts reach all equally and flatten that.
    const ratio = sorted[0]! / sorted[9]!;
    expect(ratio).toBeGreaterThan(5);
    expect(ratio).toBeLessThan(13);
    // The most popular is drawn: adjacent functions, which are of one model, must not all be popular.
    expect(totals[0]).not.toBe(sorted[0]);
  });

  it('put a share of the requests on a share of the functions', () => {
    const popularity = { kind: 'skewed', requestShare: 0.8, functionShare: 0.2 } as const;
    const { totals } = summarizeTrace(
      poissonTrace({ functionNames: names(50), ratePerS: 100, requests: 60_000, seed: 2, popularity }),
    );
    const sorted = [...totals].toSorted((a, b) => b - a);
    const hot = sorted.slice(0, 10).reduce((sum, count) => sum + count, 0);
    expect(hot / 60_000).toBeCloseTo(0.8, 1);
    // Alike among themselves.
    expect(sorted[0]! / sorted[9]!).toBeLessThan(1.2);
    const whole = { kind: 'skewed', requestShare: 1, functionShare: 0.2 } as const;
    expect(() => poissonTrace({ functionNames: names(2), ratePerS: 1, requests: 1, popularity: whole })).toThrow(
      'requestShare is 1, but must be a share between 0 and 1',
    );
  });

  it('need an end, a rate and a function', () => {
    expect(() => generate({ functionNames: names(2), ratePerS: 1 })).toThrow(/the trace has no end/);
    expect(() => generate({ functionNames: names(2), ratePerS: 0, requests: 1 })).toThrow(/ratePerS is 0/);
    expect(() => generate({ functionNames: [], ratePerS: 1, requests: 1 })).toThrow(/no function/);
  });
});

describe('bursts', () => {
  it('raise the load within them to their height', () => {
    const options = { functionNames: names(20), ratePerS: 50, durationMs: 1_200_000, seed: 1, height: 8 };
    const perSecond = new Map<number, number>();
    for (const { arrivalMs } of burstTrace(options).invocations()) {
      const second = Math.floor(arrivalMs / 1000);
      perSecond.set(second, (perSecond.get(second) ?? 0) + 1);
    }
    const sorted = [...perSecond.values()].toSorted((a, b) => a - b);
    const median = sorted[sorted.length >> 1]!;
    expect(sorted.at(-5)! / median).toBeGreaterThan(5);
  });
});

describe('the diurnal load', () => {
  it('the diurnal load is highest a quarter of the day in, and lowest at three quarters', () => {
    const trace = diurnalTrace({ functionNames: names(3), ratePerS: 20, durationMs: 1_000_000, periodMs: 1_000_000 });
    const tenths = Array<number>(10).fill(0);
    for (const { arrivalMs } of trace.invocations()) tenths[Math.floor(arrivalMs / 100_000)]!++;
    expect(Math.max(...tenths)).toBe(tenths[2]);
    expect(Math.min(...tenths)).toBe(tenths[7]);
    expect(tenths[2]! / tenths[7]!).toBeGreaterThan(5);
  });
});

describe('the Azure-like mix', () => {
  const options = { functionNames: names(108), ratePerS: 150, minutes: 180, seed: 1 };

  it('the Azure-like mix has the wanted rate, spikes and rare functions, in order', () => {
    const perMinute = Array<number>(180).fill(0);
    const totals = Array<number>(108).fill(0);
    let lastMs = 0;
    for (const { arrivalMs, functionIndex } of azureLikeTrace(options).invocations()) {
      if (arrivalMs < lastMs) throw new Error(`${arrivalMs} comes after ${lastMs}`);
      lastMs = arrivalMs;
      perMinute[Math.floor(arrivalMs / 60_000)]!++;
      totals[functionIndex]!++;
    }
    const requests = totals.reduce((sum, total) => sum + total, 0);
    expect(requests / 10_800 / 150).toBeGreaterThan(0.93);
    expect(requests / 10_800 / 150).toBeLessThan(1.07);
    const sorted = totals.toSorted((a, b) => b - a);
    const top = sorted.slice(0, 38).reduce((sum, total) => sum + total, 0);
    expect(top / requests).toBeGreaterThan(0.75);
    expect(sorted.at(-1)! / requests).toBeLessThan(0.001);
    expect(Math.max(...perMinute) / Math.min(...perMinute)).toBeGreaterThan(1.3);
  });

  it('the Azure-like mix has every kind of function, however few there are', () => {
    expect(new Set(azureLikeKinds({ ...options, functionNames: names(4) }))).toEqual(
      new Set(['sustained', 'fluctuating', 'spiky', 'rare']),
    );
    expect(
      summarizeTrace(azureLikeTrace({ ...options, functionNames: names(1), minutes: 5 })).requests,
    ).toBeGreaterThan(0);
  });

  it('the Azure-like mix is another with another seed', () => {
    const short = { ...options, minutes: 2 };
    const one = [...azureLikeTrace(short).invocations()];
    expect([...azureLikeTrace(short).invocations()]).toEqual(one);
    expect([...azureLikeTrace({ ...short, seed: 2 }).invocations()]).not.toEqual(one);
  });
});

describe('the functions of a trace', () => {
  it("the functions of a trace are BERT-Base, RoBERTa-Base and GPT-2 at 4 : 4 : 1 in the paper's mix", () => {
    expect(paperMix(108)).toEqual([
      { model: 'bert-base', count: 48 },
      { model: 'roberta-base', count: 48 },
      { model: 'gpt2', count: 12 },
    ]);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 500 }), (count) => {
        expect(paperMix(count).reduce((sum, group) => sum + group.count, 0)).toBe(count);
      }),
    );
  });

  it.each(functionOrders)('the functions of a trace in the order %s hold every group as often as it says', (order) => {
    const counts = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(counts, fc.nat(), (given, seed) => {
        const groups = given.map((count, index) => ({ model: `m${index}`, count }));
        const order_ = orderGroups(groups, order, seed);
        expect(given.map((_, group) => order_.filter((each) => each === group).length)).toEqual(given);
        const all = instanceNames(groups, order_);
        expect(new Set(all).size).toBe(all.length);
      }),
    );
  });

  it('the functions of a trace are mixed so that every prefix has its share of each model', () => {
    const order = orderGroups(paperMix(108), 'mixed');
    for (let length = 1; length <= 108; length++) {
      const gpt2 = order.slice(0, length).filter((group) => group === 2).length;
      expect(Math.abs(gpt2 - length / 9)).toBeLessThanOrEqual(1);
    }
  });
});
