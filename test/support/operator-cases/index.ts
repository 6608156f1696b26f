/** Random cases of ONNX's operators, from their specification: attributes, shapes, types, and differing versions. */
import { attentions } from './attention.ts';
import { dense } from './dense.ts';
import { Draw, type Drawn, type SpecCase } from './draw.ts';
import { elementwise } from './elementwise.ts';
import { functions } from './functions.ts';
import { movement } from './movement.ts';
import { normalization } from './normalization.ts';
import { pooling } from './pooling.ts';
import { quantized } from './quantized.ts';
import { reduction } from './reduction.ts';
import { vision } from './vision.ts';

export type { SpecCase } from './draw.ts';

export const drawn: ReadonlyMap<string, Drawn> = new Map(
  [elementwise, dense, movement, pooling, reduction, normalization, attentions, quantized, vision, functions].flatMap(
    (family) => Object.entries(family),
  ),
);

/** Every second case as in ONNX's own node tests: each input comes with the call, including shapes and axes. */
export function casesAsCalled(operator: string, seed: number, count: number): SpecCase[] {
  return casesOf(operator, seed, count).map((one, index) => (index % 2 === 0 ? one : calledWhole(one)));
}

/** As in ONNX's own node tests: all of an operator's inputs come with the call. */
export const casesCalledWhole = (operator: string, seed: number, count: number): SpecCase[] =>
  casesOf(operator, seed, count).map(calledWhole);

const calledWhole = (one: SpecCase): SpecCase => ({
  ...one,
  inputs: one.inputs.map((input) => input && { ...input, constant: false }),
});

/** `count` cases of an operator; the same ones for the same seed. */
export function casesOf(operator: string, seed: number, count: number): SpecCase[] {
  const make = drawn.get(operator);
  if (make === undefined) throw new Error(`no cases are drawn for '${operator}'`);
  const own = Array.from(operator).reduce((hash, letter) => (hash * 31 + letter.charCodeAt(0)) % 1_000_003, seed);
  return Array.from({ length: count }, (_, index) => make(new Draw(own * 1000 + index + 1)));
}
