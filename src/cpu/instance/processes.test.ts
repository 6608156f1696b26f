import fc from 'fast-check';
import { expect, test } from 'vitest';
import { processForSession } from './processes.ts';

const drawn = fc.record({
  isHeldUp: fc.boolean(),
  isUsable: fc.boolean(),
  backlog: fc.nat(3),
  takesShort: fc.boolean(),
  bytes: fc.nat(3),
});
const candidates = fc
  .array(drawn, { maxLength: 6 })
  .map((all) => all.map((each) => ({ ...each, takesShort: each.takesShort || each.backlog === 0 })));
const sharedMax = fc.integer({ min: 1, max: 3 });

test('a session never goes to a process that is held up, or to one that it may not use', () => {
  fc.assert(
    fc.property(candidates, sharedMax, (all, most) => {
      const chosen = processForSession(all, most);
      expect(chosen === undefined || (chosen.isUsable && !chosen.isHeldUp)).toBe(true);
    }),
  );
});

test('a process is started only where none is idle, fewer than allowed are sound, and none stands in with little work', () => {
  fc.assert(
    fc.property(candidates, sharedMax, (all, most) => {
      const sound = all.filter((each) => !each.isHeldUp);
      const usable = sound.filter((each) => each.isUsable);
      if (processForSession(all, most) !== undefined || usable.length === 0) return;
      expect(usable.filter(({ backlog }) => backlog === 0)).toEqual([]);
      expect(sound.length).toBeLessThan(most);
      expect(all.length < most ? [] : usable.filter(({ takesShort }) => takesShort)).toEqual([]);
    }),
  );
});

test('functions spread over as many processes as allowed while the others have work', () => {
  const busy = { isHeldUp: false, isUsable: true, backlog: 1, takesShort: true, bytes: 1 };
  expect(processForSession([], 2)).toBeUndefined();
  expect(processForSession([busy], 2)).toBeUndefined();
  expect(processForSession([busy, { ...busy, bytes: 0 }], 2)?.bytes).toBe(0);
  // One of two is held up: the other has little work, or takes long.
  const held = { ...busy, isHeldUp: true };
  expect(processForSession([held, busy], 2)).toBe(busy);
  expect(processForSession([held, { ...busy, takesShort: false }], 2)).toBeUndefined();
});
