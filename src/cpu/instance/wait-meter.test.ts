import fc from 'fast-check';
import { expect, test } from 'vitest';
import { WaitMeter } from './wait-meter.ts';

const mebibyte = 2 ** 20;

/** A process whose readings are sums of what it did. */
function measured() {
  const now = { coreMs: 5, usedMs: 70, blocks: 9 };
  const meter = new WaitMeter(() => ({ ...now }));
  return (worked: { readonly usedMs?: number; readonly coreMs?: number; readonly diskMs?: number; bytes?: number }) => {
    const { usedMs = 0, coreMs = 0, diskMs = 0, bytes = 0 } = worked;
    now.coreMs += coreMs;
    now.usedMs += usedMs;
    now.blocks += bytes / 512;
    return meter.of(usedMs + coreMs + diskMs);
  };
}

test('time without a core and time for the disk are told apart from work', () => {
  const message = measured();
  expect(message({ usedMs: 20 })).toEqual({ coreMs: 0, disk: undefined });
  expect(message({ usedMs: 20, coreMs: 300 })).toEqual({ coreMs: 300, disk: undefined });
  expect(message({ usedMs: 20, coreMs: 30, diskMs: 400, bytes: mebibyte })).toEqual({
    coreMs: 30,
    disk: { bytes: mebibyte, ms: 400 },
  });
});

test('a wait without a read of the disk is none for the disk: a handler may wait for anything', () => {
  expect(measured()({ usedMs: 1, diskMs: 150, bytes: 4096 }).disk).toBeUndefined();
  expect(measured()({ usedMs: 20, bytes: mebibyte }).disk).toBeUndefined();
});

test('messages too short for a reading never make the waits of a later one longer', () => {
  const short = fc.record({
    usedMs: fc.double({ min: 0, max: 0.4, noNaN: true }),
    coreMs: fc.double({ min: 0, max: 0.4, noNaN: true }),
  });
  fc.assert(
    fc.property(fc.array(short), fc.nat(100), fc.nat(100), fc.nat(100), (before, usedMs, coreMs, diskMs) => {
      fc.pre(usedMs + coreMs + diskMs >= 1);
      const message = measured();
      for (const each of before) expect(message(each)).toEqual({ coreMs: 0, disk: undefined });
      const waits = message({ usedMs, coreMs, diskMs, bytes: mebibyte });
      expect(waits.coreMs).toBeLessThanOrEqual(coreMs + 1e-6);
      expect(waits.disk?.ms ?? 0).toBeLessThanOrEqual(diskMs + 1e-6);
      const least = before.reduce((sum, short) => sum - short.usedMs, coreMs);
      expect(waits.coreMs).toBeGreaterThanOrEqual(least - 1e-6);
    }),
  );
});
