/** Plans of functions that share layers: their tables count the layers that their plans load, whatever variants leave out. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ColdStartPlan } from '../plan/index.ts';
import { checkVariants, wholePrefix, type GpuOffer } from '../schedule/index.ts';
import type { SharedLayers } from './families.ts';
import { sharingPlans } from './shared-plans.ts';
import type { FunctionPlans } from './types.ts';

const loadedOf = ({ layers }: ColdStartPlan): number[] =>
  layers.flatMap(({ method }, layer) => (method === 'load' ? [layer] : []));

/** A link carries a byte a millisecond, and the last layer is executed in one. */
function offerOf(loaded: readonly number[], bytes: readonly number[], plan: string, warmMs: number): GpuOffer {
  const prefixBytes = [0];
  for (const layer of loaded) prefixBytes.push(prefixBytes.at(-1)! + bytes[layer]!);
  const missing = prefixBytes.map((there) => prefixBytes.at(-1)! - there);
  return {
    plan,
    warmMs,
    prefixBytes,
    overlapPrefix: Math.floor(loaded.length / 2),
    ways: [
      {
        mode: 'dha',
        coldMs: missing.map((count) => warmMs + count),
        transfers: [{ link: 0, bytes: missing, ms: missing, tailMs: missing.map((count) => Math.sign(count)) }],
      },
    ],
  };
}

/** @param variants the layers of each, the largest first */
function plansOf(bytes: readonly number[], variants: readonly (readonly number[])[]): FunctionPlans {
  const offers = variants.map((loaded, index) => offerOf(loaded, bytes, `plan ${index}`, 1 + index));
  return {
    mode: 'dha',
    isTooLarge: false,
    offers: [offers.reduceRight((smaller, offer) => ({ ...offer, smaller }))],
    planOf: (primary, _mode, variant = 'plan 0') => {
      const loaded = variants[Number(variant.slice(5))]!;
      const layers = bytes.map((_, layer) =>
        loaded.includes(layer)
          ? { name: `${layer}`, method: 'load' as const, link: primary }
          : { name: `${layer}`, method: 'dha' as const, link: null },
      );
      return { mode: 'dha', primary, secondaries: [], layers, bytesGpu: 0 };
    },
  };
}

const drawn = fc
  .tuple(
    fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 8 }),
    fc.array(fc.nat(7), { maxLength: 4 }),
    fc.integer({ min: 1, max: 8 }),
  )
  .map(([bytes, drops, sharedCount]) => {
    const variants = [[...bytes.keys()]];
    for (const drop of drops) {
      const left = variants.at(-1)!.toSpliced(drop % variants.at(-1)!.length, 1);
      if (left.length > 0) variants.push(left);
    }
    return { bytes, variants, sharedCount: Math.min(sharedCount, bytes.length) };
  });

test('each variant has all that is shared, and of its own layers those that it had; one that would have no less goes', () => {
  fc.assert(
    fc.property(drawn, ({ bytes, variants, sharedCount }) => {
      const plans = plansOf(bytes, variants);
      const layers = Array.from({ length: sharedCount }, (_, index) => {
        return { index, id: String(index), bytes: bytes[index]!, isLoaded: true };
      });
      const shared: SharedLayers = { base: 'base', layers, loaded: layers.map(({ index }) => index) };
      const sharing = sharingPlans(plans, [shared]);
      const { offers } = sharing;
      checkVariants('fn', offers[0]!);
      const offered = new Map<string, GpuOffer>();
      for (let offer: GpuOffer | undefined = offers[0]; offer !== undefined; offer = offer.smaller)
        offered.set(offer.plan!, offer);
      let least = Infinity;
      for (const [index, own] of variants.entries()) {
        const loaded = loadedOf(sharing.planOf(0, 'dha', `plan ${index}`));
        expect(loaded).toEqual([...new Set([...shared.loaded, ...own])].toSorted((a, b) => a - b));
        const wholeBytes = loaded.reduce((sum, layer) => sum + bytes[layer]!, 0);
        const offer = offered.get(`plan ${index}`);
        expect(offer !== undefined).toBe(index === 0 || (wholeBytes < least && loaded.length > sharedCount));
        if (offer === undefined) continue;
        least = wholeBytes;
        expect(offer.shared).toEqual({ base: 'base', layers: sharedCount });
        const [{ coldMs, transfers }] = offer.ways;
        for (const table of [coldMs, transfers[0].bytes, transfers[0].ms, transfers[0].tailMs])
          expect(table).toHaveLength(wholePrefix(offer) + 1);
        for (const [prefix, there] of offer.prefixBytes.entries()) {
          expect(there).toBe(loaded.slice(0, prefix).reduce((sum, layer) => sum + bytes[layer]!, 0));
          expect(transfers[0].bytes[prefix]).toBe(wholeBytes - there);
          expect(coldMs[prefix]).toBe(offer.warmMs + wholeBytes - there);
        }
        const given = variants[index]!.slice(0, Math.floor(own.length / 2)).at(-1);
        const hidden = loaded.slice(0, offer.overlapPrefix);
        expect(given === undefined ? hidden : hidden.at(-1)).toEqual(given ?? []);
      }
    }),
  );
});

test('plans of a function that shares nothing that is loaded stay as they are', () => {
  const plans = plansOf([1, 2], [[0, 1], [1]]);
  expect(sharingPlans(plans, [undefined])).toBe(plans);
  expect(sharingPlans(plans, [{ base: 'base', layers: [], loaded: [] }])).toBe(plans);
});
