import { describe, expect, test } from 'vitest';
import { gpuOffer, smallGpus } from '../../test/support/offers.ts';
import { LinkLanes } from './links.ts';
import { MissCost, Pressure } from './miss-cost.ts';
import type { GpuOffer } from './offer.ts';

/** After calls with these SLOs. */
const pressureOf = (...sloMs: readonly number[]): Pressure => {
  const pressure = new Pressure(1, new LinkLanes(smallGpus(1, 100)));
  for (const each of sloMs.length === 0 ? [100] : sloMs) pressure.called(each);
  return pressure;
};

/** After the arrival, of a call that was late or in time. */
const endMs = (isLate: boolean, sloMs: number): number => sloMs + (isLate ? 1 : -1);

const costOf = (pressure: Pressure, offer: GpuOffer): MissCost => {
  const cost = new MissCost(pressure, 0);
  cost.look(offer, 2, 100, true, 0);
  return cost;
};

describe('the price of room', () => {
  test('is a mean over the bytes that went, so one dear byte does not outweigh a thousand cheap ones', () => {
    const pressure = pressureOf();
    pressure.lost(1000, 1000);
    pressure.lost(500, 1);
    expect(pressure.lossMs(100)).toBeCloseTo((100 * (0.98 * 1000 + 500)) / (0.98 * 1000 + 1), 6);
  });

  test('is never negative, though a plan may load longer with one small layer more there', () => {
    const plain = gpuOffer(0, { layers: [10, 1], warmMs: 1 });
    const [way] = plain.ways;
    const [own] = way.transfers;
    const offer = {
      ...plain,
      overlapPrefix: 1,
      ways: [{ ...way, transfers: [{ ...own, ms: [11, 1, 1.5] }] }],
    } as const;
    expect(costOf(pressureOf(), offer).suffix).toBeGreaterThanOrEqual(0);
    const late = { ...offer, ways: [{ ...way, coldMs: [1, 1, 1], transfers: [{ ...own, ms: [1, 1, 1.5] }] }] } as const;
    expect(costOf(pressureOf(), late).whole).toBeGreaterThanOrEqual(0);
  });
});

