import { describe, expect, test } from 'vitest';
import { gpuOffer, smallGpus, type OfferShape } from '../../test/support/offers.ts';
import { arrival, Bench, best, finished, kinds } from '../../test/support/scheduler-bench.ts';
import { policies, type Action } from './index.ts';
import { LinkLanes } from './links.ts';
import { tuning } from './tuning.ts';

const { overdueShare } = tuning.queues;

const acrossSwitches = (gpu: number): number[] => [(gpu + 2) % 4];

const waysOf = (gpu: number, lenders: OfferShape['lenders']) =>
  gpuOffer(gpu, { layers: [40], ...(lenders && { lenders }) }).ways;

describe('links', () => {
  const shape: OfferShape = { layers: [40], lenders: acrossSwitches };

  test('of other GPUs help while they are idle, and not while they carry something', () => {
    const bench = new Bench(best, { gpus: 4 });
    const [a, b] = [bench.add(shape), bench.add(shape)];
    bench.at(0, { kind: 'gpu-lost', gpu: 1 });
    bench.at(0, { kind: 'gpu-lost', gpu: 3 });
    const first = bench.at(1, arrival(0, a));
    expect(first[0]).toMatchObject({ kind: 'load', gpu: 0, load: { way: { mode: 'pt+dha' } } });
    // GPU 2's own link is lent: its load waits until it is free again.
    expect(kinds(bench.at(2, arrival(1, b)))).toEqual(['wait']);
    const freed = bench.at(25, { kind: 'loaded', gpu: 0, functionIndex: a });
    expect(freed).toContainEqual(expect.objectContaining({ kind: 'load', gpu: 2, functionIndex: b }));
  });

  test.each([[[2]], [[1, 2]], [[2, 3]], [[1, 2, 3]]])(
    'of GPUs that are lost (%j) make no predicted end earlier',
    (lost: readonly number[]) => {
      const predictedMs = (lenders: OfferShape['lenders']): unknown[] => {
        const bench = new Bench(best, { gpus: 4 });
        for (const gpu of lost) bench.at(0, { kind: 'gpu-lost', gpu });
        return [0, 1, 2, 3, 4].map((call) => {
          const fn = bench.add({ layers: [40, 10 * call], ...(lenders && { lenders }) }, {}, 0);
          return bench.at(1 + call, arrival(call, fn)).find(({ kind }) => kind === 'wait');
        });
      };
      expect(predictedMs(shape.lenders)).toEqual(predictedMs(undefined));
    },
  );

  test('are queued for where the policy says so', () => {
    const bench = new Bench(policies.artifact, { gpus: 4 });
    for (let index = 0; index < 3; index++) bench.add(shape);
    expect(bench.at(0, arrival(0, 0))).toMatchObject([{ kind: 'run', gpu: 0, predictedEndMs: 21 }]);
    // Its links carry 20 ms for GPU 0 first, then 20 for GPU 2.
    expect(bench.at(0, arrival(1, 2))).toMatchObject([
      { kind: 'run', gpu: 2, load: { way: { mode: 'pt+dha' } }, predictedEndMs: 41 },
    ]);
  });

  test('of a switch that carries only one of them take turns, the most urgent call first', () => {
    const bench = new Bench(best, { gpus: 2, uplinkBytesPerMs: 1 });
    const [first, later, sooner] = [
      bench.add({ layers: [40] }, {}, 0),
      bench.add({ layers: [40] }, { sloMs: 500 }, 0),
      bench.add({ layers: [40] }, { sloMs: 400 }, 1),
    ];
    expect(bench.at(0, arrival(0, first))).toMatchObject([
      { kind: 'load', gpu: 0 },
      { kind: 'wake' },
      { kind: 'wait' },
    ]);
    expect(kinds(bench.at(1, arrival(1, later)))).toEqual(['wait']);
    // Its own link is idle, but a load beside the other one would only make both late.
    const [wait, ...others] = bench.at(2, arrival(2, sooner));
    expect(others).toEqual([]);
    // Behind 40 ms under way and 40 that came before it.
    expect(wait).toMatchObject({ kind: 'wait', place: 1, predictedEndMs: expect.closeTo(121, 0) as number });
    const next = bench.at(40, { kind: 'loaded', gpu: 0, functionIndex: first });
    expect(next.filter(({ kind }) => kind === 'load')).toMatchObject([{ invocation: 2, gpu: 1 }]);
    const last = bench.at(80, { kind: 'loaded', gpu: 1, functionIndex: sooner });
    expect(last.filter(({ kind }) => kind === 'load')).toMatchObject([{ invocation: 1, gpu: 0 }]);
  });

  test('of a switch that carries two of them are taken at once', () => {
    const bench = new Bench(best, { gpus: 2, uplinkBytesPerMs: 1.5 });
    const [first, second] = [bench.add({ layers: [40] }, {}, 0), bench.add({ layers: [40] }, {}, 1)];
    bench.at(0, arrival(0, first));
    expect(kinds(bench.at(1, arrival(1, second)))).toContain('load');
  });

  test('that a call waits for go to the earlier deadline, however much its GPU has run', () => {
    const bench = new Bench(best, { gpus: 4 });
    const warm = bench.add({ layers: [1] }, { sloMs: 10_000 }, 0);
    const [lending, sooner, later] = [bench.add(shape, {}, 0), bench.add(shape, {}, 0), bench.add(shape, {}, 2)];
    bench.visit(0, 0, warm);
    for (let call = 0; call < 20; call++) bench.at(100, arrival(call, warm));
    for (let call = 0; call < 20; call++) bench.at(110 + 10 * call, finished(call));
    bench.at(400, arrival(0, lending));
    bench.at(401, arrival(1, sooner));
    bench.at(402, arrival(2, later));
    const next = bench.at(420, { kind: 'loaded', gpu: 0, functionIndex: lending });
    expect(next.filter(({ kind }) => kind === 'load')).toMatchObject([{ invocation: 1, gpu: 0 }]);
  });

  test('do not put a run off for what their neighbours might carry', () => {
    const bench = new Bench(best, { gpus: 2, uplinkBytesPerMs: 1.5, capacityBytes: 10_000 });
    const [before, cold] = [bench.add({ layers: [5000] }, { sloMs: 1e6 }, 1), bench.add({ layers: [40] }, {}, 0)];
    bench.at(0, arrival(0, before));
    bench.at(5000, { kind: 'loaded', gpu: 1, functionIndex: before });
    // The other link was busy until now. 40 ms of loading and 1 behind it, of which 10 can be hidden.
    expect(bench.at(5001, arrival(1, cold))).toContainEqual({ kind: 'wake', atMs: 5001 + 41 - 10 });
  });

  test('go to a call that waits too long at one GPU although another GPU has calls on time', () => {
    const bench = new Bench({ ...best, waitBoundMs: 200 }, { gpus: 2, capacityBytes: 10_000, uplinkBytesPerMs: 1 });
    const others = Array.from({ length: 100 }, () => bench.add({ layers: [40] }, { sloMs: 150 }, 0));
    const late = [bench.add({ layers: [40] }, { sloMs: 20 }, 1), bench.add({ layers: [40] }, { sloMs: 20 }, 1)];
    let next = 0;
    const call = (nowMs: number): readonly Action[] => bench.at(nowMs, arrival(next, others[next++]!));
    let actions = call(0);
    for (const [index, functionIndex] of late.entries()) bench.at(0, arrival(200 + index, functionIndex));
    const loadedMs: number[] = [];
    // Two calls for each load that the switch can carry: some of GPU 0 are on time at any instant.
    for (let nowMs = 0; nowMs < 2000 && loadedMs.length < 2; nowMs += 40) {
      const { invocation, gpu, functionIndex } = actions.find((action) => action.kind === 'load')!;
      if (invocation >= 200) loadedMs.push(nowMs);
      call(nowMs + 1);
      call(nowMs + 2);
      bench.at(nowMs + 31, { kind: 'wake' });
      actions = bench.at(nowMs + 40, { kind: 'loaded', gpu, functionIndex });
      bench.at(nowMs + 41, finished(invocation));
    }
    // The first was on time when the switch was busy, and the most urgent; the second gets one turn in `overdueShare`.
    expect(loadedMs).toEqual([40, 40 * (2 + overdueShare)]);
  });
});

