/** A function's plan variants: which one is loaded, what shrinks instead of being evicted, and when it grows back. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { gpuOffer, offerSheet, smallGpus, type OfferShape } from '../../test/support/offers.ts';
import { SchedulerModel } from '../../test/support/scheduler-model.ts';
import {
  policies,
  policyChoices,
  variantNamed,
  Scheduler,
  wholeBytes,
  type Action,
  type OfferSheet,
  type Policy,
  type SchedulerEvent,
} from './index.ts';
import { Variants } from './plan-variants.ts';

const lru: Policy = { ...policies.best, eviction: 'lru', routing: 'resident-first' };

/** 60, 40 and 20 bytes, each 10 ms slower than the one before. */
const variants: OfferShape = {
  plan: 'gpu',
  layers: [20, 20, 20],
  warmMs: 10,
  smaller: {
    plan: 'latency',
    layers: [20, 20],
    warmMs: 20,
    cores: 1,
    smaller: { plan: 'memory', layers: [20], warmMs: 30, cores: 2 },
  },
};

class Bench {
  readonly scheduler: Scheduler;
  nowMs = 0;
  #functions = 0;

  constructor(capacityBytes: number, policy: Policy = lru) {
    this.scheduler = new Scheduler({ gpus: smallGpus(1, capacityBytes), policy, cpu: null });
  }

  add(shape: OfferShape, rest: Partial<OfferSheet> = {}): number {
    const functionIndex = this.#functions++;
    this.tell({ kind: 'function-added', functionIndex, sheet: offerSheet(1, shape, rest) });
    return functionIndex;
  }

  tell(event: SchedulerEvent): readonly Action[] {
    return [...this.scheduler.handle(event, this.nowMs)];
  }

  arrive(functionIndex: number, invocation = 0): readonly Action[] {
    this.nowMs += 1000;
    return this.tell({ kind: 'arrival', invocation, functionIndex });
  }

  /** Invokes the function and carries out everything that follows. Returns all actions. */
  visit(functionIndex: number): readonly Action[] {
    const all = [...this.arrive(functionIndex)];
    for (let index = 0; index < all.length; index++) {
      const action = all[index]!;
      this.nowMs++;
      if (action.kind === 'load' || action.kind === 'grow' || (action.kind === 'run' && action.load !== null)) {
        all.push(...this.tell({ kind: 'loaded', gpu: 0, functionIndex: action.functionIndex }));
      }
      if (action.kind === 'run') all.push(...this.tell({ kind: 'finished', invocation: action.invocation }));
    }
    return all;
  }

  planOf(functionIndex: number): string | undefined {
    return this.scheduler.residentOffer(functionIndex, 0)?.plan;
  }
}

const told = (actions: readonly Action[]): readonly string[] =>
  actions.flatMap((action) => {
    switch (action.kind) {
      case 'run':
      case 'load':
        return [`${action.kind} ${action.functionIndex} ${action.plan}`];
      case 'grow':
      case 'shrink':
        return [`${action.kind} ${action.functionIndex} to ${action.plan}`];
      case 'evict':
        return [`evict ${action.functionIndex}`];
      default:
        return [];
    }
  });

describe('a load', () => {
  test('takes the largest plan that fits, as long as it meets the SLO', () => {
    const bench = new Bench(100);
    const [a, b] = [bench.add(variants), bench.add(variants)];
    expect(told(bench.visit(a))).toEqual([`load ${a} gpu`, `run ${a} gpu`]);
    // 40 bytes are left.
    expect(told(bench.visit(b))).toEqual([`load ${b} latency`, `run ${b} latency`]);
    expect(bench.scheduler.residentBytes(0)).toBe(100);
    expect(bench.visit(b)).toMatchObject([{ kind: 'run', plan: 'latency', start: 'warm' }]);
  });

  test('takes the largest plan when none meets the SLO, and evicts for it as without variants', () => {
    const bench = new Bench(60);
    const late = bench.add(variants, { sloMs: 5 });
    const other = bench.add({ layers: [30] });
    bench.visit(other);
    expect(told(bench.visit(late))).toEqual([`evict ${other}`, `load ${late} gpu`, `run ${late} gpu`]);
  });

  test('of a function whose large plans no GPU can hold takes one that can be held', () => {
    const bench = new Bench(50);
    const a = bench.add(variants, { sloMs: 5 });
    expect(told(bench.visit(a))).toEqual([`load ${a} latency`, `run ${a} latency`]);
    const huge = bench.add({ ...variants, layers: [200], smaller: { ...variants.smaller!, layers: [150] } });
    expect(told(bench.visit(huge))).toEqual([`evict ${a}`, `load ${huge} memory`, `run ${huge} memory`]);
  });
});

