import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { anyLiveGraph, carriedOutMs, liveStack } from '../../../test/support/graph-profiles.ts';
import type { GraphProfile } from '../../profile/index.ts';
import { hybridPlanOf, planGpuOnly, planLadder, type ChrionPlan } from './index.ts';

/** Weights on the GPU: the names that operators share them under, or the operator's own name. */
function weightsOnGpu(profile: GraphProfile, plan: ChrionPlan): Set<string> {
  const onGpu = new Set(plan.operators.filter(({ device }) => device === 'gpu').map(({ name }) => name));
  const readers = profile.nodes.filter(({ name, shares, bytes }) => onGpu.has(name) && (shares ?? bytes.weights) !== 0);
  return new Set(readers.map(({ name, shares }) => shares ?? `its own: ${name}`));
}

function layersOf(profile: GraphProfile, plan: ChrionPlan): string {
  const layers = [...weightsOnGpu(profile, plan)].map((name) => Number(name.slice('layer'.length)));
  return layers.sort((a, b) => a - b).join(' ');
}

// A layer takes 0.8 ms on the GPU and 2.4 ms on a core: the CPU alone, layer by layer on four cores, is the slowest.
const stack = liveStack({ layers: 12, cells: 8, gpuMs: 0.1, cpuMs: 0.3, callMs: 0.02 });

describe('the rungs of a stack of recurrent layers', () => {
  const rungs = planLadder(stack);

  test('begin with everything on the GPU and end with little of it', () => {
    expect(rungs[0]).toMatchObject({ cores: 0, gpuBytes: 96e6, alpha: 0, segments: [] });
    expect(rungs.length).toBe(4);
    expect(rungs.at(-1)?.gpuBytes).toBeLessThanOrEqual(24e6);
    expect(Math.min(...rungs.slice(2).map(({ alpha }) => alpha))).toBeGreaterThan(0);
  });

  test('hold one that is faster than everything on the GPU', () => {
    const [whole, second] = rungs as [ChrionPlan, ChrionPlan];
    expect(second.latencyMs).toBeLessThan(0.8 * whole.latencyMs);
  });

  test('are the first layers where dividing a layer brings nothing', () => {
    const profile = liveStack({ layers: 4, cells: 8, gpuMs: 0.1, cpuMs: 0.5, callMs: 0.05 });
    const layers = planLadder(profile).map((rung) => layersOf(profile, rung));
    expect(layers).toEqual(['0 1 2 3', '0 1 2', '0 1', '0']);
  });

  test('are left out where they are slower than the limit', () => {
    const [whole, , third] = rungs as [ChrionPlan, ChrionPlan, ChrionPlan];
    const limited = planLadder(stack, { limitMs: third.latencyMs });
    expect(limited.length).toBeGreaterThan(0);
    for (const { latencyMs } of limited) expect(latencyMs).toBeLessThanOrEqual(third.latencyMs);
    expect(planLadder(stack, { limitMs: 0.001 })).toEqual([]);
    const tight = planLadder(stack, { limitMs: whole.latencyMs * 0.99 });
    expect(tight.every(({ cores }) => cores > 0)).toBe(true);
  });

  test('are as many as asked for at most, and no others than the GPU alone without cores', () => {
    for (const rungsMax of [1, 2, 3, 6]) expect(planLadder(stack, { rungsMax }).length).toBeLessThanOrEqual(rungsMax);
    expect(planLadder(stack, { rungsMax: 1 })).toEqual([planGpuOnly(stack)]);
    expect(planLadder(stack, { cores: 0 })).toEqual([planGpuOnly(stack)]);
  });

  test('are what an engine carries out', () => {
    const last = rungs.at(-1) as ChrionPlan;
    const plan = hybridPlanOf(last, 'smallest');
    expect(plan.id).toBe('smallest');
    expect(plan.order).toEqual(last.operators.map(({ name }) => name));
    const onCores = plan.segments.flatMap(({ operators }) => operators);
    expect(onCores.length).toBe(last.operators.filter(({ device }) => device === 'cpu').length);
    expect(JSON.parse(JSON.stringify(plan))).toEqual(plan);
  });
});

test('operators that the GPU cannot run are on the CPU in every rung', () => {
  const nodes = stack.nodes.map((node) => (node.name.startsWith('layer5/') ? { ...node, gpu: null } : node));
  const profile = { ...stack, nodes };
  const rungs = planLadder(profile);
  expect(rungs.length).toBeGreaterThan(1);
  for (const rung of rungs) {
    const lacking = rung.operators.filter(({ name }) => name.startsWith('layer5/'));
    expect(lacking.every(({ device }) => device === 'cpu')).toBe(true);
  }
});

