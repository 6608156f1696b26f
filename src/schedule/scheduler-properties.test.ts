/** The scheduler under generated operations, watched by a plain model (test/support/scheduler-model.ts). */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { gpuOffer, smallGpus, type OfferShape } from '../../test/support/offers.ts';
import { SchedulerModel } from '../../test/support/scheduler-model.ts';
import {
  admissions,
  borrowings,
  evictions,
  offloads,
  orders,
  routings,
  Scheduler,
  type OfferSheet,
  type Policy,
} from './index.ts';

const policy: fc.Arbitrary<Policy> = fc.record({
  routing: fc.constantFrom(...routings),
  eviction: fc.constantFrom(...evictions),
  offload: fc.constantFrom(...offloads),
  admission: fc.constantFrom(...admissions),
  order: fc.constantFrom(...orders),
  waitBoundMs: fc.constantFrom(5, 30, 100, 1000),
  loadAhead: fc.boolean(),
  borrow: fc.constantFrom(...borrowings),
  copyThreshold: fc.constantFrom(0, 1, 3, Infinity),
});

const shape = fc.record({
  layers: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 0, maxLength: 5 }),
  warmMs: fc.integer({ min: 1, max: 20 }),
  msPerByte: fc.constantFrom(0.1, 0.5, 2),
  hiding: fc.nat(5),
  lends: fc.boolean(),
  onGpu: fc.constantFrom(true, true, true, true, false),
  cpu: fc.option(fc.record({ latencyMs: fc.integer({ min: 1, max: 100 }), cores: fc.integer({ min: 1, max: 2 }) })),
  sloMs: fc.integer({ min: 5, max: 200 }),
  priority: fc.constantFrom(0, 0, 0, 1, 2),
  pinned: fc.constantFrom(false, false, false, false, true),
  /** Rungs below: each without one of the layers of the one before, at a warm latency and with cores of its own. */
  ladder: fc.array(fc.record({ drops: fc.nat(4), warmMs: fc.integer({ min: 1, max: 60 }), cores: fc.nat(2) }), {
    maxLength: 3,
  }),
});
type Shape = typeof shape extends fc.Arbitrary<infer Value> ? Value : never;

const functionCount = 6;
const operation = fc.oneof(
  { weight: 30, arbitrary: fc.record({ kind: fc.constant('arrive' as const), index: fc.nat(functionCount - 1) }) },
  {
    weight: 15,
    arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.double({ min: 0, max: 60, noNaN: true }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('change' as const), index: fc.nat(functionCount - 1), shape }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove' as const), index: fc.nat(functionCount - 1) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('gpu' as const), gpu: fc.nat(3), isUp: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('depart' as const), place: fc.nat(5) }) },
);

const scenario = fc.record({
  gpuCount: fc.integer({ min: 0, max: 4 }),
  capacityBytes: fc.integer({ min: 20, max: 150 }),
  cpuCores: fc.integer({ min: 1, max: 3 }),
  policy,
  shapes: fc.array(shape, { minLength: functionCount, maxLength: functionCount }),
  operations: fc.array(operation, { maxLength: 120, size: 'max' }),
  stretches: fc.array(fc.double({ min: 0.5, max: 3, noNaN: true }), { minLength: 1, maxLength: 10 }),
});
type Scenario = typeof scenario extends fc.Arbitrary<infer Value> ? Value : never;

function rungsBelow(
  layers: readonly number[],
  hiding: number,
  ladder: Shape['ladder'],
  rung = 1,
): OfferShape | undefined {
  const [next, ...rest] = ladder;
  if (next === undefined || layers.length === 0) return undefined;
  const left = layers.toSpliced(next.drops % layers.length, 1);
  const { warmMs, cores } = next;
  const smaller = rungsBelow(left, hiding, rest, rung + 1);
  return {
    plan: `rung ${rung}`,
    layers: left,
    warmMs,
    cores,
    hidingPrefix: Math.min(hiding, left.length),
    ...(smaller && { smaller }),
  };
}

function sheetOf(
  gpuCount: number,
  { lends, hiding, onGpu, cpu, sloMs, priority, pinned, ladder, ...rest }: Shape,
): OfferSheet {
  const smaller = rungsBelow(rest.layers, hiding, ladder);
  const offerShape: OfferShape = {
    ...rest,
    ...(smaller && { plan: 'rung 0', smaller }),
    hidingPrefix: Math.min(hiding, rest.layers.length),
    lenders: (gpu) => (lends && gpuCount === 4 ? [(gpu + 2) % 4] : []),
  };
  const gpus = Array.from({ length: gpuCount }, (_, gpu) => (onGpu ? gpuOffer(gpu, offerShape) : null));
  return { gpus, cpu, sloMs, priority, pinned };
}

/** Runs it to the end; whatever is wrong throws on the way. */
function play({ gpuCount, capacityBytes, cpuCores, policy: chosen, shapes, operations, stretches }: Scenario) {
  let draws = 0;
  const gpus = smallGpus(gpuCount, capacityBytes);
  const stretch = (): number => stretches[draws++ % stretches.length]!;
  const model = new SchedulerModel({ gpus, policy: chosen, cpuCores, stretch });
  for (const [index, one] of shapes.entries()) model.setSheet(index, sheetOf(gpuCount, one));
  for (const next of operations) {
    switch (next.kind) {
      case 'arrive':
        if (model.has(next.index)) model.arrive(next.index);
        break;
      case 'pass':
        model.pass(next.ms);
        break;
      case 'change':
        model.setSheet(next.index, sheetOf(gpuCount, next.shape));
        break;
      case 'remove':
        if (model.has(next.index)) model.removeFunction(next.index);
        break;
      case 'gpu':
        if (next.gpu < gpuCount) model.setGpu(next.gpu, next.isUp);
        break;
      case 'depart':
        model.depart(next.place);
        break;
    }
  }
  model.drain();
  return { model, gpus };
}

test('memory is never exceeded, nothing in use goes, no bound is passed, and every arrival ends exactly once', () => {
  const seen = { shrinks: 0, evictions: 0 };
  fc.assert(
    fc.property(scenario, (given) => {
      const { model } = play(given);
      expect(model.ended).toBe(model.arrived);
      seen.shrinks += model.shrinks;
      seen.evictions += model.evictions;
    }),
    { numRuns: 800 },
  );
  // Or else the model has watched nothing.
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(0);
});

test('the same events give the same actions', () => {
  fc.assert(
    fc.property(scenario, (given) => {
      const { model, gpus } = play(given);
      const again = new Scheduler({ gpus, policy: given.policy, cpuCores: given.cpuCores });
      const log = model.told.map(({ event, nowMs }) => {
        const actions = again.handle(event, nowMs);
        return `${nowMs} ${JSON.stringify({ ...event, sheet: undefined })} => ${JSON.stringify(actions)}`;
      });
      expect(log).toEqual(model.log);
    }),
    { numRuns: 60 },
  );
});