describe('room', () => {
  test('is made by shrinking the least recently used function only as far as needed, and nothing is evicted', () => {
    const bench = new Bench(130);
    const [a, b, c] = [bench.add(variants), bench.add(variants), bench.add({ layers: [20] })];
    bench.visit(a);
    bench.visit(b);
    // 10 bytes are free, 20 needed: a goes down one variant.
    expect(told(bench.visit(c))).toEqual([`shrink ${a} to latency`, `load ${c} undefined`, `run ${c} undefined`]);
    const d = bench.add({ layers: [50] });
    // 10 are free: a gives 20 more, and then b the other 20.
    expect(told(bench.visit(d))).toEqual([
      `shrink ${a} to memory`,
      `shrink ${b} to latency`,
      `load ${d} undefined`,
      `run ${d} undefined`,
    ]);
    expect([a, b].map((index) => bench.planOf(index))).toEqual(['memory', 'latency']);
    expect(bench.scheduler.residentBytes(0)).toBe(130);
  });

  test('goes two variants down at once where one is not enough', () => {
    const bench = new Bench(70);
    const [a, b] = [bench.add(variants), bench.add({ layers: [50] })];
    bench.visit(a);
    expect(told(bench.visit(b))).toEqual([`shrink ${a} to memory`, `load ${b} undefined`, `run ${b} undefined`]);
  });

  test('is not taken from a function that is pinned, runs, or would miss its SLO under the smaller plan', () => {
    for (const [rest, isRunning] of [
      [{ sloMs: 15 }, false],
      [{ pinned: true }, false],
      [{}, true],
    ] as const) {
      const bench = new Bench(100);
      const [kept, other, asks] = [bench.add(variants, rest), bench.add({ layers: [40] }), bench.add({ layers: [20] })];
      bench.visit(other);
      bench.visit(kept);
      if (isRunning) bench.arrive(kept, 7);
      bench.nowMs += 1000;
      expect(told(bench.tell({ kind: 'arrival', invocation: 1, functionIndex: asks }))[0]).toBe(`evict ${other}`);
      expect(bench.planOf(kept)).toBe('gpu');
    }
  });

  test('leads to evictions only when every function that can has shrunk, and then for the smallest plan', () => {
    const bench = new Bench(60);
    const [a, b, c, d] = [bench.add(variants), bench.add(variants), bench.add(variants), bench.add(variants)];
    bench.visit(a);
    expect(told(bench.visit(b))).toEqual([`shrink ${a} to latency`, `load ${b} memory`, `run ${b} memory`]);
    expect(told(bench.visit(c))).toEqual([`shrink ${a} to memory`, `load ${c} memory`, `run ${c} memory`]);
    expect(told(bench.visit(d))).toEqual([`evict ${a}`, `load ${d} memory`, `run ${d} memory`]);
  });

  test('is taken from another function when a tighter SLO forbids the shrink', () => {
    const bench = new Bench(120);
    const [a, b, c] = [bench.add(variants), bench.add(variants), bench.add({ layers: [20] })];
    bench.visit(a);
    bench.visit(b);
    bench.tell({ kind: 'sheet-changed', functionIndex: a, sheet: offerSheet(1, variants, { sloMs: 12 }) });
    expect(told(bench.visit(c))[0]).toBe(`shrink ${b} to latency`);
    // A variant that a looser SLO allows is found again.
    bench.tell({ kind: 'sheet-changed', functionIndex: a, sheet: offerSheet(1, variants, { sloMs: 25 }) });
    const [d, e] = [bench.add({ layers: [20] }), bench.add({ layers: [20] })];
    expect(new Set([told(bench.visit(d))[0], told(bench.visit(e))[0]])).toEqual(
      new Set([`shrink ${a} to latency`, `shrink ${b} to memory`]),
    );
  });
});

/** One function with 60 bytes of memory, shrunk to 20, with room again. */
function shrunkBench(times = 1): { bench: Bench; a: number } {
  const bench = new Bench(60);
  const a = bench.add(variants);
  bench.visit(a);
  for (let time = 0; time < times; time++) {
    const other = bench.add({ layers: [40] });
    for (let run = 0; bench.planOf(a) !== 'gpu' && run < 5000; run++) bench.visit(a);
    expect(told(bench.visit(other))[0]).toBe(`shrink ${a} to memory`);
    bench.tell({ kind: 'function-removed', functionIndex: other });
  }
  return { bench, a };
}

