import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { RequestTurns } from './request-turns.ts';

/** Takes 3 ms of the clock. */
function takes3Ms(): void {
  vi.advanceTimersByTime(3);
}

test('requests that come at once are begun in slices and in their order, with a turn of the event loop between two', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  try {
    const turns = new RequestTurns();
    const begun: number[] = [];
    for (let request = 0; request < 10; request++) {
      turns.begin(() => {
        begun.push(request);
        takes3Ms();
      });
    }
    const counts = [begun.length];
    while (begun.length < 10) {
      await nextTurn();
      counts.push(begun.length);
    }
    expect(counts).toEqual([3, 6, 9, 10]);
    expect(begun).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // The next one, by itself, waits for nobody.
    await nextTurn();
    turns.begin(() => begun.push(10));
    expect(begun.at(-1)).toBe(10);
  } finally {
    vi.useRealTimers();
  }
});
