import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { loadMachine } from '../../../hardware/index.ts';
import type { LayerProfile } from '../../../profile/index.ts';
import type { GpuOffer } from '../../../schedule/index.ts';
import { withVariants, type VariantContext, type PlanVariant } from './variants.ts';
import { makePlans } from '../plans.ts';

const machine = loadMachine('p3.8xlarge');

/** Layers of which some are cheaper to read from host memory than to wait for. */
const anyLayers = fc.array(
  fc.record({
    bytes: fc.integer({ min: 1, max: 40 }).map((count) => count * 1e5),
    exec: fc.integer({ min: 1, max: 200 }).map((ticks) => ticks / 100),
    slower: fc.integer({ min: 0, max: 400 }).map((ticks) => ticks / 100),
  }),
  { minLength: 2, maxLength: 10 },
);

function profileOf(layers: readonly { bytes: number; exec: number; slower: number }[]): LayerProfile {
  return {
    unit: 'ms',
    layers: layers.map(({ bytes, exec, slower }, index) => {
      const load = 0.02 + bytes / 12e6;
      return { name: `layer${index}`, kind: 'recurrent', bytes, load, exec, dha: exec + slower };
    }),
  };
}

/** A plan that reads these layers on the GPU. */
function variantOf(profile: LayerProfile, layers: readonly number[], number: number): PlanVariant {
  const weightBytes = layers.reduce((sum, layer) => sum + profile.layers[layer]!.bytes, 0);
  return { promise: { plan: `hybrid-${number}`, layers, weightBytes, cores: 1 }, latencyMs: 10 + number };
}

const variantsIn = (top: GpuOffer): GpuOffer[] =>
  top.smaller === undefined ? [top] : [top, ...variantsIn(top.smaller)];

describe('variants', () => {
  test('loads under a variant no layer that the one above leaves in host memory, so that shrinking loads nothing', () => {
    fc.assert(
      fc.property(
        anyLayers,
        fc.array(fc.nat(9), { minLength: 1, maxLength: 4 }),
        fc.constantFrom('pipeswitch' as const, 'dha' as const, 'interleave' as const),
        fc.boolean(),
        (given, cuts, mode, isCovered) => {
          const profile = profileOf(given);
          const sizes = [...new Set(cuts.map((cut) => cut % given.length))].toSorted((a, b) => b - a);
          const variants = sizes.map((size, index) => variantOf(profile, [...Array(size).keys()], index + 1));
          const ground: VariantContext = {
            layers: profile.layers,
            profile: isCovered ? profile : undefined,
            linkGBps: 12,
            machine,
            mode,
          };
          const whole = isCovered ? makePlans(profile, machine, mode) : undefined;
          const plans = withVariants(whole, variants, ground)!;
          for (const [gpu, top] of plans.offers.entries()) {
            const offered = variantsIn(top);
            const loaded = offered.map(
              ({ plan }) =>
                new Set(
                  plans
                    .planOf(gpu, mode, plan)
                    .layers.flatMap(({ method }, layer) => (method === 'load' ? [layer] : [])),
                ),
            );
            for (const [index, { plan, prefixBytes }] of offered.entries()) {
              const layers = [...loaded[index]!];
              expect(prefixBytes.at(-1)).toBe(layers.reduce((sum, layer) => sum + profile.layers[layer]!.bytes, 0));
              if (index === 0) continue;
              const above = loaded[index - 1]!;
              const read = variants.find(({ promise }) => promise.plan === plan)!.promise.layers;
              // What is kept of the variant above: the layers that this one reads.
              expect([...above].filter((layer) => read.includes(layer))).toEqual(layers);
              expect(prefixBytes.at(-1)).toBeGreaterThan(0);
            }
          }
        },
      ),
    );
  });
});
