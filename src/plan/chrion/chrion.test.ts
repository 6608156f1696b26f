import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { planAlgorithm2 } from '../../../test/support/chrion-algorithm2.ts';
import table6 from '../../../test/reference/chrion-table6.json' with { type: 'json' };
import { lstmCells, lstmContextBytes } from '../../../test/support/lstm-cells.ts';
import type { GraphProfile, OperatorEdge } from '../../profile/index.ts';
import { planChrion, planCpuOnly, planGpuOnly, planMemoryOptimal, type ChrionPlan } from './index.ts';

const none = { input: 0, output: 0, ephemeral: 0, weights: 0 };

/** A graph from [name, GPU ms, CPU ms on one core] and edges of names; every copy takes `copyMs`. */
function graph(
  nodes: readonly (readonly [name: string, gpu: number | null, cpu: number])[],
  edges: readonly (readonly [string, string])[],
  { copyMs = 0, cores = 1, bytes = none }: { copyMs?: number; cores?: number; bytes?: typeof none } = {},
): GraphProfile {
  return {
    unit: 'ms',
    nodes: nodes.map(([name, gpu, cpu]) => ({ name, gpu, cpu: Array.from({ length: cores }, () => cpu), bytes })),
    edges: edges.map(([from, to]): OperatorEdge => [from, to, 0]),
    bandwidth: 1,
    latency: copyMs,
  };
}

function orderOf(plan: ChrionPlan): string {
  return plan.operators.map(({ name }) => name).join('');
}

function mustBe(plan: ChrionPlan | undefined): ChrionPlan {
  if (plan === undefined) throw new Error('expected a plan');
  return plan;
}

/** Checks that each device does one thing at a time, and nothing before its inputs. */
function expectPossible(profile: GraphProfile, plan: ChrionPlan): void {
  const tolerance = 1e-9 * Math.max(plan.latencyMs, 1);
  const placed = new Map(plan.operators.map((operator) => [operator.name, operator]));
  expect(placed.size).toBe(profile.nodes.length);
  const lanes = new Map<number, { startMs: number; endMs: number }[]>();
  const occupy = (lane: number, span: { startMs: number; endMs: number }): void => {
    lanes.set(lane, [...(lanes.get(lane) ?? []), span]);
  };
  for (const node of profile.nodes) {
    const operator = placed.get(node.name);
    expect(operator).toBeDefined();
    if (operator === undefined) return;
    const takesMs = operator.device === 'gpu' ? node.gpu : node.cpu[plan.cores - 1];
    expect(Math.abs(operator.endMs - operator.startMs - (takesMs ?? Number.NaN))).toBeLessThanOrEqual(tolerance);
    expect(operator.core ?? 0).toBeLessThanOrEqual(plan.cores);
    occupy(operator.core ?? 0, operator);
  }
  for (const copy of plan.copies) occupy(0, copy);
  for (const spans of lanes.values()) {
    spans.sort((a, b) => a.startMs - b.startMs || a.endMs - b.endMs);
    for (const [index, { startMs }] of spans.entries()) {
      expect(startMs).toBeGreaterThanOrEqual((spans[index - 1]?.endMs ?? 0) - tolerance);
    }
  }
  const nameOf = (end: string | number): string => (typeof end === 'string' ? end : (profile.nodes[end]?.name ?? ''));
  const copies = new Map<string, ChrionPlan['copies'][number][]>();
  for (const copy of plan.copies) {
    const key = `${copy.from} ${copy.to}`;
    copies.set(key, [...(copies.get(key) ?? []), copy]);
  }
  for (const [fromEnd, toEnd] of profile.edges) {
    const from = placed.get(nameOf(fromEnd));
    const to = placed.get(nameOf(toEnd));
    if (from === undefined || to === undefined) throw new Error('an operator of an edge was not placed');
    // If both run on one side, nothing is copied.
    const copy = from.device === to.device ? undefined : copies.get(`${from.name} ${to.name}`)?.shift();
    const direction = to.device === 'gpu' ? 'to-gpu' : 'to-cpu';
    expect(copy?.direction).toBe(from.device === to.device ? undefined : direction);
    expect(copy?.startMs ?? Infinity).toBeGreaterThanOrEqual(from.endMs - tolerance);
    expect(to.startMs).toBeGreaterThanOrEqual((copy?.endMs ?? from.endMs) - tolerance);
  }
  expect([...copies.values()].flat()).toEqual([]);
  expect(plan.latencyMs).toBeCloseTo(Math.max(...plan.operators.map(({ endMs }) => endMs)), 9);
}

