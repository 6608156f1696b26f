/** When a plan that reads host memory is kept in place of one that loads everything. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { loadMachine } from '../../hardware/index.ts';
import type { ProfileLayer } from '../../profile/index.ts';
import { deepPlan, loadAll } from './algorithm.ts';
import { planColdStart } from './plan.ts';
import { simulate } from './timeline.ts';

const anyLayer = fc
  .record({
    bytes: fc.integer({ min: 1, max: 1000 }),
    load: fc.double({ min: 0.01, max: 5, noNaN: true }),
    exec: fc.double({ min: 0.01, max: 5, noNaN: true }),
    added: fc.double({ min: 0, max: 5, noNaN: true }),
  })
  .map(({ bytes, load, exec, added }): ProfileLayer => ({
    name: '',
    kind: 'Linear',
    bytes,
    load,
    exec,
    dha: exec + added,
  }));

test('a plan reads host memory only where that is 2% faster, or keeps 5% of the weights off the GPU and is 1% slower at most', () => {
  const machine = loadMachine('h200');
  const seen = { faster: 0, freeing: 0, loadsAll: 0 };
  fc.assert(
    fc.property(fc.array(anyLayer, { minLength: 1, maxLength: 12 }), (given) => {
      const profile = { layers: given.map((layer, index) => ({ ...layer, name: `layer ${index}` })) };
      const timed = (methods?: ReturnType<typeof loadAll>) => {
        const plan = planColdStart(profile, machine, 'dha', methods === undefined ? {} : { methods });
        return { plan, ms: simulate(profile, machine, plan).latencyMs };
      };
      const [kept, own, all] = [timed(), timed(deepPlan(profile)), timed(loadAll(profile))];
      const isFaster = own.ms * 1.02 <= all.ms;
      const isFreeing = own.plan.bytesGpu <= 0.95 * all.plan.bytesGpu && own.ms <= all.ms * 1.01;
      expect(kept.plan.layers).toEqual((isFaster || isFreeing ? own : all).plan.layers);
      if (own.plan.bytesGpu < all.plan.bytesGpu) seen[isFaster ? 'faster' : isFreeing ? 'freeing' : 'loadsAll']++;
    }),
    { numRuns: 500 },
  );
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(0);
});