describe('what goes of a function', () => {
  // 40 of 100 bytes hide the rest; everything loads in 30 ms, so 90 ms leave time for three such loads.
  const offer = gpuOffer(0, { layers: [40, 60], overlapPrefix: 1, msPerByte: 0.3 });

  /** Cost per byte of the suffix over that of the whole, after so many of ten loads came too late. */
  const suffixToWhole = (lateOfTen: number, prefix: number): number => {
    const pressure = pressureOf();
    const cost = costOf(pressure, offer);
    for (let load = 0; load < 3000; load++)
      pressure.loadWas(endMs((load * 7) % 10 < lateOfTen, 100), offer, prefix, 100);
    // What was found before the load of the links was known must not last.
    cost.look(offer, 2, 100, true, 0);
    return cost.suffix / cost.whole;
  };

  /** Expected share of late whole loads, after loads with this prefix were late where `isLate` holds. */
  const lateShare = (isLate: (load: number) => boolean, prefix: number): number => {
    const pressure = pressureOf();
    for (let load = 0; load < 4000; load++) pressure.loadWas(endMs(isLate(load), 100), offer, prefix, 100);
    return pressure.lateMs(offer, 0, 100) / 400;
  };

  test('is its suffix while the links carry what is asked of them, and everything once they do not', () => {
    expect(suffixToWhole(0, 0)).toBeLessThan(1);
    expect(suffixToWhole(1, 0)).toBeLessThan(1);
    expect(suffixToWhole(4, 0)).toBeGreaterThan(1);
    expect(suffixToWhole(9, 0)).toBeGreaterThan(1);
  });

  test('is judged by the same load of the links, whether whole functions or suffixes are loaded now', () => {
    // At a load of 0.65, 15% of whole loads are late (K = 3), and 4% of suffixes (K = 5).
    expect(lateShare((load) => (load * 7) % 20 < 3, 0)).toBeCloseTo(0.15, 1);
    expect(lateShare((load) => load % 21 === 0, 1)).toBeCloseTo(0.15, 1);
  });

  test('counts the load itself among those that fit: an idle link makes no suffix late, however little time is left', () => {
    // A suffix takes 19 ms on an idle link: 28 ms leave time for half of another before it, 19.1 for none.
    const pressure = pressureOf(28);
    for (let load = 0; load < 3000; load++) pressure.loadWas(endMs(load % 4 === 0, 28), offer, 1, 28);
    // It is late when another is before it, which is somewhat oftener than those were.
    const chance = pressure.lateMs(offer, 1, 19.1) / pressure.missMs;
    expect(chance).toBeGreaterThan(0.25);
    expect(chance).toBeLessThan(0.4);
  });

  /** After 3,000 calls with an SLO of 28 ms, which waited for loads with this prefix and ended so. */
  const afterLoads = (prefix: number, sloMs: number, endMsOf: (load: number) => number): MissCost => {
    const pressure = pressureOf(28);
    for (let load = 0; load < 3000; load++) pressure.loadWas(endMsOf(load), offer, prefix, sloMs);
    const cost = new MissCost(pressure, 0);
    cost.look(offer, 2, 28, true, 0);
    return cost;
  };

  test('is known where an SLO has room for less than one load, too: one late whenever another is before it', () => {
    // The suffix loads in 18 ms, and 28 ms leave time for nothing else.
    const seldom = afterLoads(1, 28, (load) => endMs(load % 10 === 0, 28));
    expect(seldom.suffix).toBeLessThan(seldom.whole);
    const mostly = afterLoads(1, 28, (load) => endMs(load % 10 !== 0, 28));
    expect(mostly.suffix).toBeGreaterThan(mostly.whole);
  });

  test('is known from loads that are late anyway: they tell how late that of a suffix would have been', () => {
    // Everything takes 31 ms on idle links, a suffix 19.
    const idle = afterLoads(0, 28, () => 31);
    expect(idle.suffix).toBeLessThan(idle.whole);
    const busy = afterLoads(0, 28, () => 51);
    expect(busy.suffix).toBeGreaterThan(busy.whole);
    // Where a suffix is late on idle links, too, nothing is told.
    const hopeless = afterLoads(0, 10, () => 51);
    expect(hopeless.suffix).toBeLessThan(hopeless.whole);
  });

  test('is known from loads that only borrowed links make in time: they too tell how late that of a suffix would have been', () => {
    // Everything takes 16 ms over two links and 31 over one; a suffix takes 19 over its own.
    const lent = gpuOffer(0, { layers: [40, 60], overlapPrefix: 1, msPerByte: 0.3, lenders: () => [1] });
    const lateMs = (endsMs: number): number => {
      const pressure = pressureOf(25);
      for (let load = 0; load < 3000; load++) pressure.loadWas(endsMs, lent, 0, 25);
      return pressure.lateMs(lent, 1, 25);
    };
    expect(lateMs(16)).toBeLessThan(5);
    // All have waited for 8 ms.
    expect(lateMs(24)).toBeGreaterThan(50);
  });

  test('is late less often by itself where the loads before were of whole functions', () => {
    const lent = gpuOffer(0, { layers: [40, 60], overlapPrefix: 1, msPerByte: 0.3, lenders: () => [1] });
    const lateMs = (wholeLoads: number): number => {
      const pressure = pressureOf(40);
      for (let load = 0; load < 3000; load++) {
        pressure.loadWas(endMs(load % 5 === 0, 40), lent, 1, 40);
        // A suffix would be late as well on an idle link: it tells of nothing but its length.
        for (let whole = 0; whole < wholeLoads; whole++) pressure.loadWas(16, lent, 0, 18);
      }
      return pressure.lateMs(lent, 1, 40);
    };
    expect(lateMs(4)).toBeLessThan(0.9 * lateMs(0));
  });

  test('costs the same where it is certainly late, whatever the SLO of its function', () => {
    const pressure = pressureOf(10, 20, 1000, 20_000);
    // 10 s count at the most, and four times the mean for a miss.
    const missMs = (4 * (10 + 20 + 1000 + 10_000)) / 4;
    expect(pressure.lateMs(offer, 0, 10)).toBeCloseTo(missMs, 6);
    expect(pressure.lateMs(offer, 0, 20)).toBeCloseTo(missMs, 6);
    // In a longer SLO it may still be in time.
    expect(pressure.lateMs(offer, 0, 1000)).toBeLessThan(missMs);
  });

  test('is late as often as such starts were, where only borrowed links make a start in time', () => {
    const lent = gpuOffer(0, { layers: [40, 60], overlapPrefix: 1, msPerByte: 0.3, lenders: () => [1] });
    // Over two links everything comes in 15 ms, over its own in 30.
    const pressure = pressureOf(25);
    expect(pressure.lateMs(lent, 0, 25)).toBe(0);
    for (let load = 0; load < 4000; load++) pressure.loadWas(endMs((load * 7) % 10 < 3, 25), lent, 0, 25);
    expect(pressure.lateMs(lent, 0, 25) / 100).toBeCloseTo(0.3, 1);
    // Those that are late over all links always are.
    expect(pressure.lateMs(lent, 0, 12)).toBe(100);
    const cost = new MissCost(pressure, 0);
    cost.look(lent, 2, 25, true, 0);
    const before = cost.whole;
    for (let load = 0; load < 4000; load++) pressure.loadWas(endMs(true, 25), lent, 0, 25);
    cost.look(lent, 2, 25, true, 0);
    expect(cost.whole).toBeGreaterThan(before);
  });

  test('adds nothing to the chance of being late where nothing is missing', () => {
    expect(pressureOf().lateMs(offer, 2, 100)).toBe(0);
  });
});

