import fc from 'fast-check';
import { expect, test } from 'vitest';
import { afterFailure, afterHang, breakerWords, failuresMax, isOpen, type Breaker } from './circuit-breaker.ts';

function failed(times: number, nowMs: number, reason = 'no'): Breaker | undefined {
  let breaker: Breaker | undefined;
  for (let count = 0; count < times; count++) breaker = afterFailure(breaker, reason, nowMs);
  return breaker;
}

test('two failed runs leave the breaker closed, the third opens it for two seconds', () => {
  expect(isOpen(undefined, 0)).toBe(false);
  expect(isOpen(failed(2, 0), 0)).toBe(false);
  const breaker = failed(3, 1000, 'too many blocks')!;
  expect(isOpen(breaker, 2999)).toBe(true);
  expect(isOpen(breaker, 3000)).toBe(false);
  expect(breakerWords(breaker, 1000)).toBe(
    '3 GPU runs failed in a row, the last with: too many blocks; retried in 2 s',
  );
});

test('one run that hangs opens the breaker for five minutes', () => {
  const breaker = afterHang(undefined, 'a run did not end', 0);
  expect(isOpen(breaker, 299_999)).toBe(true);
  expect(isOpen(breaker, 300_000)).toBe(false);
  expect(breakerWords(breaker, 0)).toBe('a run did not end; retried in 300 s');
});

test('the failure after a pause doubles the next pause', () => {
  const breaker = afterFailure(failed(3, 0), 'no', 2000);
  expect(breaker.untilMs).toBe(6000);
});

test('pauses never shrink while runs fail, and never last longer than five minutes', () => {
  fc.assert(
    fc.property(fc.integer({ min: failuresMax, max: 40 }), fc.nat(1e6), (failures, nowMs) => {
      const pauseMs = (times: number): number => failed(times, nowMs)!.untilMs - nowMs;
      expect(pauseMs(failures)).toBeGreaterThanOrEqual(pauseMs(failures - 1));
      expect(pauseMs(failures)).toBeLessThanOrEqual(300_000);
    }),
  );
});
