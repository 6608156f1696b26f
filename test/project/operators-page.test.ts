import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { operators } from '../../src/gpu/operators/index.ts';
import { drawn } from '../support/operator-cases/index.ts';
import { nodeTests } from '../support/operator-cases/node-tests.ts';

const page = readFileSync(new URL('../../docs/operators.md', import.meta.url), 'utf8');

interface Row {
  readonly agree: number;
  readonly cases: number;
}

const rows = new Map<string, Row>();
for (const [, name, agree, cases] of page.matchAll(/^\| ([\w.]+) +\|[^|]+\|[^|]+\| (\d+) of (\d+) +\|/gm)) {
  rows.set(name!, { agree: Number(agree), cases: Number(cases) });
}

test('the page of operators has a row for each operator with random cases, and for no other: npm run docs:operators', () => {
  expect([...rows.keys()].toSorted()).toEqual([...drawn.keys()].toSorted());
  const unnamed = operators.filter(({ type }) => !type.startsWith('turntable.') && !page.includes(`| ${type} `));
  expect(unnamed.map(({ type }) => type)).toEqual([]);
});

const sum = (of: (row: Row) => number): number => [...rows.values()].reduce((all, row) => all + of(row), 0);

test('the counts at the top of the page are those of its rows, and no operator is wrong', () => {
  const [, run, agree, , wrong] =
    /Of (\d+) cases (\d+) agree, (\d+) are not covered, and (\d+) are wrong/.exec(page) ?? [];
  expect([Number(run), Number(agree), wrong]).toEqual([sum(({ cases }) => cases), sum((row) => row.agree), '0']);
});

test("the share of cases like ONNX's node tests that run on the GPU matches the page's operators, and is at least 90%", () => {
  const { counts } = nodeTests();
  const text = page.replaceAll(/\s+/g, ' ');
  const [, entirely, of, share] = /(\d+) of (\d+), ([\d.]+)%, run entirely on the GPU/.exec(text) ?? [];
  const [, list = ''] = /The exceptions are these operators, [^:]+: ([^"]+)\. "Since"/.exec(text) ?? [];
  const lacking = new Map<string, number>();
  for (const [, name, found, count] of list.matchAll(/([\w.]+) \((\d+) of (\d+)\)/g)) {
    expect(Number(count), name).toBe(counts.get(name!));
    lacking.set(name!, Number(count) - Number(found));
  }
  const tests = [...counts.values()].reduce((all, count) => all + count, 0);
  const onGpu = tests - [...lacking.values()].reduce((all, count) => all + count, 0);
  expect([Number(entirely), Number(of)]).toEqual([onGpu, tests]);
  expect([...counts.keys()].filter((name) => !drawn.has(name) && !lacking.has(name))).toEqual([]);
  expect(Number(share)).toBeCloseTo((100 * onGpu) / tests, 1);
  expect(Number(share)).toBeGreaterThanOrEqual(90);
});
