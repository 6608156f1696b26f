/** Blank processes that die before anything is loaded into them, with processes that a test starts and ends. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import fc from 'fast-check';
import { BlankSet, type BlankProcess } from './blank-set.ts';
import type { Death } from './tasks.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setImmediate', 'clearImmediate'] }));
afterEach(() => void vi.useRealTimers());

class FakeProcess implements BlankProcess {
  hasStarted = false;
  #onStarted: (() => void)[] = [];
  readonly #onDead = new Set<(death: Death) => void>();

  whenStarted(listener: () => void): void {
    this.#onStarted.push(listener);
  }

  onDead(listener: (death: Death) => void): () => void {
    this.#onDead.add(listener);
    return () => this.#onDead.delete(listener);
  }

  start(): void {
    this.hasStarted = true;
    for (const listener of this.#onStarted) listener();
  }

  kill(reason: string): void {
    for (const listener of this.#onDead) listener({ reason, suspect: undefined, crash: undefined });
  }
}

/** A set of this size, its processes so far, and what it warned of. */
function setOf(size: number, mayAdd: (started: number) => boolean = () => true) {
  const processes: FakeProcess[] = [];
  const warnings: string[] = [];
  const start = (): FakeProcess => {
    const made = new FakeProcess();
    processes.push(made);
    return made;
  };
  const set = new BlankSet(
    size,
    (line) => warnings.push(line),
    start,
    () => mayAdd(processes.length),
  );
  set.refill();
  vi.advanceTimersByTime(0);
  return { set, processes, warnings, last: (): FakeProcess => processes.at(-1)! };
}

const starved = 'it stood still before it had started (for 2000 ms)';

test('ten deaths in a row of starved blanks are warned of from the third on, each with the growing pause before the next', () => {
  const { processes, warnings, last } = setOf(1);
  const pausesMs: number[] = [];
  for (let deaths = 1; deaths <= 10; deaths++) {
    last().kill(starved);
    vi.advanceTimersByTime(0);
    let pauseMs = 0;
    while (processes.length === deaths) {
      vi.advanceTimersByTime(1000);
      pauseMs += 1000;
    }
    pausesMs.push(pauseMs);
  }
  expect(pausesMs).toEqual([0, 0, 1, 2, 4, 8, 16, 32, 60, 60].map((seconds) => seconds * 1000));
  expect(warnings).toHaveLength(8);
  expect(warnings[0]).toBe(
    `processes that are kept ready for functions died 3 times in a row; the next starts in 1s: ${starved}`,
  );
  expect(warnings.at(-1)).toMatch(/died 10 times in a row; the next starts in 1m/);
});

test('a blank that has started ends the row of deaths', () => {
  const { warnings, last } = setOf(1);
  for (let deaths = 1; deaths <= 10; deaths++) {
    // Its own death is the first of the next row.
    if (deaths % 2 === 0) last().start();
    last().kill(starved);
    vi.advanceTimersByTime(60_000);
  }
  expect(warnings).toEqual([]);
});

test('blanks that die, whenever they do, are replaced only where there is room: nothing that serves makes room for them', () => {
  type Step = 'dies' | 'fills' | 'empties' | 'waits';
  const steps = fc.array(fc.constantFrom<Step>('dies', 'fills', 'empties', 'waits'), { maxLength: 60 });
  fc.assert(
    fc.property(steps, fc.integer({ min: 1, max: 3 }), (all, size) => {
      let hasRoom = true;
      const asked: number[] = [];
      const { set, processes, last } = setOf(size, (started) => {
        asked.push(started);
        return hasRoom;
      });
      for (const step of all) {
        const before = processes.length;
        if (step === 'dies') last().kill(starved);
        else if (step === 'waits') vi.advanceTimersByTime(60_000);
        else hasRoom = step === 'empties';
        vi.advanceTimersByTime(0);
        // Each start was asked for, and none came while the room was taken.
        for (let started = before; started < processes.length; started++) expect(asked).toContain(started);
        expect(hasRoom || processes.length === before).toBe(true);
        expect(set.size).toBeLessThanOrEqual(size);
      }
      set.stop();
      vi.clearAllTimers();
    }),
  );
});
