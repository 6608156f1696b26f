import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { InstanceSpec } from '../types.ts';
import { ArrivalRate, FunctionFacts, PoolLoad, smoothStart } from './facts.ts';

describe('the size of a session', () => {
  const mebibyte = 2 ** 20;
  const spec = { modelBytes: 100 * mebibyte } as InstanceSpec;

  it('is a third more than the model before a load, and then what loads took', () => {
    const facts = new FunctionFacts();
    expect(facts.sessionBytes(spec)).toBe(130 * mebibyte);
    expect(facts.loaded(spec, 1, 150 * mebibyte)).toBe(150 * mebibyte);
    expect(facts.sessionBytes(spec)).toBe(150 * mebibyte);
  });

  it('has beside it what its runs keep: by its graph, until a process with runs has been weighed', () => {
    const facts = new FunctionFacts();
    const estimated = { ...spec, runBytes: 30 * mebibyte };
    expect(facts.runBytes(estimated)).toBe(30 * mebibyte);
    facts.weighed(25 * mebibyte);
    facts.weighed(3 * mebibyte);
    expect(facts.runBytes(estimated)).toBe(25 * mebibyte);
    expect(facts.sessionBytes(spec)).toBe(130 * mebibyte);
  });
});

describe('the arrival rate', () => {
  it('of steady traffic is its rate, and falls to nothing when it stops', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 0, max: 5000 }), (perSecond, startMs) => {
        const rate = new ArrivalRate(startMs);
        const endMs = startMs + 30_000;
        for (let atMs = startMs; atMs < endMs; atMs += 1000 / perSecond) rate.arrived(atMs);
        expect(rate.perSecond(endMs)).toBeGreaterThan(perSecond * 0.95 - 0.2);
        expect(rate.perSecond(endMs)).toBeLessThan(perSecond * 1.05 + 0.2);
        expect(rate.perSecond(endMs + 5000)).toBeLessThan(perSecond * 0.55 + 0.2);
        expect(rate.perSecond(endMs + 10_500)).toBe(0);
      }),
      { numRuns: 30 },
    );
  });

  it('of one request is no flood', () => {
    const rate = new ArrivalRate(0);
    rate.arrived(1);
    expect(rate.perSecond(2)).toBeLessThanOrEqual(2);
  });
});

describe('the queue depth', () => {
  it('follows a change with a time constant of one second, whenever it is looked at', () => {
    const load = new PoolLoad(0);
    load.arrived(8, 1000);
    expect(load.depth(1000)).toBe(0);
    expect(load.depth(2000)).toBeCloseTo(8 * (1 - Math.exp(-1)), 9);
    expect(load.depth(60_000)).toBeCloseTo(8, 9);
    load.left(8, 60_000);
    expect(load.depth(61_000)).toBeCloseTo(8 * Math.exp(-1), 6);
  });

  it('counts the rows of every request until it has left', () => {
    const load = new PoolLoad(0);
    load.arrived(3, 0);
    load.arrived(1, 0);
    load.left(3, 10_000);
    expect(load.depth(10_000)).toBeCloseTo(4, 3);
    expect(load.depth(30_000)).toBeCloseTo(1, 3);
  });
});

it('the start time of an instance follows its newest starts', () => {
  expect(smoothStart(undefined, 300)).toBe(300);
  expect(smoothStart(300, 100)).toBe(200);
});
