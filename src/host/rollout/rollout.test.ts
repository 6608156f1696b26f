import fc from 'fast-check';
import { expect, test } from 'vitest';
import { functionVersion } from '../../../test/host/fake-store.ts';
import { silentLog } from '../../../test/support/silent-log.ts';
import { EventLog } from '../history/index.ts';
import type { InvocationRecord } from '../calls/placement.ts';
import { Rollout, verdictOf } from './rollout.ts';
import { allTo, parseTraffic, type Traffic } from './traffic.ts';

const counts = fc.integer({ min: 0, max: 600 }).chain((answers) => fc.tuple(fc.constant(answers), fc.nat(answers)));

test('a version fails its trial when half of at least 20 calls failed, and passes it after 500', () => {
  fc.assert(
    fc.property(counts, ([answers, failed]) => {
      const wanted = answers >= 20 && 2 * failed >= answers ? 'failed' : answers >= 500 ? 'passed' : 'undecided';
      expect(verdictOf({ answers, failed })).toBe(wanted);
    }),
  );
});

test.each([
  [19, 19, 'undecided'],
  [20, 10, 'failed'],
  [20, 9, 'undecided'],
  [499, 249, 'undecided'],
  [500, 250, 'failed'],
  [500, 249, 'passed'],
])('after %i answers of which %i failed the verdict is %s', (answers, failed, wanted) => {
  expect(verdictOf({ answers, failed })).toBe(wanted);
});

interface Divided {
  readonly rollout: Rollout;
  readonly now: () => Traffic;
  /** Calls of a version end, each failed. */
  readonly fail: (version: string, calls: number) => void;
}

/** Versions 1, 2 and 3 of 'f', of which the first gets all calls; each loads at once. */
function divided(): Divided {
  let now = allTo('1');
  const versions = ['1', '2', '3'].map((version) => functionVersion('f', { version }));
  const rollout = new Rollout({
    store: {
      versions: () => versions,
      find: (_name, version) => versions.find((each) => each.version === (version ?? now.shares[0]!.version)),
      traffic: () => now,
      changeTraffic: async (_name, change) => (now = change(now)),
      onChange: () => undefined,
    },
    invoker: {
      ready: async (version) => version,
      load: async () => undefined as never,
      tryOut: async () => ({}) as never,
    },
    recorders: new Set(),
    eventLog: new EventLog(),
    logger: silentLog,
  });
  const fail = (version: string, calls: number): void => {
    const failed = { functionName: 'f', version, outcome: 'failed' } as InvocationRecord;
    for (let call = 0; call < calls; call++) rollout.record(failed);
  };
  return { rollout, now: () => now, fail };
}

const sharesOf = ({ shares }: Traffic): Record<string, number> =>
  Object.fromEntries(shares.map(({ version, percent }) => [version, percent]));

const whole = fc.integer({ min: 0, max: 100 });
const version = fc.constantFrom('1', '2', '3');
const shares = fc.tuple(whole, whole).map(([one, part]) => {
  const two = Math.floor(((100 - one) * part) / 100);
  return { 1: one, 2: two, 3: 100 - one - two };
});
/** Bodies of `PATCH /functions/f/traffic`, promotions to a share, and rollbacks. */
type Change =
  | { readonly body: Record<string, unknown> }
  | { readonly promote: string; readonly percent: number }
  | { readonly rollBack: true };
const body = fc.record({ shares, key: fc.constantFrom('x-user', null), fallback: fc.boolean() }, { requiredKeys: [] });
const changes: fc.Arbitrary<Change> = fc.oneof(
  fc.record({ body }),
  fc.record({ promote: version, percent: fc.integer({ min: 1, max: 100 }) }),
  fc.constant({ rollBack: true as const }),
);

/** False: it was refused. */
async function isTaken(rollout: Rollout, change: Change): Promise<boolean> {
  try {
    if ('rollBack' in change) await rollout.rollBack('f');
    else if ('body' in change) await rollout.change('f', (now) => parseTraffic(change.body, now));
    else await rollout.promote(functionVersion('f', { version: change.promote }), change.percent);
    return true;
  } catch {
    return false;
  }
}

test('a version stays on trial until it has no calls or is to keep them, whatever else is changed', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(changes, { maxLength: 12 }), async (asked) => {
      const { rollout, now, fail } = divided();
      for (const change of asked) {
        const [before, tried] = [now(), rollout.onTrial('f')];
        const taken = await isTaken(rollout, change);
        const [after, onTrial] = [now(), rollout.onTrial('f')];
        const percents = sharesOf(after);
        const isSame = JSON.stringify(percents) === JSON.stringify(sharesOf(before));
        const rules = {
          'a refused change changes nothing': taken || (after === before && onTrial === tried),
          'the shares make 100': Math.abs(Object.values(percents).reduce((sum, each) => sum + each, 0) - 100) < 1e-6,
          'a version on trial has calls, and may lose them':
            onTrial === undefined || (after.fallback && percents[onTrial]! > 0),
          'no trial ends or begins where shares stay':
            !isSame || !after.fallback || 'rollBack' in change || onTrial === tried,
          'a promotion gives the share that it names':
            !taken || !('promote' in change) || percents[change.promote] === change.percent,
          'only who names the key changes it': ('body' in change && 'key' in change.body) || after.key === before.key,
        };
        expect(Object.entries(rules).filter(([, holds]) => !holds)).toEqual([]);
      }
      const last = rollout.onTrial('f');
      if (last !== undefined) fail(last, 20);
      await Promise.resolve();
      expect(now().fellBack?.version).toBe(last ?? now().fellBack?.version);
      expect(last === undefined ? undefined : sharesOf(now())[last]).toBeUndefined();
    }),
  );
});

test('a key and a smaller share leave a trial and its counts as they are', async () => {
  const { rollout, now, fail } = divided();
  const change = async (body: Record<string, unknown>): Promise<Traffic> =>
    await rollout.change('f', (traffic) => parseTraffic(body, traffic));
  await change({ shares: { 1: 90, 2: 10 } });
  fail('2', 10);
  await change({ key: 'x-user' });
  await change({ shares: { 1: 95, 2: 5 } });
  await change({});
  expect(rollout.onTrial('f')).toBe('2');
  fail('2', 10);
  await Promise.resolve();
  expect(now()).toMatchObject({ shares: allTo('1').shares, key: 'x-user', fellBack: { version: '2' } });
  await rollout.promote(functionVersion('f', { version: '2' }), 10);
  expect(now()).toMatchObject({
    shares: [
      { version: '1', percent: 90 },
      { version: '2', percent: 10 },
    ],
    key: 'x-user',
  });
  // It serves again, so that it was taken out is no news of it any more.
  expect(now().fellBack).toBeUndefined();
});

test('a promotion to a part of the calls names whom the rest would need, where no other version gets any', async () => {
  const { rollout, now } = divided();
  await expect(rollout.promote(functionVersion('f'), 10)).rejects.toThrow(
    'version 1 gets all calls, and no other version is there to take the other 90%: give these to one',
  );
  expect(now()).toEqual(allTo('1'));
});