/** GPU memory by Equation 4, as a second implementation. */
function equation4(profile: GraphProfile, plan: ChrionPlan): number {
  const onGpu = new Set(plan.operators.filter(({ device }) => device === 'gpu').map(({ name }) => name));
  const node = (end: string | number): GraphProfile['nodes'][number] =>
    profile.nodes.find(({ name }, index) => end === name || end === index) as GraphProfile['nodes'][number];
  const own = profile.nodes
    .filter(({ name }) => onGpu.has(name))
    .reduce((sum, { bytes }) => sum + bytes.output + bytes.ephemeral + bytes.weights, 0);
  const copied = profile.edges
    .filter(([from, to]) => onGpu.has(node(to).name) && !onGpu.has(node(from).name))
    .reduce((sum, [from]) => sum + node(from).bytes.output, 0);
  return own + copied;
}

describe('the order of placement', () => {
  // Two branches of two operators between a first and a last one.
  const nodes = ['A', 'B', 'C', 'D', 'E', 'F'].map((name) => [name, 1, 1] as const);
  const edges = [['A', 'B'], ['A', 'C'], ['B', 'D'], ['C', 'E'], ['D', 'F'], ['E', 'F']] as const; // prettier-ignore

  test('the order of placement is breadth-first if execution outweighs copies', () => {
    expect(orderOf(planChrion(graph(nodes, edges, { copyMs: 0.5 }), { alpha: 0 }))).toBe('ABCDEF');
  });

  test('the order of placement follows a branch if copies outweigh execution', () => {
    expect(orderOf(planChrion(graph(nodes, edges, { copyMs: 2 }), { alpha: 0 }))).toBe('ABDCEF');
  });

  test('the order of placement merges an operator that takes two tensors of one other', () => {
    const twice = [...edges, ['B', 'D']] as const;
    expect(orderOf(planChrion(graph(nodes, twice, { copyMs: 2 }), { alpha: 0 }))).toBe('ABDCEF');
  });
});

