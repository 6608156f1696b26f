import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { planAlgorithm2 } from '../../../test/support/chrion-algorithm2.ts';
import { anyLiveGraph, carriedOutMs, liveStack } from '../../../test/support/graph-profiles.ts';
import { resolveEdges, type GraphProfile, type OperatorEdge } from '../../profile/index.ts';
import { planChrion, planCpuOnly, planGpuOnly, planMemoryOptimal, type ChrionPlan } from './index.ts';

const bytes = { input: 0, output: 1000, ephemeral: 0, weights: 0 };

/** Operators of 1 ms on the CPU; those in `gpu` take 1 ms on the GPU and are too slow for the CPU. */
function graph(
  names: string,
  { gpu = '', edges, callMs, copyMs = 0 }: { gpu?: string; edges: readonly string[]; callMs: number; copyMs?: number },
): GraphProfile {
  return {
    unit: 'ms',
    nodes: Array.from(names, (name) => ({
      name,
      gpu: gpu.includes(name) ? 1 : null,
      cpu: [gpu.includes(name) ? 1000 : 1],
      bytes,
    })),
    edges: edges.map(([from = '', to = '', value]): OperatorEdge =>
      value === undefined ? [from, to, 0] : [from, to, 0, value],
    ),
    bandwidth: 1,
    latency: copyMs,
    callMs,
  };
}

/** A, then B and C, on two cores that do not slow each other down. */
function onTwoCores(callMs: number): GraphProfile {
  const nodes = Array.from('ABC', (name) => ({ name, gpu: null, cpu: [1, 1], bytes }));
  const edges: OperatorEdge[] = [
    ['A', 'B', 0],
    ['A', 'C', 0],
  ];
  return { unit: 'ms', nodes, edges, bandwidth: 1, latency: 0, callMs };
}

function callsOf({ segments }: ChrionPlan): string {
  return segments.map(({ operators }) => operators.join('')).join(' ');
}

describe('operators of one core', () => {
  test('operators of one core are one call if nothing has to come or leave in between', () => {
    const plan = planChrion(graph('ABC', { edges: ['AB', 'BC'], callMs: 0.5 }), { alpha: 0 });
    expect(callsOf(plan)).toBe('ABC');
    expect(plan.latencyMs).toBe(3.5);
    expect(plan.segments).toEqual([{ core: 1, operators: ['A', 'B', 'C'], startMs: 0, endMs: 3.5 }]);
    expect(plan.operators.map(({ startMs }) => startMs)).toEqual([0.5, 1.5, 2.5]);
  });

  test('operators of one core are two calls if the GPU waits for the first and a call costs less than the wait', () => {
    // A and B on the core; G on the GPU needs only A, and Z at the end needs both.
    const edges = ['AG', 'AB', 'GH', 'HZ', 'BZ'];
    const cheap = planChrion(graph('ABGHZ', { gpu: 'GHZ', edges, callMs: 0.25 }), { alpha: 0 });
    expect(callsOf(cheap)).toBe('A B');
    expect(cheap.latencyMs).toBe(1.25 + 3);
    const dear = planChrion(graph('ABGHZ', { gpu: 'GHZ', edges, callMs: 4 }), { alpha: 0 });
    expect(callsOf(dear)).toBe('AB');
    expect(dear.latencyMs).toBe(4 + 2 + 3);
  });

  test('operators of one core are never one call if the second waits for the GPU, which waits for the first', () => {
    const plan = planChrion(graph('AGB', { gpu: 'G', edges: ['AG', 'GB', 'AB'], callMs: 100 }), { alpha: 0 });
    expect(callsOf(plan)).toBe('A B');
  });

  test('operators of one core stay together on a core if a call elsewhere would cost more than waiting', () => {
    expect(planChrion(onTwoCores(0.25), { alpha: 0 })).toMatchObject({ cores: 2, latencyMs: 2.5 });
    expect(planChrion(onTwoCores(4), { alpha: 0 }).latencyMs).toBe(7);
  });
});

