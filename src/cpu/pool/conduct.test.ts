import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Conduct } from './conduct.ts';

const crash = { during: 'in a run of the model', isOfOneCall: true, isDivision: false };

const kinds = [
  'crash',
  'crash by a division',
  'crash beside others',
  'crash of joined calls',
  'timeout',
  'success',
  'error',
  'load',
] as const;
type Step = (typeof kinds)[number];
const steps = fc.array(fc.constantFrom(...kinds), { maxLength: 40 });

function happen(conduct: Conduct, what: Step, nowMs: number): void {
  switch (what) {
    case 'crash':
    case 'crash by a division':
    case 'crash beside others':
    case 'crash of joined calls': {
      const wasAlone = what !== 'crash beside others';
      conduct.ended(wasAlone, nowMs);
      const isOfOneCall = what !== 'crash of joined calls';
      const isDivision = what === 'crash by a division';
      conduct.crashed({ ...crash, isOfOneCall, isDivision }, 'it died', wasAlone, nowMs);
      return;
    }
    case 'timeout':
      conduct.ended(true, nowMs);
      return;
    case 'success':
    case 'error':
      conduct.answered(true, what === 'success');
      return;
    case 'load':
      conduct.forgive();
  }
}

describe('a function is stopped', () => {
  test('exactly by a proven crash after another one, without a success or a load between them, and by no division once it has answered', () => {
    fc.assert(
      fc.property(steps, (taken) => {
        const conduct = new Conduct();
        let crashes = 0;
        let isStopped = false;
        let hasAnswered = false;
        for (const [atMs, what] of taken.entries()) {
          happen(conduct, what, atMs);
          const isDivision = what === 'crash by a division';
          const counts = what.startsWith('crash') && !(isDivision && hasAnswered);
          if (counts) crashes++;
          else if (what === 'success' || what === 'load') crashes = 0;
          hasAnswered ||= what === 'success';
          const isProof = counts && (isDivision || what === 'crash');
          isStopped = (isStopped && crashes > 0) || (isProof && crashes > 1);
          expect(conduct.stopped(atMs) !== undefined, `${atMs} ${what}`).toBe(isStopped);
        }
      }),
    );
  });

  test('until it is loaded, if it has never answered', () => {
    const conduct = new Conduct();
    for (let atMs = 0; atMs < 2; atMs++) happen(conduct, 'crash', atMs);
    expect(conduct.stopped(1e12)).toEqual({
      crashes: 2,
      reason: 'it died in a run of the model',
      untilMs: Infinity,
    });
    conduct.forgive();
    expect(conduct.stopped(1)).toBeUndefined();
    expect(conduct.waitMs(1)).toBe(0);
    happen(conduct, 'crash', 2);
    expect(conduct.stopped(2)).toBeUndefined();
  });

  test('for a pause, if it has answered: twice as long after each further crash, and five minutes at most', () => {
    const conduct = new Conduct();
    happen(conduct, 'success', 0);
    happen(conduct, 'crash', 0);
    const pausesMs: number[] = [];
    for (let atMs = 0; pausesMs.length < 12;) {
      happen(conduct, 'crash', atMs);
      const { untilMs = 0 } = conduct.stopped(atMs) ?? {};
      pausesMs.push(untilMs - atMs);
      atMs = untilMs;
      expect(conduct.stopped(atMs)).toBeUndefined();
    }
    expect(pausesMs.slice(0, 4)).toEqual([1000, 2000, 4000, 8000]);
    expect(pausesMs.at(-1)).toBe(300_000);
    happen(conduct, 'success', 1e7);
    happen(conduct, 'crash', 1e7);
    expect(conduct.stopped(1e7)).toBeUndefined();
  });
});
