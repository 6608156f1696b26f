/** Long test files start first, and files of one project stay together. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { TestSpecification, Vitest } from 'vitest/node';
import LongestFirst, { longest } from '../longest-first.ts';

const root = join(import.meta.dirname, '../..');

test('every file in the list of long ones exists', () => {
  expect(longest.filter((file) => !existsSync(join(root, file)))).toEqual([]);
});

test('the long files start first, those beside the code last, and no project is taken apart', async () => {
  const cache = { getFileTestResults: () => undefined, getFileStats: () => ({ size: 1 }) };
  const sequencer = new LongestFirst({ config: { root }, cache } as unknown as Vitest);
  const spec = (name: string, file: string): TestSpecification =>
    ({
      project: { name, config: { isolate: name === 'alone', sequence: { groupOrder: 0 } } },
      moduleId: join(root, file),
    }) as unknown as TestSpecification;
  const [first = '', second = '', third = ''] = longest;
  const given = [
    spec('shared', 'src/tools/units.test.ts'),
    spec('shared', 'test/plan/short.test.ts'),
    spec('shared', 'src/process/process.test.ts'),
    spec('shared', second),
    spec('shared', 'src/cpu/pools.test.ts'),
    spec('alone', first),
    spec('shared', third),
  ];
  const sorted = await sequencer.sort(given);
  expect(sorted.map(({ moduleId }) => moduleId.slice(root.length + 1))).toEqual([
    first,
    second,
    third,
    'src/cpu/pools.test.ts',
    'test/plan/short.test.ts',
    'src/tools/units.test.ts',
    'src/process/process.test.ts',
  ]);
});