describe('what later arrivals add to a start that has to load', () => {
  test('is learnt from the runs, apart for those that lack everything, and forgotten when it no longer comes', () => {
    const pressure = pressureOf();
    expect(pressure.longer(true)).toBe(1);
    // Each is expected with the factor learnt so far, and takes 150 ms where 100 were predicted.
    for (let run = 0; run < 500; run++) pressure.tookMs(true, 100 * pressure.longer(true), 150);
    expect(pressure.longer(true)).toBeCloseTo(1.5, 1);
    expect(pressure.longer(false)).toBe(1);
    for (let run = 0; run < 500; run++) pressure.tookMs(true, 100 * pressure.longer(true), 100);
    expect(pressure.longer(true)).toBeCloseTo(1, 1);
  });

  test('is at most as long again, however late a run in an overload ends', () => {
    const pressure = pressureOf();
    for (let run = 0; run < 500; run++) pressure.tookMs(false, 100, 1e6);
    expect(pressure.longer(false)).toBe(2);
  });
});

describe('the prediction of a link', () => {
  const gpus = smallGpus(2, 100, 1);
  const [shortWay] = gpuOffer(1, { layers: [10] }).ways;
  const [longWay] = gpuOffer(0, { layers: [40] }).ways;

  test('has it shared with its neighbour until that has carried its load, and to itself from then on', () => {
    const links = new LinkLanes(gpus);
    links.occupy(shortWay, 0, 0);
    // 10 bytes of each at half the speed take 20 ms, the other 30 take 30; 1 ms is executed behind the last.
    expect(links.estimate(longWay, 0, 0, 0)).toBe(51);
  });

  test('for later does not count the link as busy until then', () => {
    const links = new LinkLanes(gpus);
    links.occupy(shortWay, 0, 0);
    links.estimate(longWay, 0, 0, 0, 5000);
    links.release(shortWay, 20);
    // Busy for 20 ms of the last second.
    expect(links.price([shortWay], 20)).toBeCloseTo(0.02, 2);
  });

  test('of a load under way changes little when its neighbour has carried another', () => {
    const links = new LinkLanes(gpus);
    links.occupy(shortWay, 0, 0);
    const load = { way: longWay, prefix: 0, soonestMs: 41 };
    links.occupy(longWay, 0, 0);
    expect(links.readyMs(load, 0)).toBe(51);
    links.release(shortWay, 20);
    const nowMs = links.readyMs(load, 20);
    expect(nowMs).toBeGreaterThanOrEqual(51);
    // The neighbour has been busy of late, so it may be again.
    expect(nowMs).toBeLessThan(52);
  });
});