describe('a tensor that several operators take', () => {
  test('crosses to the CPU once, while separate tensors cross separately', () => {
    const shared = graph('GABZ', { gpu: 'G', edges: ['GAv', 'GBv', 'AZ', 'BZ'], callMs: 0, copyMs: 0.5 });
    const plan = planChrion(shared, { alpha: 0 });
    expect(plan.copies).toEqual([{ from: 'G', to: 'A', direction: 'to-cpu', startMs: 1, endMs: 1.5 }]);
    expect(plan.latencyMs).toBe(4.5);
    const apart = graph('GABZ', { gpu: 'G', edges: ['GAv', 'GBw', 'AZ', 'BZ'], callMs: 0, copyMs: 0.5 });
    expect(planChrion(apart, { alpha: 0 }).copies).toHaveLength(2);
  });

  test('crosses to the GPU once, and takes its memory there once', () => {
    const plan = planChrion(graph('AGH', { gpu: 'GH', edges: ['AGv', 'AHv'], callMs: 0, copyMs: 0.5 }), { alpha: 0 });
    expect(plan.copies).toEqual([{ from: 'A', to: 'G', direction: 'to-gpu', startMs: 1, endMs: 1.5 }]);
    expect(plan.gpuBytes).toBe(3000);
  });
});

/** GPU memory of a plan, operator by operator. */
function bytesBy(profile: GraphProfile, plan: ChrionPlan): number {
  const onGpu = new Set(plan.operators.filter(({ device }) => device === 'gpu').map(({ name }) => name));
  const nodes = profile.nodes.filter(({ name }) => onGpu.has(name));
  const weights = new Map(nodes.map((node) => [node.shares ?? `its own: ${node.name}`, node.bytes.weights]));
  let total = [...weights.values()].reduce((sum, size) => sum + size, 0);
  if (profile.activations === 'shared') return total;
  for (const node of nodes) total += node.bytes.output + node.bytes.ephemeral;
  const copied = new Map<number, number>();
  for (const { from, to, tensor } of resolveEdges(profile)) {
    const [maker, taker] = [profile.nodes[from], profile.nodes[to]];
    if (maker === undefined || taker === undefined) throw new Error('an edge leads nowhere');
    if (onGpu.has(taker.name) && !onGpu.has(maker.name)) copied.set(tensor, maker.bytes.output);
  }
  return [...copied.values()].reduce((sum, size) => sum + size, total);
}

function plansOf(profile: GraphProfile): ChrionPlan[] {
  const small = planMemoryOptimal(profile);
  const whole = planGpuOnly(profile);
  return [
    planChrion(profile, { alpha: 0 }),
    planChrion(profile, { alpha: 0.5 }),
    planAlgorithm2(profile, { alpha: 0 }),
    planCpuOnly(profile),
    ...(small === undefined ? [] : [small]),
    ...(whole === undefined ? [] : [whole]),
  ];
}

describe('every plan of any graph', () => {
  test('every plan of any graph can be carried out, and ends at its latency', () => {
    fc.assert(
      fc.property(anyLiveGraph(), (profile) => {
        for (const plan of plansOf(profile)) {
          expect(carriedOutMs(profile, plan)).toBe(plan.latencyMs);
        }
      }),
      { numRuns: 150 },
    );
  });

  test('every plan of any graph has each operator in one place, after its inputs, and calls in sequence on their cores', () => {
    fc.assert(
      fc.property(anyLiveGraph(), (profile) => {
        for (const plan of plansOf(profile)) {
          const onGpu = plan.operators.filter(({ device }) => device === 'gpu').map(({ name }) => name);
          const placed = [...onGpu, ...plan.segments.flatMap(({ operators }) => operators)];
          expect(placed.toSorted()).toEqual(profile.nodes.map(({ name }) => name).toSorted());
          const place = new Map(plan.operators.map(({ name }, index) => [name, index]));
          const order = profile.nodes.map(({ name }) => place.get(name) ?? -1);
          for (const [from, to] of profile.edges) expect(order[Number(from)]).toBeLessThan(order[Number(to)] ?? -1);
          const freeMs = new Map<number, number>();
          for (const { core, startMs, endMs } of plan.segments) {
            expect(core).toBeLessThanOrEqual(plan.cores);
            expect(startMs).toBeGreaterThanOrEqual(freeMs.get(core) ?? 0);
            freeMs.set(core, endMs);
          }
          for (const name of onGpu) expect(profile.nodes.find((node) => node.name === name)?.gpu).not.toBeNull();
        }
      }),
      { numRuns: 100 },
    );
  });

  test('every plan of any graph counts the memory of its operators, shared weights and copied tensors once', () => {
    fc.assert(
      fc.property(anyLiveGraph(), (profile) => {
        for (const plan of plansOf(profile)) expect(plan.gpuBytes).toBe(bytesBy(profile, plan));
      }),
      { numRuns: 100 },
    );
  });

  test('every plan of any graph is no slower than with each operator in its own call', () => {
    fc.assert(
      fc.property(anyLiveGraph(), (profile) => {
        for (const plan of plansOf(profile)) {
          const segments = plan.segments.flatMap((segment) =>
            segment.operators.map((name) => ({ ...segment, operators: [name] })),
          );
          expect(plan.latencyMs).toBeLessThanOrEqual(carriedOutMs(profile, { ...plan, segments }));
        }
      }),
      { numRuns: 100 },
    );
  });

  test('every plan of any graph of lowest latency is no slower than the GPU, the CPU or the paper’s choice', () => {
    fc.assert(
      fc.property(anyLiveGraph(), (profile) => {
        const { latencyMs } = planChrion(profile, { alpha: 0 });
        expect(latencyMs).toBeLessThanOrEqual(planGpuOnly(profile)?.latencyMs ?? Infinity);
        expect(latencyMs).toBeLessThanOrEqual(planCpuOnly(profile).latencyMs);
        expect(latencyMs).toBeLessThanOrEqual(planAlgorithm2(profile, { alpha: 0 }).latencyMs);
        expect(planMemoryOptimal(profile)?.gpuBytes).toBeLessThanOrEqual(planChrion(profile, { alpha: 0 }).gpuBytes);
      }),
      { numRuns: 100 },
    );
  });
});

