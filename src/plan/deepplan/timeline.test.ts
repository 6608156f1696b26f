import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { anyLayers, machineOf, measuredLayer } from '../../../test/support/layer-profiles.ts';
import type { Machine } from '../../hardware/index.ts';
import type { ProfileLayer } from '../../profile/index.ts';
import { deepPlan, loadAll, pipelineSteps } from './algorithm.ts';
import type { Span } from './link-clock.ts';
import { planColdStart } from './plan.ts';
import { simulate } from './timeline.ts';
import { coldStartModes, type Timeline } from './types.ts';

const twoSwitches = machineOf([0, 0, 1, 1]);
const machines = [machineOf([0]), twoSwitches, machineOf([0, 1, 2, 3]), machineOf([0, 0])];

const layer = (bytes: number, load: number, exec: number, dha: number, name = 'layer'): ProfileLayer => ({
  name,
  kind: 'linear',
  bytes,
  load,
  exec,
  dha,
});

/** Whether the spans are in order and do not overlap. */
const inOrder = (spans: readonly (Span | undefined)[]): boolean => {
  const done = spans.filter((span) => span !== undefined);
  return done.every(({ startMs, endMs }, index) => startMs <= endMs && startMs >= (done[index - 1]?.endMs ?? 0));
};

const costOf = (hostRead: number, tensorBytes: number[]) => ({
  tensorBytes,
  gpu: 0.1,
  gpuDha: 0.1 + hostRead,
  hostRead,
  launch: 0,
  operators: { count: 0, gpu: 0, launch: 0 },
});

