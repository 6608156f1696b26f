import fc from 'fast-check';
import { expect, test } from 'vitest';
import { KeyedMutex, Semaphore } from './semaphore.ts';

test('a mutex runs the work of a key in order, one at a time, and goes on after work that fails', async () => {
  await fc.assert(
    fc.asyncProperty(fc.scheduler(), fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 12 }), async (s, keys) => {
      const mutex = new KeyedMutex();
      const running = new Map<string, number>();
      const finished = new Map<string, number[]>();
      const all = Promise.allSettled(
        keys.map((key, index) =>
          mutex.run(key, async () => {
            expect(running.get(key) ?? 0).toBe(0);
            running.set(key, 1);
            await s.schedule(Promise.resolve(), `${key}${index}`);
            running.set(key, 0);
            finished.set(key, [...(finished.get(key) ?? []), index]);
            if (index % 3 === 0) throw new Error('work that fails');
          }),
        ),
      );
      await s.waitFor(all);
      const wrong = (await all).filter((result, index) => (result.status === 'rejected') !== (index % 3 === 0));
      expect(wrong).toEqual([]);
      for (const indices of finished.values()) {
        expect(indices).toEqual(indices.toSorted((left, right) => left - right));
      }
    }),
  );
});

test('a semaphore never exceeds its permits, serves callers in order, and loses no permit', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.integer({ min: 1, max: 3 }),
      fc.array(fc.record({ isExclusive: fc.boolean(), fails: fc.boolean(), isAborted: fc.boolean() }), {
        maxLength: 12,
      }),
      async (s, permits, callers) => {
        const semaphore = new Semaphore(permits, () => new Error('gone'));
        const begun: number[] = [];
        let shared = 0;
        let exclusive = 0;
        const work = callers.map(async ({ isExclusive, fails, isAborted }, index) => {
          const control = new AbortController();
          const locked = semaphore.lock(control.signal, isExclusive);
          if (isAborted) control.abort();
          using _lease = await locked;
          if (isExclusive) exclusive++;
          else shared++;
          expect(shared).toBeLessThanOrEqual(exclusive > 0 ? 0 : permits);
          expect(exclusive).toBeLessThanOrEqual(1);
          if (!isExclusive) begun.push(index);
          await s.schedule(Promise.resolve(), String(index));
          if (isExclusive) exclusive--;
          else shared--;
          if (fails) throw new Error('work that fails');
        });
        const all = Promise.allSettled(work);
        await s.waitFor(all);
        for (const [index, result] of (await all).entries()) {
          const { fails, isAborted } = callers[index]!;
          // An abort after the caller got its permit has no effect, so such a caller may end either way.
          const allowed = [...(fails ? ['work that fails'] : ['']), ...(isAborted ? ['gone'] : [])];
          expect(allowed).toContain(result.status === 'rejected' ? (result.reason as Error).message : '');
        }
        expect(begun).toEqual(begun.toSorted((left, right) => left - right));
        expect(semaphore.isTaken).toBe(false);
      },
    ),
  );
});

test('a caller that leaves the queue does not block exclusive work behind it', async () => {
  const semaphore = new Semaphore(2);
  const first = await semaphore.lock(undefined, true);
  const control = new AbortController();
  const waiting = semaphore.lock(control.signal);
  const exclusive = semaphore.lock(undefined, true);
  control.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  first[Symbol.dispose]();
  (await exclusive)[Symbol.dispose]();
  expect(semaphore.isTaken).toBe(false);
});

test('an already aborted signal takes no permit', async () => {
  const semaphore = new Semaphore();
  await expect(semaphore.lock(AbortSignal.abort(new Error('late')))).rejects.toThrow('late');
  expect(semaphore.isTaken).toBe(false);
});

/** Asks for a turn for each letter, its key; returns who has worked, and what ends the work of one. */
function turnsOf(permits: number, keys: readonly string[], signals: readonly (AbortSignal | undefined)[] = []) {
  const [mutex, semaphore] = [new KeyedMutex(), new Semaphore(permits)];
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const failed: unknown[] = [];
  for (const [index, key] of keys.entries()) {
    const work = async (): Promise<void> => {
      using _turn = await semaphore.lock(signals[index]);
      begun.push(key);
      await new Promise<void>((resolve) => ends.set(key, resolve));
    };
    mutex.run(key, work, signals[index]).catch((error: unknown) => failed.push(error));
  }
  const settled = async (): Promise<string> => {
    await new Promise(setImmediate);
    return begun.join('');
  };
  const end = async (key: string): Promise<string> => {
    ends.get(key)!();
    return await settled();
  };
  return { settled, end, failed };
}

test('permits behind a mutex for each key go to keys in rotation', async () => {
  const { settled, end } = turnsOf(2, ['a', 'a', 'a', 'b', 'c']);
  expect(await settled()).toBe('ab');
  expect(await end('a')).toBe('abc');
  expect(await end('c')).toBe('abca');
  expect(await end('a')).toBe('abcaa');
});

test('turns of a key are lost by those who leave, or have left, and by nobody else', async () => {
  const leaving = new AbortController();
  const signals = [undefined, leaving.signal, undefined, undefined, AbortSignal.abort('gone')];
  const { settled, end, failed } = turnsOf(1, ['a', 'b', 'a', 'c', 'a'], signals);
  expect(await settled()).toBe('a');
  leaving.abort('left');
  await settled();
  expect(failed).toEqual(['gone', 'left']);
  expect(await end('a')).toBe('ac');
  expect(await end('c')).toBe('aca');
});