test('all that the GPU can run is there in the first rung when nothing smaller is faster', () => {
  // A core takes ten times as long, so every layer that goes there costs.
  const slow = liveStack({ layers: 4, cells: 4, gpuMs: 0.1, cpuMs: 1, callMs: 0.02, cores: 2 });
  const nodes = slow.nodes.map((node) => (node.name.startsWith('layer3/') ? { ...node, gpu: null } : node));
  const profile = { ...slow, nodes };
  expect(layersOf(profile, planLadder(profile)[0] as ChrionPlan)).toBe('0 1 2');
});

test('a graph that the GPU can run nothing of has no rungs, one without weights has the first alone', () => {
  const none = { ...stack, nodes: stack.nodes.map((node) => ({ ...node, gpu: null })) };
  expect(planLadder(none)).toEqual([]);
  const nodes = stack.nodes.map(({ shares: _, ...node }) => ({ ...node, bytes: { ...node.bytes, weights: 0 } }));
  expect(planLadder({ ...stack, nodes })).toHaveLength(1);
});

test('options out of range are named', () => {
  expect(() => planLadder(stack, { limitMs: 0 })).toThrow('limitMs is 0, but must be above 0');
  expect(() => planLadder(stack, { rungsMax: 0 })).toThrow('rungsMax is 0, but must be a whole number of 1 or more');
  expect(() => planLadder(stack, { cores: 9 })).toThrow('cores is 9');
});

describe('of any graph, the rungs', () => {
  const ladder = fc.tuple(anyLiveGraph(), fc.integer({ min: 1, max: 5 }), fc.option(fc.integer({ min: 1, max: 30 })));
  const ladders = (check: (profile: GraphProfile, rungs: readonly ChrionPlan[], limitMs: number) => void): void => {
    fc.assert(
      fc.property(ladder, ([profile, rungsMax, limit]) => {
        const limitMs = limit ?? Infinity;
        check(profile, planLadder(profile, { rungsMax, limitMs }), limitMs);
      }),
      { numRuns: 50 },
    );
  };

  test('keep ever less of what the one before keeps, by a twentieth or more', () => {
    ladders((profile, rungs) => {
      for (const [index, rung] of rungs.entries()) {
        const above = rungs[index - 1];
        if (above === undefined) continue;
        expect(rung.gpuBytes).toBeLessThanOrEqual(0.95 * above.gpuBytes);
        const kept = weightsOnGpu(profile, above);
        for (const weights of weightsOnGpu(profile, rung)) expect(kept).toContain(weights);
      }
    });
  });

  test('are slower the less they keep, but for one that needs no core', () => {
    ladders((_profile, rungs) => {
      for (const [index, rung] of rungs.entries()) {
        const above = rungs[index - 1];
        if (above === undefined || above.cores === 0) continue;
        expect(rung.latencyMs).toBeGreaterThan(above.latencyMs);
      }
    });
  });

  test('can be carried out within the limit, with something on the GPU and no more cores than there are', () => {
    ladders((profile, rungs, limitMs) => {
      for (const rung of rungs) {
        expect(carriedOutMs(profile, rung)).toBe(rung.latencyMs);
        expect(rung.latencyMs).toBeLessThanOrEqual(limitMs);
        expect(rung.operators.some(({ device }) => device === 'gpu')).toBe(true);
        expect(rung.cores).toBeLessThanOrEqual(3);
      }
    });
  });

  test('begin with everything on the GPU when that is fast enough', () => {
    ladders((profile, rungs, limitMs) => {
      const whole = planGpuOnly(profile);
      if (whole === undefined || whole.latencyMs > limitMs) return;
      expect(rungs[0]).toEqual(whole);
    });
  });
});

test('2,000 operators take less than two seconds', () => {
  const profile = liveStack({ layers: 20, cells: 100, gpuMs: 0.02, cpuMs: 0.15, callMs: 0.04 });
  const startedAt = process.cpuUsage();
  const rungs = planLadder(profile);
  // The processor's time and not the clock's: other work on the machine is not the planner's.
  expect(process.cpuUsage(startedAt).user / 1000).toBeLessThan(2000);
  expect(rungs).toHaveLength(4);
});
