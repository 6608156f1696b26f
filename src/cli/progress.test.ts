import { expect, test } from 'vitest';
import { timeLeft } from './progress.ts';

test('the time left follows from the mean rate so far', () => {
  expect(timeLeft(25, 100, 4000)).toBe(' | 12 s left');
  expect(timeLeft(50, 100, 600_000)).toBe(' | 10 min 0 s left');
});

test('no time left is shown for too little work, or while the host works', () => {
  expect(timeLeft(0, 100, 4000)).toBe('');
  expect(timeLeft(1, 100, 4000)).toBe('');
  expect(timeLeft(100, 100, 4000)).toBe('');
});

test('the time left is never 0 before the end', () => {
  expect(timeLeft(999, 1000, 10_000)).toBe(' | 1 s left');
});
