import { describe, expect, test } from 'vitest';
import { FairTurns } from './fair-turns.ts';

const never = new AbortController().signal;

/** Asks for a turn for each letter, the caller's name; returns who has worked, and what ends the work of one. */
function workOf(turns: FairTurns, callers: readonly string[], signals: readonly AbortSignal[] = []) {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const failed: unknown[] = [];
  const work = async (caller: string, signal: AbortSignal): Promise<void> => {
    try {
      const lease = await turns.lock(caller, signal);
      begun.push(caller);
      ends.set(caller, () => lease[Symbol.dispose]());
    } catch (error) {
      failed.push(error);
    }
  };
  for (const [index, caller] of callers.entries()) {
    void work(caller, signals[index] ?? never);
  }
  const end = async (caller: string): Promise<string> => {
    ends.get(caller)!();
    return await settled();
  };
  const settled = async (): Promise<string> => {
    await new Promise(setImmediate);
    return begun.join('');
  };
  return { settled, end, failed };
}

describe('turns', () => {
  test('turns go to callers in rotation, one at a time for each', async () => {
    const { settled, end } = workOf(new FairTurns(2), ['a', 'a', 'a', 'b', 'c']);
    expect(await settled()).toBe('ab');
    expect(await end('a')).toBe('abc');
    expect(await end('c')).toBe('abca');
    expect(await end('a')).toBe('abcaa');
  });

  test('turns are lost by those who leave, and by nobody else', async () => {
    const leaving = new AbortController();
    const { settled, end, failed } = workOf(
      new FairTurns(1),
      ['a', 'b', 'a', 'c'],
      [never, leaving.signal, never, never],
    );
    expect(await settled()).toBe('a');
    leaving.abort('left');
    await settled();
    expect(failed).toEqual(['left']);
    expect(await end('a')).toBe('ac');
    expect(await end('c')).toBe('aca');
  });

  test('turns are refused to a caller who has left already', async () => {
    await expect(new FairTurns(1).lock('a', AbortSignal.abort('left'))).rejects.toBe('left');
  });
});
