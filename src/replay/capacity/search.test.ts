import fc from 'fast-check';
import { expect, test } from 'vitest';
import { capacitySteps, firstEnough } from './search.ts';

test('the first sufficient size is found from any guess, with few replays and none twice', async () => {
  const cases = fc.record({ count: fc.integer({ min: 1, max: 300 }), first: fc.nat(320), guess: fc.nat(320) });
  await fc.assert(
    fc.asyncProperty(cases, async ({ count, first, guess }) => {
      const asked: number[] = [];
      const found = await firstEnough(count, guess, async (index) => {
        asked.push(index);
        return await Promise.resolve(index >= first);
      });
      expect(found).toBe(first < count ? first : undefined);
      expect(new Set(asked).size).toBe(asked.length);
      expect(asked.length).toBeLessThanOrEqual(2 * Math.ceil(Math.log2(count + 1)) + 2);
      // The next smaller size was tried as well: the answer depends on it.
      expect(found === undefined || found === 0 || asked.includes(found - 1)).toBe(true);
    }),
  );
});

test('sizes grow by a GPU within a host and then by a host; without GPUs by a core', () => {
  expect(capacitySteps({ gpusPerHost: 2, coresPerHost: 16, hostsMax: 3 })).toEqual([
    { hosts: 1, gpus: 1, cores: 16 },
    { hosts: 1, gpus: 2, cores: 16 },
    { hosts: 2, gpus: 4, cores: 16 },
    { hosts: 3, gpus: 6, cores: 16 },
  ]);
  expect(capacitySteps({ gpusPerHost: 0, coresPerHost: 2, hostsMax: 2 })).toEqual([
    { hosts: 1, gpus: 0, cores: 1 },
    { hosts: 1, gpus: 0, cores: 2 },
    { hosts: 2, gpus: 0, cores: 2 },
  ]);
});
