/**
 * The paths of CONTRIBUTING.md's "Find your way" are right: every hop names the next one, and the last has the symbol.
 */
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(root, file), 'utf8');

interface Task {
  readonly what: string;
  readonly hops: readonly string[];
  readonly symbol: string;
}

const [, section = ''] = /^## Find your way$([\s\S]*?)^## /m.exec(read('CONTRIBUTING.md')) ?? [];
const tasks = [...section.matchAll(/^\| ([a-z][^|]*?) +\| (`[^|]*?) +\|$/gm)].map(([, what = '', path = '']): Task => {
  const words = [...path.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word);
  return { what, hops: words.slice(0, -1), symbol: words.at(-1) ?? '' };
});

/** The errors of a path. */
function wrongWith({ hops, symbol }: Task): string[] {
  const missing = hops.filter((file) => !existsSync(join(root, file)));
  if (missing.length > 0) return missing.map((file) => `${file} does not exist`);
  const wrong = hops
    .slice(1)
    .filter((file, index) => !read(hops[index]!).includes(basename(file, '.ts')))
    .map((file) => `the hop before ${file} does not name it`);
  if (!read(hops.at(-1)!).includes(symbol)) wrong.push(`${hops.at(-1)} has no ${symbol}`);
  return wrong;
}

test('there are ten tasks of at most three hops', () => {
  expect(tasks).toHaveLength(10);
  expect(tasks.filter(({ hops }) => hops.length === 0 || hops.length > 3)).toEqual([]);
});

test.each(tasks)('the path to $what leads there', (task) => {
  expect(wrongWith(task)).toEqual([]);
});

test('a wrong path is detected', () => {
  const what = 'get lost';
  expect(wrongWith({ what, hops: ['docs/gone.md'], symbol: 'x' })).toEqual(['docs/gone.md does not exist']);
  expect(wrongWith({ what, hops: ['docs/client.md', 'src/gpu/gate/compare.ts'], symbol: 'noSuchSymbol' })).toEqual([
    'the hop before src/gpu/gate/compare.ts does not name it',
    'src/gpu/gate/compare.ts has no noSuchSymbol',
  ]);
});
