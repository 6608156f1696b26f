import { describe, expect, test } from 'vitest';
import { gpuOffer, smallGpus } from '../../test/support/offers.ts';
import { LinkLanes } from './links.ts';
import { suffixCostPerByte, wholeCostPerByte } from './miss-cost.ts';
import { Pressure } from './pressure.ts';

const pressureOf = (): Pressure => new Pressure(1, new LinkLanes(smallGpus(1, 100)));

describe('the price of room', () => {
  test('is a mean over the bytes that went, so one dear byte does not outweigh a thousand cheap ones', () => {
    const pressure = pressureOf();
    pressure.lost(1, 1000);
    pressure.lost(500, 1);
    expect(pressure.lossMs(100)).toBeCloseTo((100 * (0.98 * 1000 + 500)) / (0.98 * 1000 + 1), 6);
  });

  test('is never negative, though a plan may load longer with one small layer more there', () => {
    const plain = gpuOffer(0, { layers: [10, 1], warmMs: 1 });
    const [way] = plain.ways;
    const [own] = way.transfers;
    const offer = { ...plain, hidingPrefix: 1, ways: [{ ...way, transfers: [{ ...own, ms: [11, 1, 1.5] }] }] } as const;
    expect(suffixCostPerByte(pressureOf(), 0, offer, 2, 100)).toBeGreaterThanOrEqual(0);
    const late = { ...offer, ways: [{ ...way, coldMs: [1, 1, 1], transfers: [{ ...own, ms: [1, 1, 1.5] }] }] } as const;
    expect(wholeCostPerByte(pressureOf(), 0, late, 2, 100)).toBeGreaterThanOrEqual(0);
  });
});

describe('what later arrivals add to a start that has to load', () => {
  test('is learnt from the runs, apart for those that lack everything, and forgotten when it no longer comes', () => {
    const pressure = pressureOf();
    expect(pressure.longer(true)).toBe(1);
    // Each is expected with what was learnt so far, and takes 150 ms where 100 were known.
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
    expect(links.price(1, 20)).toBeCloseTo(0.02, 2);
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