describe('device selection', () => {
  test('device selection runs independent operators in parallel', () => {
    const plan = planChrion(graph([['A', 4, 5], ['B', 4, 5], ['C', 4, 5]], [], { cores: 2 }), { alpha: 0 }); // prettier-ignore
    expect(plan).toMatchObject({ latencyMs: 5, cores: 2 });
  });

  test('device selection keeps a chain together if copies are expensive', () => {
    const plan = planChrion(graph([['A', 1, 9], ['B', 1, 0.5], ['C', 1, 9]], [['A', 'B'], ['B', 'C']], { copyMs: 1 }), { alpha: 0 }); // prettier-ignore
    expect(plan).toMatchObject({ latencyMs: 3, cores: 0, copies: [] });
  });

  test('device selection counts a copy as GPU time', () => {
    // The GPU cannot run B: A ends at 1, its copy at 3, and C waits for the copy although it does not need it.
    const profile = graph([['A', 1, 50], ['B', null, 1], ['C', 1, 50]], [['A', 'B']], { copyMs: 2 }); // prettier-ignore
    const plan = planChrion(profile, { alpha: 0 });
    expect(plan.operators.map(({ name, startMs }) => `${name}${startMs}`)).toEqual(['A0', 'B3', 'C3']);
    expect(plan.copies).toEqual([{ from: 'A', to: 'B', direction: 'to-cpu', startMs: 1, endMs: 3 }]);
  });

  test('device selection puts an operator that the GPU cannot run on the CPU', () => {
    const profile = graph([['A', 1, 5], ['B', null, 5], ['C', 1, 5]], [['A', 'B'], ['B', 'C']], { copyMs: 0.1 }); // prettier-ignore
    const plan = planChrion(profile, { alpha: 0 });
    expect(plan.operators.map(({ device }) => device)).toEqual(['gpu', 'cpu', 'gpu']);
    expect(planGpuOnly(profile)).toBeUndefined();
    expect(() => planChrion(profile, { alpha: 0, cores: 0 })).toThrow("operator 'B' cannot run on the GPU");
    expect(planMemoryOptimal(profile)?.latencyMs).toBeLessThanOrEqual(plan.latencyMs);
  });

  test('device selection weighs memory by alpha', () => {
    const bytes = { ...none, weights: 10e6 };
    const profile = graph([['A', 1, 4]], [], { bytes });
    expect(planChrion(profile, { alpha: 0.2 })).toMatchObject({ latencyMs: 1, gpuBytes: 10e6 });
    expect(planChrion(profile, { alpha: 0.4 })).toMatchObject({ latencyMs: 4, gpuBytes: 0, cores: 1 });
  });

  test('device selection refuses options out of range by name', () => {
    const profile = graph([['A', 1, 1]], []);
    expect(() => planChrion(profile, { alpha: -1 })).toThrow('alpha is -1');
    expect(() => planChrion(profile, { alpha: 0, cores: 2 })).toThrow(
      'cores is 2, but must be a whole number from 0 to 1',
    );
  });
});

function reductionPercent(reduced: number, whole: number): number {
  return (1 - reduced / whole) * 100;
}

describe('the rows of Table 6', () => {
  test('the rows of Table 6 have the reductions of their own megabytes and milliseconds, within 0.4 points', () => {
    for (const row of table6) {
      const pairs = [
        [row.latencyOptimalMemoryReductionPercent, row.latencyOptimalMegabytes, row.gpuMegabytes],
        [row.latencyOptimalLatencyReductionPercent, row.latencyOptimalMs, row.gpuMs],
        [row.memoryOptimalMemoryReductionPercent, row.memoryOptimalMegabytes, row.gpuMegabytes],
        [row.memoryOptimalLatencyReductionPercent, row.memoryOptimalMs, row.gpuMs],
      ] as const;
      for (const [printed, reduced, whole] of pairs) {
        expect(reduced === null).toBe(printed === null);
        expect(Math.abs(reductionPercent(reduced ?? whole, whole) - (printed ?? 0))).toBeLessThanOrEqual(0.4);
      }
    }
  });

  test.each(table6)('column $column: the GPU and the CPU alone are within 8%', (row) => {
    const profile = lstmCells(row);
    const gpu = mustBe(planGpuOnly(profile));
    expect(gpu.latencyMs / row.gpuMs).toBeGreaterThan(0.92);
    expect(gpu.latencyMs / row.gpuMs).toBeLessThan(1.08);
    const gpuMegabytes = (gpu.gpuBytes + lstmContextBytes) / 1e6;
    expect(Math.abs(gpuMegabytes / row.gpuMegabytes - 1)).toBeLessThan(0.01);
    const cpu = planCpuOnly(profile);
    expect(cpu.latencyMs / row.cpuMs).toBeGreaterThan(0.92);
    expect(cpu.latencyMs / row.cpuMs).toBeLessThan(1.08);
  });

  test.each(table6)(
    'column $column: never slower than the GPU, and less memory costs no more than its latency',
    (row) => {
      const profile = lstmCells(row);
      const gpu = mustBe(planGpuOnly(profile));
      const latencyOptimal = planChrion(profile, { alpha: 0 });
      const memoryOptimal = mustBe(planMemoryOptimal(profile));
      expect(latencyOptimal.latencyMs).toBeLessThanOrEqual(gpu.latencyMs);
      expect(memoryOptimal.latencyMs).toBeLessThanOrEqual(gpu.latencyMs);
      expect(memoryOptimal.gpuBytes).toBeLessThanOrEqual(latencyOptimal.gpuBytes);
      expect(memoryOptimal.gpuBytes).toBe(equation4(profile, memoryOptimal));
      expect(planAlgorithm2(profile, { alpha: 0 }).latencyMs).toBeGreaterThanOrEqual(latencyOptimal.latencyMs);
    },
  );

  test('the baseline split has its latency within 10% and its memory within 15%, on 8 cores', () => {
    const [baseline] = table6 as [(typeof table6)[number]];
    const plan = planAlgorithm2(lstmCells(baseline), { alpha: 0 });
    expect(plan.cores).toBe(8);
    expect(Math.abs(plan.latencyMs / baseline.latencyOptimalMs - 1)).toBeLessThan(0.1);
    const megabytes = (plan.gpuBytes + lstmContextBytes) / 1e6;
    expect(Math.abs(megabytes / baseline.latencyOptimalMegabytes - 1)).toBeLessThan(0.15);
    expectPossible(lstmCells(baseline), plan);
  });
});