describe('a timeline', () => {
  it('a timeline never executes a layer before its weights are there and the layer before it is done', () => {
    fc.assert(
      fc.property(
        anyLayers,
        fc.constantFrom(...machines),
        fc.constantFrom(...coldStartModes),
        fc.nat(3),
        (layers, machine, mode, gpu) => {
          const primary = gpu % machine.gpus.length;
          const plan = planColdStart({ layers }, machine, mode, { primary });
          const timeline = simulate({ layers }, machine, plan);
          expect(inOrder(timeline.layers.map(({ execution }) => execution))).toBe(true);
          for (const [index, times] of timeline.layers.entries()) {
            const loaded = times.method === 'load';
            expect(loaded && layers[index]!.bytes === 0).toBe(false);
            expect(times.copy !== undefined).toBe(loaded);
            expect(times.link !== null).toBe(loaded);
            expect(times.migration !== undefined).toBe(loaded && times.link !== primary);
            // Issued before it crosses the link, sent over NVLink after that, executed after both.
            const { issue, copy, migration, decode, execution } = times;
            expect(issue?.startMs ?? 0).toBeLessThanOrEqual(copy?.startMs ?? 0);
            expect(migration?.startMs ?? Infinity).toBeGreaterThanOrEqual(copy?.endMs ?? 0);
            expect(execution.startMs).toBeGreaterThanOrEqual((decode ?? migration ?? copy)?.endMs ?? 0);
            expect(decode !== undefined).toBe(loaded && layers[index]!.coded !== undefined);
            expect(decode?.startMs ?? Infinity).toBeGreaterThanOrEqual((migration ?? copy)?.endMs ?? 0);
          }
          expect(inOrder(timeline.layers.map(({ decode }) => decode))).toBe(true);
          for (const gpuOfLink of [primary, ...plan.secondaries]) {
            const own = timeline.layers.filter(({ link }) => link === gpuOfLink);
            expect(inOrder(own.map(({ copy }) => copy))).toBe(true);
            expect(inOrder(own.map(({ migration }) => migration))).toBe(true);
          }
          expect(timeline.latencyMs).toBe(timeline.layers.at(-1)!.execution.endMs);
          expect(timeline.stallMs).toBeCloseTo(
            timeline.layers.reduce((sum, { stallMs }) => sum + stallMs, 0),
            9,
          );
        },
      ),
    );
  });

  it("a timeline of a measured profile on one link is the planner's own pipeline", () => {
    fc.assert(
      fc.property(fc.array(measuredLayer, { minLength: 1, maxLength: 30 }), (layers) => {
        for (const [mode, methods] of [
          ['pipeswitch', loadAll({ layers })],
          ['dha', deepPlan({ layers })],
        ] as const) {
          const timeline = simulate({ layers }, twoSwitches, planColdStart({ layers }, twoSwitches, mode, { methods }));
          const steps = pipelineSteps(layers, methods);
          expect(timeline.latencyMs).toBeCloseTo(steps.at(-1)!.end, 9);
          for (const [index, { stall }] of steps.entries()) {
            expect(timeline.layers[index]!.stallMs).toBeCloseTo(stall, 9);
          }
        }
      }),
    );
  });

  it('a timeline of the baseline loads everything, then executes', () => {
    const layers = [layer(1e6, 2, 3, 9), layer(1e6, 4, 1, 9)];
    const timeline = simulate({ layers }, twoSwitches, planColdStart({ layers }, twoSwitches, 'baseline'));
    expect(timeline.latencyMs).toBe(10);
    expect(timeline.stallMs).toBe(6);
  });

  it('a timeline of parallel transmission copies both halves at once and sends the second on over NVLink', () => {
    // 10 MB a layer at 10 GB/s are 1 ms, at the 50 GB/s of NVLink 0.2 ms more.
    const layers = Array.from({ length: 4 }, () => layer(1e7, 1, 0.1, 9));
    const plan = planColdStart({ layers }, twoSwitches, 'pt');
    const { layers: times, latencyMs } = simulate({ layers }, twoSwitches, plan);
    expect(times.map(({ link }) => link)).toEqual([0, 0, 2, 2]);
    expect(times[2]!.copy).toEqual({ startMs: 0, endMs: 1 });
    expect(times[2]!.migration!.endMs).toBeCloseTo(1.2, 9);
    expect(latencyMs).toBeCloseTo(2.3, 9);
  });

  it('a timeline of interleaved layers has the second layer there as early as the first', () => {
    const layers = Array.from({ length: 4 }, () => layer(1e7, 1, 0.1, 9));
    const plan = planColdStart({ layers }, twoSwitches, 'interleave');
    expect(plan.layers.map(({ link }) => link)).toEqual([0, 2, 0, 2]);
    const { latencyMs } = simulate({ layers }, twoSwitches, plan);
    expect(latencyMs).toBeCloseTo(2.3, 9);
  });

  it('delays copies while a kernel reads host memory over the same link', () => {
    const layers: ProfileLayer[] = [
      { ...layer(9e7, 9, 0.1, 0.6, 'table'), cost: costOf(0.5, [9e7]) },
      { ...layer(1e7, 1, 0.1, 9, 'linear'), cost: costOf(9, [1e7]) },
    ];
    const machine = machineOf([0]);
    const { layers: times } = simulate({ layers }, machine, planColdStart({ layers }, machine, 'dha'));
    expect(times[0]!.fromHost).toBe(true);
    expect(times[1]!.copy!.endMs).toBeCloseTo(1.5, 9);
  });

  it('a timeline without anything to load takes only the execution time', () => {
    fc.assert(
      fc.property(fc.array(measuredLayer, { minLength: 1, maxLength: 20 }), (layers) => {
        const plan = planColdStart({ layers }, twoSwitches, 'pipeswitch');
        const warm = simulate({ layers }, twoSwitches, plan, { resident: () => true });
        expect(warm.latencyMs).toBeCloseTo(
          layers.reduce((sum, { exec }) => sum + exec, 0),
          9,
        );
        expect(warm.stallMs).toBe(0);
      }),
    );
  });

  it('a timeline of two cold starts at once is no faster than of one', () => {
    fc.assert(
      fc.property(anyLayers, (layers) => {
        const plan = planColdStart({ layers }, twoSwitches, 'pt+dha');
        const alone = simulate({ layers }, twoSwitches, plan).latencyMs;
        const together: Timeline = simulate({ layers }, twoSwitches, plan, { twin: true });
        expect(together.latencyMs).toBeGreaterThanOrEqual(alone - 1e-9);
      }),
    );
  });

  it('a timeline of interleave is never slower than of parallel transmission, whatever the profile', () => {
    fc.assert(
      fc.property(anyLayers, fc.constantFrom<Machine>(...machines), (layers, machine) => {
        const latency = (mode: 'interleave' | 'pt+dha') =>
          simulate({ layers }, machine, planColdStart({ layers }, machine, mode)).latencyMs;
        expect(latency('interleave')).toBeLessThanOrEqual(latency('pt+dha') + 1e-9);
      }),
    );
  });
});
