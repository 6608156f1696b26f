import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { CallerWatch } from './index.ts';

test('a signal gets one listener, however many calls wait on it', () => {
  const left: number[] = [];
  const watch = new CallerWatch<number>((work) => {
    left.push(work);
    watch.delete(controller.signal, work);
  });
  const controller = new AbortController();
  for (let work = 0; work < 100; work++) watch.add(controller.signal, work);
  for (let work = 0; work < 90; work++) watch.delete(controller.signal, work);
  expect(getEventListeners(controller.signal, 'abort')).toHaveLength(1);
  controller.abort();
  expect(left).toEqual([90, 91, 92, 93, 94, 95, 96, 97, 98, 99]);
});

test('only the work of the caller that leaves is reported', () => {
  const left: string[] = [];
  const watch = new CallerWatch<string>((work) => left.push(work));
  const [one, other] = [new AbortController(), new AbortController()];
  watch.add(one.signal, 'one');
  watch.add(other.signal, 'other');
  other.abort();
  expect(left).toEqual(['other']);
});
