/**
 * The cases of all operators, a file for each family of records: named ones for what is not left to chance, and random
 * ones from their specification. Conformance, inference, rows, plans and the page of operators take their cases here.
 */
import type { families as records } from '../../../src/operators/index.ts';
import { attention } from './attention.ts';
import type { Case } from './case.ts';
import { dense } from './dense.ts';
import { Draw, type Drawn, type FamilyCases } from './draw.ts';
import { elementwise } from './elementwise.ts';
import { movement } from './movement.ts';
import { normalization } from './normalization.ts';
import { pooling } from './pooling.ts';
import { quantized } from './quantized.ts';
import { reduction } from './reduction.ts';
import { signal } from './signal.ts';
import { views } from './views.ts';
import { vision } from './vision.ts';
import { withoutKernels } from './without-kernels.ts';

export type Family = keyof typeof records;

export const families: Readonly<Record<Family, FamilyCases>> = {
  views,
  elementwise,
  attention,
  dense,
  movement,
  reduction,
  normalization,
  pooling,
  quantized,
  vision,
  signal,
  withoutKernels,
};

const functions = Object.values(families).flatMap(({ drawn }) => Object.entries(drawn));

/** Operators of the compiler's own, which no model has. */
export const isFused = (operator: string): boolean => operator.startsWith('turntable.');

/** The random cases of each operator that models have. */
export const drawn: ReadonlyMap<string, Drawn> = new Map(functions.filter(([operator]) => !isFused(operator)));
/** Those of nodes that fusion makes, with nodes of ONNX that compute the same. */
export const drawnFused: ReadonlyMap<string, Drawn> = new Map(functions.filter(([operator]) => isFused(operator)));

/** ONNX Runtime crashes on it. */
const isSplitWithUnused = ({ operator, outputs }: Case): boolean => operator === 'Split' && outputs.includes(undefined);

/** The named cases that models may have: not those that are compared with other nodes, or with weights in other types. */
export const named: readonly Case[] = Object.values(families)
  .flatMap((family) => family.named)
  .filter(({ operator, reference, kept }) => !isFused(operator) && !reference && Object.keys(kept).length === 0)
  .filter((one) => !isSplitWithUnused(one));

/** Every second case as in ONNX's own node tests: each input comes with the call, including shapes and axes. */
export function casesAsCalled(operator: string, seed: number, count: number): Case[] {
  return casesOf(operator, seed, count).map((one, index) => (index % 2 === 0 ? one : calledWhole(one)));
}

/** As in ONNX's own node tests: all of an operator's inputs come with the call. */
export const casesCalledWhole = (operator: string, seed: number, count: number): Case[] =>
  casesOf(operator, seed, count).map(calledWhole);

const calledWhole = (one: Case): Case => ({
  ...one,
  inputs: one.inputs.map((input) => input && { ...input, constant: false }),
});

/** `count` random cases of an operator; the same ones for the same seed. */
export function casesOf(operator: string, seed: number, count: number): Case[] {
  const make = drawn.get(operator) ?? drawnFused.get(operator);
  if (make === undefined) throw new Error(`no cases are drawn for '${operator}'`);
  const own = Array.from(operator).reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) % 1_000_003, seed);
  return Array.from({ length: count }, (_, index) => make(new Draw(own * 1000 + index + 1)));
}
