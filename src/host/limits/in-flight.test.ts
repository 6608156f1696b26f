import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { OwnMemory } from '../../process/index.ts';
import { InFlightBytes, type HeldBytes, type InFlightOptions } from './in-flight.ts';

const kibibyte = 1024;
const limit = 8000 * kibibyte;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const memory = (more: Partial<OwnMemory> = {}): OwnMemory => ({
  collect: () => undefined,
  trim: () => undefined,
  ownBytes: () => 0,
  ...more,
});

/** A request, and its end. */
function request(account: InFlightBytes, bytesMin?: number): HeldBytes & { readonly end: () => void } {
  let over: (() => void) | undefined;
  const held = account.held((whenOver) => (over = whenOver), bytesMin);
  return { ...held, end: () => over?.() };
}

describe('the bytes of requests in progress', () => {
  test('never sum to more than the limit, and are all given back', () => {
    const step = fc.record({ who: fc.nat(4), more: fc.integer({ min: -3000, max: 5000 }), ends: fc.boolean() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        const account = new InFlightBytes(limit, { memory: memory() });
        const all = Array.from({ length: 5 }, () => ({ ...request(account, 0), bytes: 0 }));
        for (const { who, more, ends } of steps) {
          const one = all[who]!;
          const bytes = Math.max(more * kibibyte, -one.bytes);
          const sum = all.reduce((others, other) => others + other.bytes, 0);
          let isTaken = true;
          try {
            one.grow(bytes);
          } catch {
            isTaken = false;
          }
          expect(isTaken).toBe(bytes <= 0 || sum + bytes <= limit);
          if (isTaken) one.bytes += bytes;
          if (!ends) continue;
          one.end();
          all[who] = { ...request(account, 0), bytes: 0 };
        }
        for (const { end } of all) end();
        expect(() => request(account).grow(limit)).not.toThrow();
      }),
    );
  });

  test('are collected once an eighth of the limit is garbage: of requests that are over, and of refused replies', () => {
    const collect = vi.fn<() => void>();
    const account = new InFlightBytes(limit, { memory: memory({ collect }) });
    const first = request(account);
    first.grow(999 * kibibyte);
    first.end();
    // What is refused before it is read is no garbage.
    expect(() => request(account).grow(limit + 1)).toThrow(/over the limit/);
    vi.runAllTimers();
    expect(collect).not.toHaveBeenCalled();
    expect(() => request(account).grow(limit + 1, true)).toThrow(/over the limit/);
    expect(collect).not.toHaveBeenCalled();
    vi.runAllTimers();
    expect(collect).toHaveBeenCalledTimes(1);
    // What a request gives back counts by what it says of it.
    const second = request(account);
    second.grow(3000 * kibibyte);
    second.grow(-1001 * kibibyte);
    vi.runAllTimers();
    expect(collect).toHaveBeenCalledTimes(1);
    second.grow(-1001 * kibibyte, true);
    vi.runAllTimers();
    expect(collect).toHaveBeenCalledTimes(2);
  });

  test('are no garbage as far as they were freed by themselves', () => {
    const collect = vi.fn<() => void>();
    const account = new InFlightBytes(limit, { memory: memory({ collect }) });
    for (const freed of [2000, 3000, 1001]) {
      const one = request(account);
      one.grow(2000 * kibibyte);
      one.freed(freed * kibibyte);
      one.end();
      vi.runAllTimers();
    }
    expect(collect).not.toHaveBeenCalled();
    const last = request(account);
    last.grow(2000 * kibibyte);
    last.end();
    vi.runAllTimers();
    expect(collect).toHaveBeenCalledTimes(1);
  });

  test('are collected a tenth of the time at most, and then all together', () => {
    const collect = vi.fn<() => void>(() => void vi.advanceTimersByTime(100));
    const account = new InFlightBytes(limit, { memory: memory({ collect }) });
    const drop = (): void => {
      const one = request(account);
      one.grow(2000 * kibibyte);
      one.end();
    };
    drop();
    vi.advanceTimersByTime(1);
    expect(collect).toHaveBeenCalledTimes(1);
    for (let count = 0; count < 10; count++) drop();
    vi.advanceTimersByTime(898);
    expect(collect).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(10);
    expect(collect).toHaveBeenCalledTimes(2);
    vi.runAllTimers();
    expect(collect).toHaveBeenCalledTimes(2);
  });

  test('give what is free back to the system once it is an eighth of the limit, beside what is held', () => {
    const trim = vi.fn<() => void>(() => (ownBytes -= 1500 * kibibyte));
    let ownBytes = 90_000 * kibibyte;
    const account = new InFlightBytes(limit, { memory: memory({ trim, ownBytes: () => ownBytes }) });
    const held = request(account);
    const drop = (): void => {
      held.grow(1000 * kibibyte);
      held.grow(-1000 * kibibyte, true);
      vi.runAllTimers();
    };
    held.grow(3000 * kibibyte);
    ownBytes += 3999 * kibibyte;
    drop();
    expect(trim).not.toHaveBeenCalled();
    ownBytes += kibibyte;
    drop();
    expect(trim).toHaveBeenCalledTimes(1);
    // What could not be given back is no reason to try each time.
    ownBytes += 999 * kibibyte;
    drop();
    expect(trim).toHaveBeenCalledTimes(1);
  });

  describe('beside what the process has', () => {
    const mebibyte = 2 ** 20;
    let ownBytes = 100 * mebibyte;
    beforeEach(() => void (ownBytes = 100 * mebibyte));
    const alone = ({
      keptBytes,
      ...more
    }: Partial<OwnMemory> & Pick<InFlightOptions, 'keptBytes'> = {}): InFlightBytes =>
      new InFlightBytes(128 * mebibyte, {
        memory: memory({ ownBytes: () => ownBytes, ...more }),
        isAlone: true,
        ...(keptBytes && { keptBytes }),
      });

    test('are refused while it has more than the limit explains, and taken once it has less', () => {
      const account = alone();
      const asked = request(account);
      asked.grow(20 * mebibyte);
      ownBytes += (128 + 16 + 1) * mebibyte;
      // A look every 20 ms is enough.
      asked.grow(mebibyte);
      vi.advanceTimersByTime(20);
      expect(() => asked.grow(mebibyte)).toThrow(/what comes with them take memory over the limit/);
      asked.grow(mebibyte, true, true);
      ownBytes -= 2 * mebibyte;
      vi.advanceTimersByTime(20);
      asked.grow(mebibyte);
    });

    test('garbage is collected before anything is refused, and by what is counted now', () => {
      const collect = vi.fn<() => void>(() => void (ownBytes = 110 * mebibyte));
      const account = alone({ collect });
      const asked = request(account);
      asked.grow(50 * mebibyte);
      ownBytes = (100 + 50 + 32) * mebibyte;
      vi.advanceTimersByTime(20);
      asked.grow(mebibyte);
      expect(collect).not.toHaveBeenCalled();
      ownBytes += 2 * mebibyte;
      vi.advanceTimersByTime(20);
      asked.grow(mebibyte);
      expect(collect).toHaveBeenCalledTimes(1);
      ownBytes = 500 * mebibyte;
      vi.advanceTimersByTime(20);
      asked.grow(mebibyte);
      expect(collect).toHaveBeenCalledTimes(2);
    });

    test('garbage that may not be collected yet is no reason to refuse', () => {
      const collect = vi.fn<() => void>(() => {
        vi.advanceTimersByTime(30);
        ownBytes = 150 * mebibyte;
      });
      const account = alone({ collect });
      const asked = request(account);
      asked.grow(50 * mebibyte);
      for (let round = 0; round < 20; round++) {
        ownBytes += 300 * mebibyte;
        vi.advanceTimersByTime(20);
        asked.grow(1);
      }
      // Once in three times as long as it takes.
      expect(collect.mock.calls.length).toBeGreaterThan(3);
      expect(collect.mock.calls.length).toBeLessThan(10);
    });

    test('a host that has grown with nothing in flight is no host under attack', () => {
      const account = alone();
      ownBytes = 900 * mebibyte;
      vi.advanceTimersByTime(20);
      expect(() => request(account).grow(mebibyte)).not.toThrow();
    });

    test('a host that grows slowly while much is in flight all the time goes on taking calls', () => {
      const account = alone();
      const asked = request(account);
      asked.grow(100 * mebibyte);
      ownBytes += 100 * mebibyte;
      for (let minute = 0; minute < 60; minute++) {
        ownBytes += 4 * mebibyte;
        vi.advanceTimersByTime(60_000);
        asked.grow(1);
      }
      ownBytes += 100 * mebibyte;
      vi.advanceTimersByTime(20);
      expect(() => asked.grow(1)).toThrow(/over the limit/);
    });

    test('a host that is never quiet may grow by all that it keeps for its functions, and by no more', () => {
      let keptBytes = 0;
      const account = alone({ keptBytes: () => keptBytes });
      const asked = request(account);
      asked.grow(100 * mebibyte);
      ownBytes += 100 * mebibyte;
      // Thousands of functions are called for the first time within a second; some are removed, which gives no page back.
      for (const kept of [200, 400, 300, 500]) {
        keptBytes = kept * mebibyte;
        ownBytes = Math.max(ownBytes, 200 * mebibyte + keptBytes);
        vi.advanceTimersByTime(250);
        asked.grow(1);
      }
      ownBytes += 100 * mebibyte;
      vi.advanceTimersByTime(20);
      expect(() => asked.grow(1)).toThrow(/over the limit/);
    });

    test('a process that does other things as well is not judged by its size', () => {
      const account = new InFlightBytes(limit, { memory: memory({ ownBytes: () => ownBytes }) });
      const asked = request(account);
      asked.grow(1000 * kibibyte);
      ownBytes = 9000 * mebibyte;
      vi.advanceTimersByTime(20);
      expect(() => asked.grow(1000 * kibibyte)).not.toThrow();
    });
  });

  test('are refused to a request that is over: nobody waits for what it would still make', () => {
    const account = new InFlightBytes(limit, { memory: memory() });
    const asked = request(account);
    asked.grow(100 * kibibyte);
    asked.end();
    expect(() => asked.grow(kibibyte)).toThrow(/closed the connection/);
    asked.grow(-100 * kibibyte);
    expect(account.bytes).toBe(0);
  });

  test('leave an eighth beyond the limit for what an operator asks for', () => {
    const account = new InFlightBytes(limit, { memory: memory() });
    request(account).grow(limit);
    const asked = request(account);
    expect(() => asked.grow(64 * kibibyte, true)).toThrow(/over the limit/);
    asked.grow(1000 * kibibyte, true, true);
    expect(account.bytes).toBe(9000 * kibibyte);
    expect(() => asked.grow(64 * kibibyte, true, true)).toThrow(/over the limit/);
  });
});
