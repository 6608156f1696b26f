import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { anyLayers, machineOf } from '../../../test/support/layer-profiles.ts';
import { planColdStart } from './plan.ts';
import { latencyKeeping } from '../../../bench/papers/deepplan-alternatives.ts';
import { residencyOf, withPrefix } from './residency.ts';
import { simulate } from './timeline.ts';
import { coldStartModes } from './types.ts';

const machine = machineOf([0, 0, 1, 1]);
const even = Array.from({ length: 10 }, () => ({ name: 'x', kind: 'linear', bytes: 1e7, load: 1, exec: 0.5, dha: 9 }));

describe('partial residency', () => {
  it('hides half of the layers behind the execution of the others if loading takes twice as long', () => {
    const profile = { layers: even };
    const { warmMs, hidden, curve } = residencyOf(profile, machine, planColdStart(profile, machine, 'pipeswitch'));
    expect(warmMs).toBeCloseTo(5);
    expect(curve[0]!.latencyMs).toBeCloseTo(10.5);
    // The last of ten layers arrives at (10 - k) ms and is due after 4.5 ms. From k = 6 on nothing waits; at 5 it waits
    // half a layer.
    expect(hidden).toMatchObject({ layers: 6, bytes: 6e7 });
    expect(hidden.latencyMs).toBeCloseTo(5);
  });

  it('partial residency needs no layers if loading is hidden anyway', () => {
    const profile = { layers: even.map((each) => ({ ...each, load: 0.01, exec: 1 })) };
    expect(residencyOf(profile, machine, planColdStart(profile, machine, 'dha')).hidden.layers).toBe(0);
  });

  it('partial residency never makes a cold start slower by keeping more', () => {
    fc.assert(
      fc.property(anyLayers, fc.constantFrom(...coldStartModes), (layers, mode) => {
        const plan = planColdStart({ layers }, machine, mode);
        const { curve, warmMs, hidden } = residencyOf({ layers }, machine, plan, 0.02);
        const latencies = curve.map((point) => point.latencyMs);
        const bytes = curve.map((point) => point.bytes);
        expect(latencies).toEqual(latencies.toSorted((a, b) => b - a));
        expect(bytes).toEqual(bytes.toSorted((a, b) => a - b));
        expect(curve.at(-1)!.bytes).toBe(plan.bytesGpu);
        expect(curve[0]!.latencyMs).toBeLessThanOrEqual(simulate({ layers }, machine, plan).latencyMs + 1e-9);
        expect(hidden.latencyMs).toBeLessThanOrEqual(warmMs * 1.02);
        expect(curve[hidden.layers - 1]?.latencyMs ?? Infinity).toBeGreaterThan(warmMs * 1.02);
      }),
    );
  });

  it('partial residency loads only what is missing', () => {
    const profile = { layers: even };
    const plan = planColdStart(profile, machine, 'interleave');
    const timeline = withPrefix(profile, machine, plan, 4);
    const options = { resident: (layer: number) => layer < 4 };
    expect(timeline.latencyMs).toBeLessThanOrEqual(simulate(profile, machine, plan, options).latencyMs);
    expect(timeline.layers.map(({ resident }) => resident)).toEqual(even.map((_, index) => index < 4));
    expect(timeline.layers.map(({ copy }) => copy === undefined)).toEqual(even.map((_, index) => index < 4));
    // Both links still work although the first four layers are off them.
    expect(new Set(timeline.layers.slice(4).map(({ link }) => link))).toEqual(new Set([0, 2]));
  });

  it('partial residency answers the latency for any number of kept bytes', () => {
    const profile = { layers: even };
    const residency = residencyOf(profile, machine, planColdStart(profile, machine, 'pipeswitch'));
    expect(latencyKeeping(residency, 0)).toBe(residency.curve[0]!.latencyMs);
    expect(latencyKeeping(residency, 2.9e7)).toBe(residency.curve[2]!.latencyMs);
    expect(latencyKeeping(residency, 1e12)).toBe(residency.warmMs);
  });
});
