import fc from 'fast-check';
import { expect, test } from 'vitest';
import { anyLayers, machineOf } from '../../test/support/layer-profiles.ts';
import type { Machine } from '../hardware/index.ts';
import { coldStartModes, planColdStart, residencyOf, withPrefix } from '../plan/index.ts';
import { linkBytes } from '../profile/index.ts';
import { gpuOffers } from './offer-of-plan.ts';

/** GPUs on two switches, of which some have slower links and some lack an NVLink. */
const anyMachine: fc.Arbitrary<Machine> = fc
  .record({
    switches: fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 1, maxLength: 4 }),
    slow: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
    apart: fc.constantFrom<number[]>([], [0, 2], [1, 3], [0, 1]),
    uplinkGBps: fc.constantFrom(4, 20),
  })
  .map(({ switches, slow, apart, uplinkGBps }) => {
    const machine = machineOf(switches, (a, b) => !(apart.includes(a) && apart.includes(b)), uplinkGBps);
    return withSlowLinks(machine, slow);
  });

const slowed = (gpu: Machine['gpus'][number]): Machine['gpus'][number] => ({ ...gpu, linkGBps: 5 });

function withSlowLinks(machine: Machine, slow: readonly boolean[]): Machine {
  return { ...machine, gpus: machine.gpus.map((gpu, index) => (slow[index] === true ? slowed(gpu) : gpu)) };
}

test("each GPU's offer is that of its own plan, whatever the other GPUs are like", () => {
  fc.assert(
    fc.property(anyLayers, anyMachine, fc.constantFrom(...coldStartModes), (layers, machine, mode) => {
      const profile = { layers };
      for (const [primary, offer] of gpuOffers(profile, machine, mode).entries()) {
        const plan = planColdStart(profile, machine, mode, { primary });
        const { warmMs, curve, hidden } = residencyOf(profile, machine, plan);
        expect(offer).toMatchObject({
          warmMs,
          overlapPrefix: hidden.layers,
          prefixBytes: curve.map(({ bytes }) => bytes),
        });
        const [fastest, ...slower] = offer.ways;
        expect(fastest.coldMs).toEqual(curve.map(({ latencyMs }) => latencyMs));
        expect(fastest.transfers[0].link).toBe(primary);
        expect(slower.map(({ transfers }) => transfers.map(({ link }) => link))).toEqual(
          plan.secondaries.length === 0 ? [] : [[primary]],
        );
        for (const prefix of curve.keys()) {
          const timeline = withPrefix(profile, machine, plan, prefix);
          const carried = new Map<number, number>();
          for (const [index, { copy, link }] of timeline.layers.entries()) {
            if (copy !== undefined) carried.set(link!, (carried.get(link!) ?? 0) + linkBytes(layers[index]!));
          }
          const offered = fastest.transfers.map(({ link, bytes }) => [link, bytes[prefix]!] as const);
          expect(offered.filter(isUsed).toSorted(byLink)).toEqual([...carried].filter(isUsed).toSorted(byLink));
        }
      }
    }),
  );
});

const isUsed = ([, bytes]: readonly [number, number]): boolean => bytes > 0;
const byLink = ([a]: readonly [number, number], [b]: readonly [number, number]): number => a - b;
