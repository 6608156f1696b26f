import { expect, test } from 'vitest';
import { Cancellation } from './cancellation.ts';

test('a cancellation tells its latest listener once', () => {
  const cancellation = new Cancellation();
  const told: string[] = [];
  cancellation.addEventListener('abort', () => told.push('first'));
  cancellation.addEventListener('abort', () => told.push('second'));
  cancellation.abort();
  cancellation.abort();
  expect({ told, aborted: cancellation.aborted }).toEqual({ told: ['second'], aborted: true });
});

test('a cancellation tells no listener that was removed', () => {
  const cancellation = new Cancellation();
  let isTold = false;
  cancellation.addEventListener('abort', () => (isTold = true));
  cancellation.removeEventListener();
  cancellation.abort();
  expect(isTold).toBe(false);
});