test.each([
  { layers: 12, batch: 8, ioSize: 64, sequence: 96 },
  { layers: 12, batch: 8, ioSize: 32, sequence: 96 },
  { layers: 12, batch: 8, ioSize: 64, sequence: 64 },
])('memory falls and latency rises with alpha, for $sequence steps of $ioSize features', (shape) => {
  const profile = lstmCells(shape);
  const plans = Array.from({ length: 6 }, (_, step) => planChrion(profile, { alpha: step * 0.02 }));
  expect(plans.map(({ gpuBytes }) => gpuBytes)).toEqual(
    plans.map(({ gpuBytes }) => gpuBytes).toSorted((a, b) => b - a),
  );
  expect(plans.map(({ latencyMs }) => latencyMs)).toEqual(
    plans.map(({ latencyMs }) => latencyMs).toSorted((a, b) => a - b),
  );
  expect(new Set(plans.map(({ gpuBytes }) => gpuBytes)).size).toBeGreaterThan(1);
});

test('10,000 operators are planned over all numbers of cores', () => {
  const profile = lstmCells({ layers: 100, batch: 8, ioSize: 64, sequence: 100 });
  expect(planChrion(profile, { alpha: 0.3 }).operators).toHaveLength(10_000);
});

/** Graphs without cycles: every edge leads to a later operator. */
const anyGraph = fc.integer({ min: 1, max: 12 }).chain((count) => {
  const time = fc.double({ min: 0.01, max: 10, noNaN: true });
  const size = fc.integer({ min: 0, max: 20e6 });
  const cores = 3;
  const node = fc.record({
    gpu: time,
    cpu: fc.array(time, { minLength: cores, maxLength: cores }),
    bytes: fc.record({ input: size, output: size, ephemeral: size, weights: size }),
  });
  const edge = fc.tuple(fc.nat(count - 1), fc.nat(count - 1), size);
  return fc
    .record({
      nodes: fc.array(node, { minLength: count, maxLength: count }),
      edges: fc.array(edge, { maxLength: 3 * count }),
      bandwidth: fc.double({ min: 0.5, max: 50, noNaN: true }),
      latency: fc.double({ min: 0, max: 3, noNaN: true }),
    })
    .map(({ nodes, edges, bandwidth, latency }): GraphProfile => {
      const named = nodes.map(({ gpu, cpu, bytes }, index) => ({ name: `n${index}`, gpu, cpu, bytes }));
      const forward = edges
        .filter(([from, to]) => from !== to)
        .map(([from, to, bytes]): OperatorEdge => [Math.min(from, to), Math.max(from, to), bytes]);
      return { unit: 'ms', nodes: named, edges: forward, bandwidth, latency };
    });
});