/** Of each of two GPUs on a switch at its end, after loads of so many of the last 1000 ms over the link of the second. */
const prices = (busyMs: number, lenders: OfferShape['lenders'], lost: readonly number[]): [number, number] => {
  const links = new LinkLanes(smallGpus(4, 100, 1.5));
  for (const gpu of lost) links.setUp(gpu, false);
  const [way] = waysOf(3, undefined);
  links.occupy(way, 0, 1000 - busyMs);
  links.release(way, 1000);
  return [links.price(waysOf(2, lenders), 1000), links.price(waysOf(3, lenders), 1000)];
};

describe('what a load costs the loads of others', () => {
  test.each([100, 400, 900])(
    'goes by its own link, and by those of its switch once its lender is lost (busy for %i ms)',
    (busyMs) => {
      const [idle, busy] = prices(busyMs, acrossSwitches, []);
      expect(idle).toBe(0);
      expect(busy).toBeGreaterThan(0);
      // GPU 1 lends to GPU 3, whose neighbour is idle; and one that never had a lender is not worse off than it was.
      expect(prices(busyMs, acrossSwitches, [1])).toEqual([0, busy]);
      expect(prices(busyMs, undefined, [0, 1])).toEqual([0, busy]);
      expect(prices(busyMs, acrossSwitches, [0])).toEqual([busy * (1 + busy), busy]);
    },
  );

  test('is nothing beside a GPU of its switch that is lost as well', () => {
    expect(prices(400, acrossSwitches, [0, 3])[0]).toBe(0);
  });
});