describe('growing', () => {
  test('happens beside a run under the smaller plan, once there is room, and delays no run', () => {
    const { bench, a } = shrunkBench();
    expect(told(bench.visit(a))).toEqual([`run ${a} memory`]);
    const actions = bench.arrive(a);
    expect(actions).toMatchObject([
      { kind: 'run', plan: 'memory', start: 'warm', load: null, predictedEndMs: bench.nowMs + 30 },
      { kind: 'grow', plan: 'gpu', load: { prefix: 0, way: { transfers: [{ link: 0, bytes: [40], ms: [40] }] } } },
    ]);
    expect(bench.scheduler.residentBytes(0)).toBe(60);
    bench.tell({ kind: 'finished', invocation: 0 });
    // A call that comes meanwhile runs as if nothing grew.
    expect(bench.tell({ kind: 'arrival', invocation: 1, functionIndex: a })).toMatchObject([
      { kind: 'run', plan: 'memory', start: 'warm' },
    ]);
    bench.tell({ kind: 'loaded', gpu: 0, functionIndex: a });
    bench.tell({ kind: 'finished', invocation: 1 });
    expect(told(bench.visit(a))).toEqual([`run ${a} gpu`]);
  });

  test('takes neither room that is in use nor a link that is busy', () => {
    const bench = new Bench(100);
    const [a, b, c] = [bench.add(variants), bench.add({ layers: [60] }), bench.add({ layers: [20] })];
    bench.visit(a);
    bench.visit(b);
    expect(bench.planOf(a)).toBe('latency');
    for (let run = 0; run < 5; run++) expect(told(bench.visit(a))).toEqual([`run ${a} latency`]);
    bench.tell({ kind: 'function-removed', functionIndex: b });
    expect(told(bench.arrive(c, 1))).toEqual([`load ${c} undefined`]);
    expect(told(bench.tell({ kind: 'arrival', invocation: 2, functionIndex: a }))).toEqual([`run ${a} latency`]);
  });

  test('waits for twice as many runs each time that the function was shrunk again', () => {
    const waits = [1, 2, 3, 4, 5].map((times) => {
      const { bench, a } = shrunkBench(times);
      let runs = 0;
      while (bench.planOf(a) !== 'gpu') {
        bench.visit(a);
        runs++;
      }
      // The function grows beside the run after those that it waits for.
      return runs - 1;
    });
    expect(waits).toEqual([1, 2, 4, 8, 16]);
  });

  test('is not done for a plan that is slower and takes as many cores', () => {
    const bench = new Bench(100);
    const slowAbove: OfferShape = { ...variants, warmMs: 40, cores: 1, smaller: { ...variants.smaller!, warmMs: 20 } };
    const [a, b] = [bench.add(slowAbove), bench.add({ layers: [60] })];
    bench.visit(b);
    bench.visit(a);
    bench.tell({ kind: 'function-removed', functionIndex: b });
    for (let run = 0; run < 5; run++) expect(told(bench.visit(a))).toEqual([`run ${a} latency`]);
  });

  test('evicts others for a function that would miss its SLO otherwise', () => {
    const bench = new Bench(80);
    const [a, b] = [bench.add(variants), bench.add({ layers: [60] })];
    bench.visit(a);
    bench.visit(b);
    expect(bench.planOf(a)).toBe('memory');
    bench.tell({ kind: 'sheet-changed', functionIndex: a, sheet: offerSheet(1, variants, { sloMs: 25 }) });
    expect(told(bench.visit(a))).toEqual([`run ${a} memory`, `evict ${b}`, `grow ${a} to latency`]);
    expect(bench.planOf(a)).toBe('latency');
  });

  test('that a lost GPU cuts off leaves nothing behind', () => {
    const { bench, a } = shrunkBench();
    bench.visit(a);
    expect(told(bench.arrive(a, 3))).toContain(`grow ${a} to gpu`);
    const lost = bench.tell({ kind: 'gpu-lost', gpu: 0 });
    expect(lost).toContainEqual({ kind: 'abandon', functionIndex: a, gpu: 0 });
    expect(lost).toContainEqual(
      expect.objectContaining({ kind: 'evict', functionIndex: a, bytes: 60, cause: 'gpu-lost' }),
    );
    expect(bench.scheduler.residentBytes(0)).toBe(0);
    bench.tell({ kind: 'gpu-back', gpu: 0 });
    expect(told(bench.visit(a))).toEqual([`load ${a} gpu`, `run ${a} gpu`]);
  });
});

