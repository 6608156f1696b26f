import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { operators } from '../../src/gpu/operators/index.ts';
import { drawn } from '../support/operator-cases/index.ts';
import { nodeTestShare } from '../support/operator-cases/node-tests.ts';

const page = readFileSync(new URL('../../docs/operators.md', import.meta.url), 'utf8');

interface Row {
  readonly agree: number;
  readonly cases: number;
}

const rows = new Map<string, Row>();
for (const [, name, agree, cases] of page.matchAll(/^\| ([\w.]+) +\|[^|]+\|[^|]+\| (\d+) of (\d+) +\|/gm)) {
  rows.set(name!, { agree: Number(agree), cases: Number(cases) });
}

test('the page of operators has a row for each operator with drawn cases, and for no other: npm run docs:operators', () => {
  expect([...rows.keys()].toSorted()).toEqual([...drawn.keys()].toSorted());
  const unnamed = operators.filter(({ type }) => !type.startsWith('turntable.') && !page.includes(`| ${type} `));
  expect(unnamed.map(({ type }) => type)).toEqual([]);
});

const sum = (of: (row: Row) => number): number => [...rows.values()].reduce((all, row) => all + of(row), 0);

test('the counts at the top of the page are those of its rows, and nothing on it is wrong', () => {
  const [, run, agree, , wrong] =
    /Of (\d+) cases (\d+) agree, (\d+) are not covered, and (\d+) are wrong/.exec(page) ?? [];
  expect([Number(run), Number(agree), wrong]).toEqual([sum(({ cases }) => cases), sum((row) => row.agree), '0']);
});

test("the share of ONNX's node tests on the page follows from its rows, and is at least 90%", () => {
  const found = nodeTestShare((name) => {
    const { agree, cases } = rows.get(name)!;
    return cases === 0 ? 0 : agree / cases;
  });
  const share = ((100 * found.weighed) / found.run).toFixed(1);
  expect(page.replaceAll(/\s+/g, ' ')).toContain(`an estimate of ${share}% on the GPU`);
  expect(Number(share)).toBeGreaterThanOrEqual(90);
});