/** The fastest of all ways to cut the cores' operators into calls; for few operators. */
function fastestCallsMs(profile: GraphProfile, plan: ChrionPlan): number {
  const byCore = new Map<number, string[]>();
  for (const { core, operators } of plan.segments) byCore.set(core, [...(byCore.get(core) ?? []), ...operators]);
  const places = [...byCore].flatMap(([core, names]) =>
    names.map((name, index) => ({ core, name, isFirst: index === 0 })),
  );
  const free = places.filter(({ isFirst }) => !isFirst).length;
  let bestMs = Infinity;
  for (let cuts = 0; cuts < 2 ** free; cuts++) {
    const segments: { core: number; operators: string[]; startMs: number; endMs: number }[] = [];
    let bit = 0;
    for (const { core, name, isFirst } of places) {
      const isCut = isFirst || (cuts & (1 << bit++)) !== 0;
      if (isCut) segments.push({ core, operators: [name], startMs: 0, endMs: 0 });
      else segments.at(-1)?.operators.push(name);
    }
    try {
      bestMs = Math.min(bestMs, carriedOutMs(profile, { ...plan, segments }));
    } catch {
      // A deadlock: these calls wait for each other.
    }
  }
  return bestMs;
}

test('over many small graphs, calls are within 2% of the fastest ones', () => {
  let ratios = 0;
  let count = 0;
  fc.assert(
    fc.property(anyLiveGraph({ operators: 9, cores: 2 }), (profile) => {
      const plan = planCpuOnly(profile);
      const bestMs = fastestCallsMs(profile, plan);
      expect(plan.latencyMs).toBeGreaterThanOrEqual(bestMs);
      ratios += plan.latencyMs / bestMs;
      count++;
    }),
    { numRuns: 150, seed: 8 },
  );
  expect(ratios / count).toBeLessThan(1.02);
});

test('a layer on the CPU leaves no weights on the GPU, a divided one leaves them all', () => {
  const profile = liveStack({ layers: 3, cells: 4, gpuMs: 0.1, cpuMs: 0.2, callMs: 0.02 });
  const plan = planChrion(profile, { alpha: 0 });
  const layers = new Set(plan.operators.filter(({ device }) => device === 'gpu').map(({ name }) => name.split('/')[0]));
  expect(plan.gpuBytes).toBe(layers.size * 8e6);
  expect(planGpuOnly(profile)?.gpuBytes).toBe(24e6);
});

test('10,000 operators with call costs are planned for one alpha', () => {
  const profile = liveStack({ layers: 100, cells: 100, gpuMs: 0.05, cpuMs: 0.06, callMs: 0.05 });
  expect(planChrion(profile, { alpha: 0.01 }).operators).toHaveLength(10_000);
});
