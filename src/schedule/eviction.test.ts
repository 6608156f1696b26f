import { describe, expect, test } from 'vitest';
import { type OfferShape } from '../../test/support/offers.ts';
import { arrival, Bench, best, finished, kinds, runs } from '../../test/support/scheduler-bench.ts';
import { policies } from './index.ts';

describe('eviction', () => {
  test('takes the function that was used least recently, as a whole, and says so before the run', () => {
    const bench = new Bench({ ...policies.artifact });
    const [a, b, c] = [bench.add({ layers: [40] }), bench.add({ layers: [40] }), bench.add({ layers: [40] })];
    bench.visit(0, 0, a);
    bench.visit(100, 0, b);
    bench.visit(200, 0, a);
    expect(bench.at(300, arrival(0, c))).toMatchObject([
      { kind: 'evict', functionIndex: b, prefix: 0, bytes: 40, cause: 'capacity' },
      { kind: 'run', functionIndex: c, start: 'cold' },
    ]);
    expect(bench.scheduler.residentBytes(0)).toBe(80);
  });

  test('trims suffixes to the hiding prefix before it drops anything, only as far as needed', () => {
    const bench = new Bench(best);
    const shape: OfferShape = { layers: [10, 10, 10, 10], overlapPrefix: 2 };
    const [a, b] = [bench.add(shape), bench.add(shape)];
    const small = bench.add({ layers: [5, 25], overlapPrefix: 2 });
    const smaller = bench.add({ layers: [20] });
    bench.visit(0, 0, a);
    bench.visit(100, 0, b);
    const trims = bench.visit(200, 0, small).filter(({ kind }) => kind === 'evict');
    expect(trims).toMatchObject([{ functionIndex: a, prefix: 3, bytes: 10, cause: 'trim' }]);
    expect(bench.visit(300, 0, smaller).filter(({ kind }) => kind === 'evict')).toMatchObject([
      { functionIndex: a, prefix: 2, bytes: 10, cause: 'trim' },
      { functionIndex: b, prefix: 3, bytes: 10, cause: 'trim' },
    ]);
    // The rest of the layers is loaded when it is invoked again: a partial start.
    expect(bench.at(400, arrival(0, a))).toContainEqual(
      expect.objectContaining({ kind: 'load', functionIndex: a, load: expect.objectContaining({ prefix: 2 }) }),
    );
  });

  test('never takes what runs: an invocation without room waits', () => {
    const bench = new Bench(best);
    const [a, b] = [bench.add({ layers: [60] }), bench.add({ layers: [60] })];
    bench.at(0, arrival(0, a));
    bench.at(60, { kind: 'loaded', gpu: 0, functionIndex: a });
    expect(bench.at(61, arrival(1, b))).toMatchObject([{ kind: 'wait', invocation: 1, place: 0 }]);
    expect(kinds(bench.at(70, finished(0)))).toEqual(['evict', 'load', 'wake']);
  });

  test('spares what is pinned', () => {
    const bench = new Bench(policies.artifact);
    const pinned = bench.add({ layers: [40] }, { pinned: true });
    const [b, c] = [bench.add({ layers: [40] }), bench.add({ layers: [40] })];
    bench.visit(0, 0, pinned);
    bench.visit(100, 0, b);
    expect(bench.at(200, arrival(0, c))).toMatchObject([{ kind: 'evict', functionIndex: b }, { kind: 'run' }]);
  });

  test('by greedy dual size frequency keeps what is used often and costs much to load', () => {
    const bench = new Bench({ ...policies.artifact, eviction: 'gdsf' });
    const cheap = bench.add({ layers: [40], msPerByte: 0.3 });
    const dear = bench.add({ layers: [40], msPerByte: 3 });
    const next = bench.add({ layers: [40] });
    bench.visit(0, 0, dear);
    bench.visit(100, 0, cheap);
    expect(bench.at(200, arrival(0, next))).toMatchObject([{ kind: 'evict', functionIndex: cheap }, { kind: 'run' }]);
  });

  test('by value takes what late calls wait for, before what is called oftener', () => {
    const shape: OfferShape = { layers: [30], warmMs: 1 };
    const evictedAfter = (uses: number): number | undefined => {
      const bench = new Bench({ ...policies.best });
      const [awaited, often, long] = [bench.add(shape), bench.add(shape), bench.add({ ...shape, warmMs: 50 })];
      bench.visit(0, 0, awaited);
      bench.visit(100, 0, long);
      for (let use = 0; use < uses; use++) bench.visit(200 + 10 * use, 0, often);
      // The first of four calls is in time. The others are late, and behind one that is not.
      for (let call = 0; call < 4; call++) bench.at(1000, arrival(call, awaited, { sloMs: 1.5 }));
      bench.at(1000, arrival(4, long));
      expect(runs(bench.at(1001, finished(0)))).toEqual([4]);
      const actions = bench.at(1010, arrival(5, bench.add(shape)));
      return [awaited, often].find((fn) => actions.some((each) => each.kind === 'evict' && each.functionIndex === fn));
    };
    expect([1, 20].map(evictedAfter)).toEqual([1, 0]);
  });

  test('by value evicts the prefix of an unused function before the suffix of a popular one', () => {
    const shape: OfferShape = { layers: [20, 20], overlapPrefix: 1, msPerByte: 1 };
    for (const [eviction, victim, cause] of [
      ['lru-suffix', 'popular', 'trim'],
      ['value-suffix', 'rare', 'capacity'],
    ] as const) {
      const bench = new Bench({ ...policies.best, eviction });
      const [rare, popular, other] = [
        bench.add(shape),
        bench.add(shape),
        bench.add({ layers: [20, 20], overlapPrefix: 2 }),
      ];
      let nowMs = 0;
      bench.visit((nowMs += 100), 0, rare);
      for (let use = 0; use < 30; use++) bench.visit((nowMs += 100), 0, popular);
      // Trims the rare function, under both policies.
      expect(bench.visit((nowMs += 100), 0, other)).toContainEqual(
        expect.objectContaining({ kind: 'evict', functionIndex: rare, cause: 'trim' }),
      );
      const late = bench.add({ layers: [10] });
      expect(bench.visit((nowMs += 100), 0, late).find(({ kind }) => kind === 'evict')).toMatchObject({
        functionIndex: { rare, popular }[victim],
        cause,
      });
    }
  });
});
