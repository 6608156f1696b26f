import { expect, test } from 'vitest';
import { trialAnswersMax, verdictOf, type TrialVerdict } from './rollout.ts';
import { LatestAnswers, noAnswers, type Answers } from './statistics.ts';

/** Without answers of the version before since the change. */
const verdict = (before: Answers, after: Answers): TrialVerdict => verdictOf({ before, beside: noAnswers(), after });

test('nothing is decided on fewer than 20 answers', () => {
  expect(verdict({ in_slo: 200, late: 0, failed: 0 }, { in_slo: 0, late: 0, failed: 19 })).toEqual({
    kind: 'undecided',
  });
});

test('a version that answers late or fails much more often than the one before fails its trial', () => {
  expect(verdict({ in_slo: 198, late: 2, failed: 0 }, { in_slo: 12, late: 6, failed: 2 })).toEqual({
    kind: 'failed',
    reason: '60% of its 20 calls were answered within the SLO, 99% before (2 failed)',
  });
});

test('a version does not fail for errors that the version before makes too', () => {
  expect(verdict({ in_slo: 100, late: 100, failed: 0 }, { in_slo: 20, late: 25, failed: 0 })).toEqual({
    kind: 'undecided',
  });
});

test('a version does not fail because the machine became busier, which makes the answers of the one before late too', () => {
  const before = { in_slo: 200, late: 0, failed: 0 };
  const after = { in_slo: 25, late: 20, failed: 0 };
  expect(verdict(before, after)).toMatchObject({ kind: 'failed' });
  expect(verdictOf({ before, beside: { in_slo: 60, late: 40, failed: 0 }, after })).toEqual({ kind: 'undecided' });
});

test('a version fails that is late where the one before is not, though that was late before the change', () => {
  const trial = {
    before: { in_slo: 100, late: 100, failed: 0 },
    beside: { in_slo: 100, late: 0, failed: 0 },
    after: { in_slo: 25, late: 20, failed: 0 },
  };
  expect(verdictOf(trial)).toEqual({
    kind: 'failed',
    reason: '55.6% of its 45 calls were answered within the SLO, 100% of the previous version meanwhile (0 failed)',
  });
});

test('compared with a hardly called version only failures count', () => {
  const before = { in_slo: 3, late: 0, failed: 0 };
  expect(verdict(before, { in_slo: 0, late: 20, failed: 0 })).toEqual({ kind: 'undecided' });
  expect(verdict(before, { in_slo: 10, late: 0, failed: 10 })).toMatchObject({ kind: 'failed' });
});

test('an equal version passes after enough answers, and 990 of 1000 such trials do', () => {
  let state = 7;
  const draw = (): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return state / 0x7fffffff;
  };
  let passed = 0;
  for (let trial = 0; trial < 1000; trial++) {
    const before = { in_slo: 180, late: 15, failed: 5 };
    const after = noAnswers();
    for (let call = 0; call < trialAnswersMax; call++) {
      const drawn = draw();
      after[drawn < 0.9 ? 'in_slo' : drawn < 0.975 ? 'late' : 'failed']++;
      const { kind } = verdict(before, after);
      if (kind !== 'undecided') {
        if (kind === 'passed') passed++;
        break;
      }
    }
  }
  expect(passed).toBeGreaterThan(990);
});

test('the latest answers forget the older ones', () => {
  const latest = new LatestAnswers();
  for (let call = 0; call < 5; call++) latest.add('failed', 3);
  latest.add('in_slo', 3);
  latest.add('late', 3);
  expect(latest.counts()).toEqual({ in_slo: 1, late: 1, failed: 1 });
});
