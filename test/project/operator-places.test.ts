/** What is known about an operator stands in its record, not in lists of names in many files. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { families } from '../../src/operators/index.ts';

const source = join(import.meta.dirname, '../../src');
/** Elsewhere such words are words. */
const engine = /^(onnx|operators|profile|rows|plan|gpu)\//;

/** The texts and the names of fields in a file, without its comments. */
function wordsOf(file: string): ReadonlySet<string> {
  const code = readFileSync(file, 'utf8').replaceAll(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '');
  return new Set((code.match(/'(?:[^'\\\n]|\\.)*'|`[^`]*`|\b[A-Z]\w*(?=:)/g) ?? []).join(' ').split(/\W+/));
}

// Words of many meanings say nothing about operators.
const ambiguous = new Set(
  'Constant Optional If Size Shape Range Loop Scan Sampling Tokenizer Where Log Sum'.split(' '),
);
const names = new Set(
  Object.values(families).flatMap((family) => Object.keys(family).map((name) => name.split('.').at(-1)!)),
);

/** Lower it when a list goes. A larger one is a list beside the records. */
const placesMax = 498;

test('an operator stands in its record, with its kernel, and where something is made of it', () => {
  const places = new Map([...names].filter((name) => !ambiguous.has(name)).map((name) => [name, [] as string[]]));
  for (const file of readdirSync(source, { recursive: true, encoding: 'utf8' })) {
    if (!engine.test(file) || !file.endsWith('.ts') || file.endsWith('.test.ts')) continue;
    // An architecture builds a model, which names its operators.
    if (file.startsWith('onnx/architectures/')) continue;
    for (const word of wordsOf(join(source, file))) places.get(word)?.push(file);
  }
  const counts = [...places.values()].map(({ length }) => length);
  const most = [...places].toSorted(([, a], [, b]) => b.length - a.length).slice(0, 3);
  expect(
    counts.reduce((sum, count) => sum + count, 0),
    JSON.stringify(most),
  ).toBeLessThanOrEqual(placesMax);
  // An expression, and what an operator is made of, are parts of its record.
  for (const name of ['Celu', 'Cosh', 'DeformConv', 'QLinearMul']) expect(places.get(name), name).toHaveLength(1);
  for (const name of ['ReduceLogSum', 'LpPool']) expect(places.get(name), name).toHaveLength(2);
});
