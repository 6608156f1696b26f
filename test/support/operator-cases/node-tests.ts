/**
 * Cases in the numbers of ONNX's own node tests, which are not included here: as many for each operator, with every
 * input in the call. On the engine they show which share of such tests runs entirely on a GPU.
 */
import { readFileSync } from 'node:fs';
import type { Case } from './case.ts';
import { casesCalledWhole, drawn } from './index.ts';
import { modelOf, referenceOf } from './models.ts';

/** ONNX Runtime has no CPU kernel for these: training, images, and operators newer than it. */
const withoutKernel = new Set(
  `Adagrad Adam CausalConvWithState FlexAttention ImageDecoder LinearAttention Momentum SwiGLU`.split(' '),
);

export interface NodeTests {
  /** Of ONNX. */
  readonly version: string;
  readonly all: number;
  /** Of operators without a kernel in ONNX Runtime. */
  readonly unrun: number;
  /** Number of tests of each other operator. */
  readonly counts: ReadonlyMap<string, number>;
}

const sum = (list: readonly number[]): number => list.reduce((all, count) => all + count, 0);

export function nodeTests(): NodeTests {
  const text = readFileSync(new URL('node-tests.json', import.meta.url), 'utf8');
  const { version, tests } = JSON.parse(text) as {
    readonly version: string;
    readonly tests: Readonly<Record<string, number>>;
  };
  const entries = Object.entries(tests);
  const counts = new Map(entries.filter(([name]) => !withoutKernel.has(name)));
  const all = sum(Object.values(tests));
  return { version, all, unrun: all - sum([...counts.values()]), counts };
}

/** As many cases of an operator as ONNX has tests of it, all of which ONNX Runtime runs; none if none can be drawn. */
export async function casesLikeNodeTests(operator: string, count: number, seed: number): Promise<Case[]> {
  const cases: Case[] = [];
  if (!drawn.has(operator)) return cases;
  for (const one of casesCalledWhole(operator, seed, 8 * count)) {
    if (cases.length === count) break;
    if ((await referenceOf(modelOf(one))) !== undefined) cases.push(one);
  }
  return cases;
}