describe('a sheet', () => {
  test('with new times keeps the variant; one without that plan drops it', () => {
    const bench = new Bench(40);
    const a = bench.add(variants);
    bench.visit(a);
    expect(bench.planOf(a)).toBe('latency');
    const faster: OfferShape = { ...variants, smaller: { ...variants.smaller!, warmMs: 12 } };
    expect(bench.tell({ kind: 'sheet-changed', functionIndex: a, sheet: offerSheet(1, faster) })).toEqual([]);
    expect(bench.arrive(a)).toMatchObject([{ kind: 'run', start: 'warm', predictedEndMs: bench.nowMs + 12 }]);
    bench.tell({ kind: 'finished', invocation: 0 });
    const without: OfferShape = { ...variants, smaller: variants.smaller!.smaller! };
    expect(bench.tell({ kind: 'sheet-changed', functionIndex: a, sheet: offerSheet(1, without) })).toMatchObject([
      { kind: 'evict', functionIndex: a, bytes: 40, cause: 'plan-changed' },
    ]);
  });

  test('with an invalid list of variants is refused by name', () => {
    const bench = new Bench(100);
    const { plan: _, ...nameless } = variants;
    expect(() => bench.add(nameless)).toThrow('a plan in the variants of function 0 has no name');
    expect(() => bench.add({ ...variants, smaller: { plan: 'gpu', layers: [1] } })).toThrow(
      "function 1 has two plans named 'gpu'",
    );
    expect(() => bench.add({ ...variants, smaller: { plan: 'larger', layers: [61] } })).toThrow(
      "plan 'larger' of function 2 keeps no less on the GPU than 'gpu', which is before it",
    );
    const shared = { base: 'base', layers: 1 };
    const [two, one] = [
      { layers: [30, 20], plan: 'two' },
      { layers: [30], plan: 'one' },
    ];
    expect(() => bench.add({ ...two, shared, smaller: one })).toThrow(
      "plan 'one' of function 3 shares other layers than the plan before it",
    );
    expect(() => bench.add({ ...two, shared, smaller: { ...one, shared } })).toThrow(
      "plan 'one' of function 4 has no layers beside those that it shares",
    );
  });
});

test('a plan of the variants is found by its name', () => {
  expect(wholeBytes(variantNamed(gpuOffer(0, variants), 'memory'))).toBe(20);
});

const on = (number: number) => ({ fn: { number }, gpu: { number: 0 } });

test('the wait before growing has a limit, so that a permanent change is followed in the end', () => {
  const variants = new Variants(1);
  for (let time = 0; time < 50; time++) variants.wasShrunk(on(3));
  let runs = 0;
  while (!variants.mayGrow(on(3))) runs++;
  expect(runs).toBe(1024);
  expect(variants.mayGrow(on(4))).toBe(true);
});

const variant = fc.record({ bytes: fc.integer({ min: 1, max: 15 }), warmMs: fc.integer({ min: 1, max: 40 }) });
const shapes = fc
  .array(fc.array(variant, { minLength: 1, maxLength: 4 }), { minLength: 6, maxLength: 6 })
  .map((variants) => variants.map(shapeOf));
const sloMs = 30;
/** A large function that comes and goes. */
const guest = 6;
const steps = fc.array(
  fc.oneof(
    {
      weight: 12,
      arbitrary: fc.record({
        kind: fc.constant('arrive' as const),
        functionIndex: fc.nat(guest),
        ms: fc.double({ min: 0, max: 80, noNaN: true }),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('come' as const, 'go' as const) }) },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant('change' as const),
        functionIndex: fc.nat(guest - 1),
        sloMs: fc.integer({ min: 5, max: 50 }),
        pinned: fc.constantFrom(false, false, false, true),
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('lose' as const, 'back' as const), gpu: fc.nat(1) }) },
  ),
  { maxLength: 150, size: 'max' },
);
type Step = typeof steps extends fc.Arbitrary<readonly (infer Value)[]> ? Value : never;
/** The GPUs stay up, and SLOs do not change. */
const calmSteps = steps.map((walk) => walk.filter(({ kind }) => ['arrive', 'come', 'go'].includes(kind)));

