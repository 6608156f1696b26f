import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { anyLiveGraph, carriedOutMs, liveStack } from '../../../test/support/graph-profiles.ts';
import type { GraphProfile } from '../../profile/index.ts';
import { hybridPlanOf, planGpuOnly, planVariants, type ChrionPlan } from './index.ts';

/** Weights on the GPU: the name under which operators share them, or the operator's name. */
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

describe('the variants of a stack of recurrent layers', () => {
  const variants = planVariants(stack);

  test('the variants of a stack of recurrent layers begin with everything on the GPU and end with little of it', () => {
    expect(variants[0]).toMatchObject({ cores: 0, gpuBytes: 96e6, alpha: 0, segments: [] });
    expect(variants.length).toBe(4);
    expect(variants.at(-1)?.gpuBytes).toBeLessThanOrEqual(24e6);
    expect(Math.min(...variants.slice(2).map(({ alpha }) => alpha))).toBeGreaterThan(0);
  });

  test('the variants of a stack of recurrent layers include one that is faster than everything on the GPU', () => {
    const [whole, second] = variants as [ChrionPlan, ChrionPlan];
    expect(second.latencyMs).toBeLessThan(0.8 * whole.latencyMs);
  });

  test('the variants of a stack of recurrent layers are the first layers if dividing a layer gains nothing', () => {
    const profile = liveStack({ layers: 4, cells: 8, gpuMs: 0.1, cpuMs: 0.5, callMs: 0.05 });
    const layers = planVariants(profile).map((variant) => layersOf(profile, variant));
    expect(layers).toEqual(['0 1 2 3', '0 1 2', '0 1', '0']);
  });

  test('the variants of a stack of recurrent layers are left out if they are slower than the limit', () => {
    const [whole, , third] = variants as [ChrionPlan, ChrionPlan, ChrionPlan];
    const limited = planVariants(stack, { limitMs: third.latencyMs });
    expect(limited.length).toBeGreaterThan(0);
    for (const { latencyMs } of limited) expect(latencyMs).toBeLessThanOrEqual(third.latencyMs);
    expect(planVariants(stack, { limitMs: 0.001 })).toEqual([]);
    const tight = planVariants(stack, { limitMs: whole.latencyMs * 0.99 });
    expect(tight.every(({ cores }) => cores > 0)).toBe(true);
  });

  test('the variants of a stack of recurrent layers are at most as many as requested, and only the GPU alone without cores', () => {
    for (const variantsMax of [1, 2, 3, 6])
      expect(planVariants(stack, { variantsMax }).length).toBeLessThanOrEqual(variantsMax);
    expect(planVariants(stack, { variantsMax: 1 })).toEqual([planGpuOnly(stack)]);
    expect(planVariants(stack, { cores: 0 })).toEqual([planGpuOnly(stack)]);
  });

  test('the variants of a stack of recurrent layers can be executed by an engine', () => {
    const last = variants.at(-1) as ChrionPlan;
    const plan = hybridPlanOf(last, 'smallest');
    expect(plan.id).toBe('smallest');
    expect(plan.order).toEqual(last.operators.map(({ name }) => name));
    const onCores = plan.segments.flatMap(({ operators }) => operators);
    expect(onCores.length).toBe(last.operators.filter(({ device }) => device === 'cpu').length);
    expect(JSON.parse(JSON.stringify(plan))).toEqual(plan);
  });
});

test('operators that the GPU cannot run are on the CPU in every variant', () => {
  const nodes = stack.nodes.map((node) => (node.name.startsWith('layer5/') ? { ...node, gpu: null } : node));
  const profile = { ...stack, nodes };
  const variants = planVariants(profile);
  expect(variants.length).toBeGreaterThan(1);
  for (const variant of variants) {
    const lacking = variant.operators.filter(({ name }) => name.startsWith('layer5/'));
    expect(lacking.every(({ device }) => device === 'cpu')).toBe(true);
  }
});

