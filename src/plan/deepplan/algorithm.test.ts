import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ProfileLayer } from '../../profile/index.ts';
import { initialApproach } from '../../../bench/papers/deepplan-alternatives.ts';
import { deepPlan, loadAll, pipelineSteps, type LayerMethod } from './algorithm.ts';

const layer = (kind: string, bytes: number, load: number, exec: number, dha: number): ProfileLayer => ({
  name: kind,
  kind,
  bytes,
  load,
  exec,
  dha,
});

const letters = (methods: readonly LayerMethod[]): string =>
  methods.map((method) => (method === 'load' ? 'O' : 'X')).join('');

/** Algorithm 1 as in the paper's artifact: sorts again for each stall, and copies whole lists. */
function deepPlanPlainly(layers: readonly ProfileLayer[]): LayerMethod[] {
  const methods = loadAll({ layers });
  let stalls = pipelineSteps(layers, methods).map(({ stall }) => stall);
  for (let stalled = 0; stalled < layers.length; stalled++) {
    let stall = stalls[stalled]!;
    if (stall <= 0) continue;
    const sorted = layers
      .slice(0, stalled + 1)
      .map((each, index) => ({ each, index, gap: each.dha - each.exec }))
      .sort((a, b) => a.gap - b.gap || b.each.load - a.each.load);
    for (const { each, index, gap } of sorted) {
      if (methods[index] === 'dha') continue;
      if (each.dha > each.exec + 1.5 * each.load) break;
      if (stall < gap) break;
      methods[index] = 'dha';
      stall = stall - each.load - gap;
      if (stall <= 0) {
        stalls = pipelineSteps(layers, methods).map((step) => step.stall);
        break;
      }
    }
  }
  return methods;
}

const milliseconds = fc.oneof(fc.integer({ min: 0, max: 6 }), fc.double({ min: 0, max: 5, noNaN: true }));
const anyLayer = fc
  .record({ weighted: fc.boolean(), load: milliseconds, exec: milliseconds, added: milliseconds })
  .map(({ weighted, load, exec, added }) =>
    layer('Linear', weighted ? 1000 : 0, weighted ? load : 0, exec, exec + added),
  );

describe('Algorithm 1', () => {
  it("Algorithm 1 gives the answers of the paper's planner for its own profiles", () => {
    const { cases } = JSON.parse(
      readFileSync(new URL('../../../test/reference/deepplan-planner.json', import.meta.url), 'utf8'),
    ) as {
      cases: {
        layers: [string, number, number, number, number][];
        initial: string;
        dha: string;
        endMs: number;
        stallMs: number[];
      }[];
    };
    expect(cases.length).toBeGreaterThan(20);
    for (const expected of cases) {
      const layers = expected.layers.map((each) => layer(...each));
      const methods = deepPlan({ layers });
      expect(letters(methods)).toBe(expected.dha);
      expect(letters(initialApproach({ layers }))).toBe(expected.initial);
      const steps = pipelineSteps(layers, methods);
      expect(steps.at(-1)?.end).toBe(expected.endMs);
      expect(steps.map(({ stall }) => stall)).toEqual(expected.stallMs);
    }
  });

  it('decides as the plain implementation does, for any profile', () => {
    fc.assert(
      fc.property(fc.array(anyLayer, { minLength: 1, maxLength: 30 }), (layers) => {
        expect(deepPlan({ layers })).toEqual(deepPlanPlainly(layers));
      }),
      { numRuns: 500 },
    );
  });

  it('Algorithm 1 leaves a large table in host memory and loads the next layers meanwhile', () => {
    const layers = [layer('Embedding', 90e6, 8, 0.1, 0.3), layer('Linear', 2e6, 0.2, 0.1, 3)];
    expect(deepPlan({ layers })).toEqual(['dha', 'load']);
  });

  it('Algorithm 1 does not change a layer whose host access costs more than 1.5 times its loading', () => {
    const first = layer('Linear', 1e6, 1, 1, 2.6);
    const second = layer('Linear', 9e6, 9, 1, 90);
    expect(deepPlan({ layers: [first, second] })).toEqual(['load', 'load']);
    expect(deepPlan({ layers: [{ ...first, dha: 2.5 }, second] })).toEqual(['dha', 'load']);
  });

  it('Algorithm 1 stops at the first overloaded layer, even if a later candidate would do', () => {
    const first = layer('Linear', 1e6, 0.5, 5, 5.7);
    const overloaded = layer('LayerNorm', 6e3, 0.01, 0.1, 0.75);
    const stalled = layer('Linear', 9e6, 19, 1, 90);
    expect(deepPlan({ layers: [first, stalled] })).toEqual(['dha', 'load']);
    expect(deepPlan({ layers: [first, overloaded, stalled] })).toEqual(['load', 'load', 'load']);
  });

  it('Algorithm 1 never changes layers without weights', () => {
    const layers = [layer('ReLU', 0, 0, 1, 1), layer('Linear', 9e6, 9, 1, 90)];
    expect(deepPlan({ layers })).toEqual(['dha', 'load']);
    expect(loadAll({ layers })).toEqual(['dha', 'load']);
  });

  it('plans two thousand layers', () => {
    const layers = Array.from({ length: 2000 }, (_, index) =>
      layer('Linear', 1e6, 0.2 + (index % 7) / 10, 0.1, 0.15 + (index % 5) / 10),
    );
    expect(deepPlan({ layers })).toHaveLength(2000);
  });
});

describe('the initial approach', () => {
  it('compares layer by layer, and never loads an embedding or a batch normalisation', () => {
    const layers = [
      layer('Embedding', 6e3, 0.01, 0.02, 0.2),
      layer('BatchNorm2d', 1e3, 0.01, 0.02, 0.2),
      layer('batch-norm', 1e3, 0.01, 0.02, 0.2),
      layer('Conv2d', 1e6, 1, 1, 1.9),
      layer('Conv2d', 1e6, 1, 1, 2),
    ];
    expect(initialApproach({ layers })).toEqual(['dha', 'dha', 'dha', 'dha', 'load']);
  });
});

describe('the pipeline', () => {
  it('the pipeline waits for the part of a load that earlier execution does not hide', () => {
    const layers = [layer('a', 1, 2, 3, 9), layer('b', 1, 4, 1, 9)];
    const steps = pipelineSteps(layers, ['load', 'load']);
    expect(steps.map(({ stall }) => stall)).toEqual([2, 1]);
    expect(steps.at(-1)?.end).toBe(7);
  });
});
