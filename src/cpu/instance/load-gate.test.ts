import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LoadGate, needOfLoad, needOfPreparer, type Load, type LoadNeed } from './load-gate.ts';

const megabyte = 1e6;

function gate(loadsBytes: number, left: { bytes: number }): LoadGate {
  return new LoadGate({ loadsBytes, leftBytes: () => left.bytes });
}

/** Of something for which there is room. */
const enter = async (loads: LoadGate, need: LoadNeed): Promise<Load<true>> =>
  (await loads.enter({ need, open: () => true as const, waits: () => false }))!;

const tooLarge = (): true => {
  throw new Error('too large');
};

/** Lets what waits begin. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('loads', () => {
  test('begin at once within their part of the memory, without a look at the machine', async () => {
    const loads = new LoadGate({
      loadsBytes: 400 * megabyte,
      leftBytes: () => {
        throw new Error('the machine was asked');
      },
    });
    const need = needOfLoad(100 * megabyte, false);
    expect(need).toEqual({ peakBytes: 250 * megabyte, extraBytes: 120 * megabyte });
    await Promise.all([enter(loads, need), enter(loads, need), enter(loads, need)]);
  });

  test('begin one after the other where what is left is below their peaks together', async () => {
    const loads = gate(0, { bytes: 300 * megabyte });
    const begun: number[] = [];
    const need = needOfLoad(100 * megabyte, false);
    const leases: Disposable[] = [];
    for (const number of [1, 2, 3]) {
      const begin = async (): Promise<void> => {
        leases.push(await enter(loads, need));
        begun.push(number);
      };
      void begin();
    }
    await settled();
    expect(begun).toEqual([1]);
    leases[0]?.[Symbol.dispose]();
    leases[0]?.[Symbol.dispose]();
    await settled();
    expect(begun).toEqual([1, 2]);
    leases[1]?.[Symbol.dispose]();
    await settled();
    expect(begun).toEqual([1, 2, 3]);
  });

  test('one begins alone even if less is left than it needs, after others were asked to make room', async () => {
    let asked = 0;
    const loads = new LoadGate({ loadsBytes: 0, leftBytes: () => 0, onShort: () => asked++ });
    using _lease = await enter(loads, needOfLoad(100 * megabyte, false));
    expect(asked).toBe(1);
  });

  test('an optional one is left out instead of waiting', async () => {
    const left = { bytes: 100 * megabyte };
    const loads = gate(0, left);
    expect(loads.tryEnter(needOfPreparer(100 * megabyte))).toBeUndefined();
    left.bytes = 450 * megabyte;
    const lease = loads.tryEnter(needOfPreparer(100 * megabyte));
    expect(lease).toBeDefined();
    expect(loads.tryEnter(needOfPreparer(100 * megabyte))).toBeUndefined();
    lease?.[Symbol.dispose]();
    expect(loads.tryEnter(needOfPreparer(100 * megabyte))).toBeDefined();
  });

  test('for whose sessions there is no room wait in their order while calls want them, and no spare one waits', async () => {
    const loads = gate(Infinity, { bytes: Infinity });
    const need = needOfLoad(megabyte, false);
    let room = 0;
    const begun: string[] = [];
    const wanted = new Set(['a', 'b', 'c']);
    const open = (): true | undefined => (room > 0 && room-- > 0 ? true : undefined);
    const begin = async (name: string): Promise<void> => {
      using load = await loads.enter({ need, open, waits: () => wanted.has(name) });
      begun.push(load === undefined ? `${name} left` : name);
    };
    const all = Promise.all(['a', 'b', 'spare', 'c'].map(begin));
    await settled();
    expect(begun).toEqual(['spare left']);
    room = 1;
    loads.retry();
    await settled();
    await settled();
    expect(begun).toEqual(['spare left', 'a']);
    wanted.delete('b');
    loads.retry();
    await settled();
    await settled();
    expect(begun).toEqual(['spare left', 'a', 'b left']);
    room = 1;
    loads.retry();
    await all;
    expect(begun.at(-1)).toBe('c');
  });

  test('whose session can never fit fails with its own error, and the next one begins', async () => {
    const loads = gate(Infinity, { bytes: Infinity });
    const need = needOfLoad(megabyte, false);
    await expect(loads.enter({ need, open: tooLarge, waits: () => true })).rejects.toThrow('too large');
    expect(await enter(loads, need)).toMatchObject({ opened: true });
  });

  test('all of any sizes begin in their order, and those under way fit unless there is only one', async () => {
    const sizes = fc.array(fc.tuple(fc.integer({ min: 0, max: 1000 }), fc.boolean()), { minLength: 1, maxLength: 20 });
    await fc.assert(
      fc.asyncProperty(
        sizes,
        fc.integer({ min: 0, max: 3000 }),
        fc.integer({ min: 0, max: 2000 }),
        async (all, left, part) => {
          const loads = gate(part * megabyte, { bytes: left * megabyte });
          let misfits = 0;
          const begun: number[] = [];
          const underWay = new Map<number, { peakBytes: number; extraBytes: number }>();
          const leases: (() => void)[] = [];
          for (const [number, [size, isMapped]] of all.entries()) {
            const need = needOfLoad(size * megabyte, isMapped);
            const begin = async (): Promise<void> => {
              const lease = await enter(loads, need);
              begun.push(number);
              underWay.set(number, need);
              const sum = (of: 'peakBytes' | 'extraBytes'): number =>
                [...underWay.values()].reduce((bytes, each) => bytes + each[of], 0);
              const fits = sum('extraBytes') <= part * megabyte || sum('peakBytes') <= left * megabyte;
              misfits += fits || underWay.size === 1 ? 0 : 1;
              leases.push(() => {
                underWay.delete(number);
                lease[Symbol.dispose]();
              });
            };
            void begin();
          }
          for (let ended = 0; ended < all.length; ended++) {
            await settled();
            leases.shift()?.();
          }
          expect(begun).toEqual(all.map((_, number) => number));
          expect(misfits).toBe(0);
        },
      ),
      { numRuns: 50 },
    );
  });
});