/** From the smallest up, each with one layer more and one core less. */
function shapeOf(variants: readonly { readonly bytes: number; readonly warmMs: number }[]): OfferShape {
  const listed = variants.reduce<OfferShape | undefined>((smaller, { bytes, warmMs }, index) => {
    const layers = [...(smaller?.layers ?? []), bytes];
    const cores = variants.length - index;
    return { plan: `variant ${cores}`, layers, warmMs, cores, ...(smaller && { smaller }) };
  }, undefined);
  return listed ?? { layers: [] };
}

const largestBytes = (shape: OfferShape): number => wholeBytes(gpuOffer(0, shape));

/** Bytes of the smallest plan that meets the SLO. */
function smallestBytes(shape: OfferShape): number {
  const top = gpuOffer(0, shape);
  let smallest = top;
  for (let { smaller } = top; smaller !== undefined; { smaller } = smaller)
    if (smaller.warmMs <= sloMs) smallest = smaller;
  return wholeBytes(smallest);
}

const total = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);

function play(
  capacityBytes: number,
  given: readonly OfferShape[],
  guestBytes: number,
  walk: readonly Step[],
  policy: Policy = lru,
): SchedulerModel {
  const model = new SchedulerModel({
    gpus: smallGpus(2, capacityBytes),
    policy,
    cpu: null,
    stretch: () => 1,
  });
  for (const [index, shape] of given.entries()) model.setSheet(index, offerSheet(2, shape, { sloMs }));
  for (const step of walk) {
    if (step.kind === 'come') model.setSheet(guest, offerSheet(2, { layers: [guestBytes] }, { sloMs }));
    else if (step.kind === 'go' && model.has(guest)) model.removeFunction(guest);
    else if (step.kind === 'change') {
      const { functionIndex, ...rest } = step;
      model.setSheet(functionIndex, offerSheet(2, given[functionIndex]!, rest));
    } else if (step.kind === 'lose' || step.kind === 'back') model.setGpu(step.gpu, step.kind === 'back');
    else if (step.kind === 'arrive') {
      if (model.has(step.functionIndex)) model.arrive(step.functionIndex);
      model.pass(step.ms);
    }
  }
  model.drain();
  return model;
}

describe('under generated operations', () => {
  test('a GPU that has room for every function under its largest plan shrinks and evicts nothing', () => {
    fc.assert(
      fc.property(shapes, calmSteps, (given, walk) => {
        const model = play(total(given.map(largestBytes)) + 40, given, 40, walk);
        expect([model.shrinks, model.growths, model.evictions]).toEqual([0, 0, 0]);
      }),
      { numRuns: 100 },
    );
  });

  test('one that has room for every function under the smallest plan that meets its SLO evicts nothing for a single caller', () => {
    let shrinks = 0;
    fc.assert(
      fc.property(shapes, calmSteps, (given, walk) => {
        // Functions that run, wait or are being loaded cannot shrink; here there is one invocation at a time.
        const alone = walk.map((step) => (step.kind === 'arrive' ? { ...step, ms: Infinity } : step));
        const model = play(total(given.map(smallestBytes)) + 20, given, 20, alone);
        expect(model.evictions).toBe(0);
        shrinks += model.shrinks;
      }),
      { numRuns: 100 },
    );
    expect(shrinks).toBeGreaterThan(0);
  });

  test('whatever comes and goes, the bytes are those of the resident variants, and every arrival ends', () => {
    const scale = fc.double({ min: 0.4, max: 1.2, noNaN: true });
    const policy = fc.record({
      base: fc.constantFrom<Policy>(policies.best, policies.best, policies.artifact),
      eviction: fc.constantFrom(...policyChoices.eviction),
    });
    let [shrinks, growths] = [0, 0];
    fc.assert(
      fc.property(shapes, steps, scale, policy, (given, walk, share, { base, eviction }) => {
        // The model refuses whatever does not add up.
        const bytes = Math.ceil(total(given.map(largestBytes)) * share) + 10;
        const model = play(bytes, given, 25, walk, { ...base, eviction });
        expect(model.ended).toBe(model.arrived);
        shrinks += model.shrinks;
        growths += model.growths;
      }),
      { numRuns: 250 },
    );
    // Otherwise the test has watched nothing.
    expect(Math.min(shrinks, growths)).toBeGreaterThan(0);
  });
});
