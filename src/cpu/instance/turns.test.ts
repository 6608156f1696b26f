import { expect, test } from 'vitest';
import { Turns, type TurnTaker } from './turns.ts';

/** A process that works through its messages one by one on a clock of its own, and its takers. */
class Bench {
  readonly turns = new Turns();
  readonly done: string[] = [];
  readonly #messages: { readonly name: string; readonly isLong: boolean; readonly end: () => void }[] = [];

  taker(name: string, count: number, ms: number, isShort = false): TurnTaker & { ask(): void } {
    let left = count;
    const taker = {
      isShort,
      virtualMs: 0,
      onTurn: () => taker.ask(),
      ask: () => {
        while (left > 0 && this.turns.take(taker)) {
          left--;
          const end = (): void => void (taker.virtualMs += ms);
          this.#messages.push({ name, isLong: this.turns.begun(), end });
        }
      },
    };
    return taker;
  }

  get ready(): number {
    return this.#messages.length;
  }

  endOne(): void {
    const message = this.#messages.shift();
    if (message === undefined) return;
    this.turns.ended(message.isLong);
    message.end();
    this.done.push(message.name);
    this.turns.offer();
  }

  run(messages: number): string {
    for (let i = 0; i < messages; i++) this.endOne();
    return this.done.join('');
  }
}

test('a taker with endless messages delays another by one', () => {
  const bench = new Bench();
  bench.taker('a', 1000, 5).ask();
  bench.run(20);
  bench.taker('b', 1, 5).ask();
  expect(bench.run(2).slice(-2)).toBe('ab');
});

test('a taker with long messages gets its turn beside endless short messages', () => {
  const bench = new Bench();
  bench.taker('s', Infinity, 1, true).ask();
  bench.taker('l', 2, 5).ask();
  // Behind the eight queued messages: by then the other taker has had 8 ms, and this one less.
  expect(bench.run(20)).toBe(`${'s'.repeat(8)}ll${'s'.repeat(10)}`);
});

test('the time of a process is shared equally, however long the messages of each are', () => {
  const bench = new Bench();
  bench.taker('a', 1000, 10).ask();
  bench.taker('b', 1000, 1).ask();
  const done = bench.run(220);
  const count = (name: string): number => done.split(name).length - 1;
  expect(Math.abs(count('a') * 10 - count('b'))).toBeLessThanOrEqual(20);
});

test('a taker that was idle gets no extra turns for it', () => {
  const bench = new Bench();
  bench.taker('a', 1000, 1).ask();
  bench.run(100);
  bench.taker('b', 1000, 1).ask();
  const after = bench.run(20).slice(-20);
  expect(after.split('b').length - 1).toBeLessThanOrEqual(11);
});

test('up to eight short messages are queued, and none behind a long one', () => {
  const bench = new Bench();
  bench.taker('s', 100, 0.1, true).ask();
  expect(bench.ready).toBe(8);
  const other = new Bench();
  other.taker('l', 100, 50).ask();
  other.taker('s', 100, 0.1, true).ask();
  expect(other.ready).toBe(1);
});

test('a taker that leaves gets no turn', () => {
  const bench = new Bench();
  bench.taker('a', 2, 1).ask();
  const gone = bench.taker('g', 5, 1);
  gone.ask();
  bench.turns.leave(gone);
  expect(bench.run(5)).toBe('aa');
});