describe('properties', () => {
  test('a plan breaks no dependency, and its memory is that of Equation 4', () => {
    fc.assert(
      fc.property(
        anyGraph,
        fc.constantFrom(0, 0.05, 0.3, 1),
        fc.integer({ min: 0, max: 3 }),
        (profile, alpha, cores) => {
          for (const plan of [planChrion(profile, { alpha, cores }), planAlgorithm2(profile, { alpha, cores })]) {
            expectPossible(profile, plan);
            expect(plan.cores).toBeLessThanOrEqual(cores);
            expect(plan.gpuBytes).toBeCloseTo(equation4(profile, plan), 3);
          }
        },
      ),
    );
  });

  test('the latency-optimal plan is never slower than GPU or CPU alone, the memory-optimal one never larger than it nor slower than the GPU', () => {
    fc.assert(
      fc.property(anyGraph, (profile) => {
        const gpu = mustBe(planGpuOnly(profile));
        const fastest = planChrion(profile, { alpha: 0 });
        const smallest = mustBe(planMemoryOptimal(profile));
        expectPossible(profile, fastest);
        expectPossible(profile, smallest);
        expect(fastest.latencyMs).toBeLessThanOrEqual(Math.min(gpu.latencyMs, planCpuOnly(profile).latencyMs));
        expect(smallest.latencyMs).toBeLessThanOrEqual(gpu.latencyMs);
        expect(smallest.gpuBytes).toBeLessThanOrEqual(fastest.gpuBytes);
      }),
    );
  });

  test('a larger alpha never needs more memory, is never faster, and costs no more than another plan', () => {
    const alphas = fc.array(fc.double({ min: 0, max: 3, noNaN: true }), { minLength: 2, maxLength: 6 });
    fc.assert(
      fc.property(anyGraph, alphas, (profile, unsorted) => {
        const plans = unsorted.toSorted((a, b) => a - b).map((alpha) => planChrion(profile, { alpha }));
        for (const [index, plan] of plans.entries()) {
          const next = plans[index + 1] ?? plan;
          expect(next.gpuBytes).toBeLessThanOrEqual(plan.gpuBytes);
          expect(next.latencyMs).toBeGreaterThanOrEqual(plan.latencyMs);
          const cost = ({ latencyMs, gpuBytes }: ChrionPlan): number => latencyMs + plan.alpha * (gpuBytes / 1e6);
          for (const other of plans) expect(cost(plan)).toBeLessThanOrEqual(cost(other) * (1 + 1e-12));
        }
      }),
    );
  });

  test('a plan is the same whatever was planned from its profile before', () => {
    const plans = [
      (profile: GraphProfile) => planChrion(profile, { alpha: 0.3 }),
      (profile: GraphProfile) => planAlgorithm2(profile, { alpha: 0.1, cores: 2 }),
      (profile: GraphProfile) => planMemoryOptimal(profile),
      planCpuOnly,
      planGpuOnly,
    ];
    fc.assert(
      fc.property(anyGraph, fc.shuffledSubarray(plans, { minLength: plans.length }), (profile, order) => {
        for (const plan of order) expect(plan(profile)).toEqual(plan({ ...profile }));
      }),
      { numRuns: 30 },
    );
  });

  test('a latency limit is kept, or reported as impossible', () => {
    fc.assert(
      fc.property(anyGraph, fc.double({ min: 0.5, max: 2, noNaN: true }), (profile, factor) => {
        const fastestMs = planChrion(profile, { alpha: 0 }).latencyMs;
        const plan = planMemoryOptimal(profile, { latencyLimitMs: fastestMs * factor });
        expect(plan === undefined && factor >= 1).toBe(false);
        expect(plan?.latencyMs ?? 0).toBeLessThanOrEqual(fastestMs * factor);
      }),
    );
  });
});
