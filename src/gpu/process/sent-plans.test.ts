import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ColdStartPlan } from '../../plan/index.ts';
import { KeptPlans, SentPlans } from './sent-plans.ts';

const key = fc.constantFrom('a@1', 'b@1');
const step = fc.oneof(
  // More plans than there are places for one function.
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('run'), key, plan: fc.nat(80) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('register'), key }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('unregister'), key }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart') }) },
);
type Step = { kind: string; key?: string; plan?: number };

const plans = Array.from({ length: 81 }, (_, bytesGpu): ColdStartPlan => {
  return { mode: 'pipeswitch', primary: 0, secondaries: [], layers: [], bytesGpu };
});

/** The host's calls and what the process makes of them, in the order in which they are sent. */
function play(steps: readonly Step[]): { runs: number; carried: number; wrong: number } {
  const sent = new SentPlans();
  let kept = new Map<string, KeptPlans>();
  const counts = { runs: 0, carried: 0, wrong: 0 };
  for (const { kind, key: name = '', plan = 0 } of steps) {
    switch (kind) {
      case 'register':
        if (!kept.has(name)) kept.set(name, new KeptPlans());
        sent.forget(name);
        break;
      case 'unregister':
        kept.delete(name);
        sent.forget(name);
        break;
      case 'restart':
        kept = new Map();
        sent.forget();
        break;
      case 'run': {
        const placed = JSON.parse(JSON.stringify(sent.place(name, plans[plan]!))) as ReturnType<SentPlans['place']>;
        const found = kept.get(name);
        // The process refuses a function that it does not know, and keeps nothing of its plan.
        if (found === undefined) break;
        counts.runs++;
        if (placed.plan !== undefined) counts.carried++;
        if (found.of(placed)?.bytesGpu !== plan) counts.wrong++;
      }
    }
  }
  return counts;
}

test('a run has the plan that the host named, whatever was registered, removed or restarted before it', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
      expect(play(steps).wrong).toBe(0);
    }),
  );
});

test('a plan is carried by the first of its runs alone', () => {
  const run = { kind: 'run', key: 'a@1', plan: 3 };
  expect(play([{ kind: 'register', key: 'a@1' }, run, run, { ...run, plan: 4 }, run])).toEqual({
    runs: 4,
    carried: 2,
    wrong: 0,
  });
});