test('the first variant has all that the GPU can run if nothing smaller is faster', () => {
  // A core takes ten times as long, so every layer on it costs time.
  const slow = liveStack({ layers: 4, cells: 4, gpuMs: 0.1, cpuMs: 1, callMs: 0.02, cores: 2 });
  const nodes = slow.nodes.map((node) => (node.name.startsWith('layer3/') ? { ...node, gpu: null } : node));
  const profile = { ...slow, nodes };
  expect(layersOf(profile, planVariants(profile)[0] as ChrionPlan)).toBe('0 1 2');
});

test('a graph that the GPU cannot run at all has no variants, one without weights has only the first', () => {
  const none = { ...stack, nodes: stack.nodes.map((node) => ({ ...node, gpu: null })) };
  expect(planVariants(none)).toEqual([]);
  const nodes = stack.nodes.map(({ shares: _, ...node }) => ({ ...node, bytes: { ...node.bytes, weights: 0 } }));
  expect(planVariants({ ...stack, nodes })).toHaveLength(1);
});

test('options out of range are refused by name', () => {
  expect(() => planVariants(stack, { limitMs: 0 })).toThrow('limitMs is 0, but must be above 0');
  expect(() => planVariants(stack, { variantsMax: 0 })).toThrow(
    'variantsMax is 0, but must be a whole number of 1 or more',
  );
  expect(() => planVariants(stack, { cores: 9 })).toThrow('cores is 9');
});

describe('the variants of any graph', () => {
  const planned = fc.tuple(anyLiveGraph(), fc.integer({ min: 1, max: 5 }), fc.option(fc.integer({ min: 1, max: 30 })));
  const always = (check: (profile: GraphProfile, variants: readonly ChrionPlan[], limitMs: number) => void): void => {
    fc.assert(
      fc.property(planned, ([profile, variantsMax, limit]) => {
        const limitMs = limit ?? Infinity;
        check(profile, planVariants(profile, { variantsMax, limitMs }), limitMs);
      }),
      { numRuns: 50 },
    );
  };

  test('each keep a subset of the one before, smaller by a twentieth or more', () => {
    always((profile, variants) => {
      for (const [index, variant] of variants.entries()) {
        const above = variants[index - 1];
        if (above === undefined) continue;
        expect(variant.gpuBytes).toBeLessThanOrEqual(0.95 * above.gpuBytes);
        const kept = weightsOnGpu(profile, above);
        for (const weights of weightsOnGpu(profile, variant)) expect(kept).toContain(weights);
      }
    });
  });

  test('the variants of any graph are slower the less they keep, except one that needs no core', () => {
    always((_profile, variants) => {
      for (const [index, variant] of variants.entries()) {
        const above = variants[index - 1];
        if (above === undefined || above.cores === 0) continue;
        expect(variant.latencyMs).toBeGreaterThan(above.latencyMs);
      }
    });
  });

  test('the variants of any graph can be carried out within the limit, with something on the GPU and within the number of cores', () => {
    always((profile, variants, limitMs) => {
      for (const variant of variants) {
        expect(carriedOutMs(profile, variant)).toBe(variant.latencyMs);
        expect(variant.latencyMs).toBeLessThanOrEqual(limitMs);
        expect(variant.operators.some(({ device }) => device === 'gpu')).toBe(true);
        expect(variant.cores).toBeLessThanOrEqual(3);
      }
    });
  });

  test('the variants of any graph begin with everything on the GPU if that is fast enough', () => {
    always((profile, variants, limitMs) => {
      const whole = planGpuOnly(profile);
      if (whole === undefined || whole.latencyMs > limitMs) return;
      expect(variants[0]).toEqual(whole);
    });
  });
});

test('2,000 operators have four variants', () => {
  const profile = liveStack({ layers: 20, cells: 100, gpuMs: 0.02, cpuMs: 0.15, callMs: 0.04 });
  expect(planVariants(profile)).toHaveLength(4);
});
