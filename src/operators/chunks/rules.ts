/**
 * How operators are applied chunk by chunk along time, and how their inputs are cut for it. An operator treats the
 * steps of a sequence like the rows of calls that share a run, so its rule for rows says where the steps are in its
 * result. Only operators with sizes among their arguments (Reshape, Expand) have a rule of their own here.
 */
import { axisFromFront, attributeOf, smallTensor, wholeNumbers } from '../../onnx/index.ts';
import type { Graph, NodeProto } from '../../onnx/index.ts';
import { outerAt, placeIn, RowsMeet, type Sizes } from '../row-rules/place.ts';
import * as rows from '../row-rules/rules.ts';
import type { Known, Rule as RowRule } from '../row-rules/step.ts';
import type { Chunk, TimeAxis } from './time-axis.ts';

export type Shape = readonly number[];

/** A node and what is known about its inputs and outputs. */
export interface Operands {
  readonly node: NodeProto;
  readonly graph: Graph;
  readonly opset: number;
  /** By input; undefined for one that is left out or has an unknown shape. */
  readonly shapes: readonly (Shape | undefined)[];
  /** Where inputs are cut; undefined for whole inputs. */
  readonly times: readonly (TimeAxis | undefined)[];
  readonly outputShapes: readonly (Shape | undefined)[];
}

/** How a node is applied to chunks. */
export interface Commuting {
  /** By input: how it is cut; undefined: each chunk takes all of it. */
  readonly inputs: readonly (TimeAxis | undefined)[];
  /** The time axis of the outputs. */
  readonly output: TimeAxis;
  /** Reshape only: the sizes for one chunk. */
  readonly sizes?: (chunk: Chunk) => readonly number[];
  /** Squeeze only: the removed axes. */
  readonly squeezed?: readonly number[];
  /** Reshape only: the last two axes become one, and all others stay. */
  readonly mergesLast?: boolean;
}

export type Rule = (operands: Operands) => Commuting | undefined;

/** Larger constants are data, and no arguments. */
const argumentElementsMax = 64;

const sizes = (shape: Shape): Sizes => ({ few: shape, many: shape });

function followedAlong(operands: Operands, rule: RowRule, times: Operands['times']): Commuting | undefined {
  const { node, graph, opset, shapes, outputShapes } = operands;
  const [time, ...others] = times.filter((each) => each !== undefined);
  if (time === undefined || others.some(({ steps }) => steps !== time.steps)) return undefined;
  const inputs: (Known | undefined)[] = [];
  for (const [index, value] of node.input.entries()) {
    const [shape, own] = [shapes[index], times[index]];
    if (value !== '' && shape === undefined) return undefined;
    const place = own && { axis: own.axis, before: 1 };
    const known = shape && { ...sizes(shape), constant: smallTensor(graph.weight(value), argumentElementsMax) };
    inputs.push(
      known && (place ? { ...known, kind: 'rows', place, outer: outerAt(shape, place) } : { ...known, kind: 'same' }),
    );
  }
  const made = node.output.map((value, index) => (value === '' ? undefined : outputShapes[index]));
  const [first] = made;
  if (first === undefined) return undefined;
  const counts = { few: time.steps, many: time.steps };
  const outputs = made.map((shape) => shape && sizes(shape));
  try {
    const found = rule({ proto: node, name: node.name, opset, inputs, outputs, counts, others: 'joined' });
    const places = node.output.flatMap((value, index) => {
      const outcome = found[index];
      if (value === '') return [];
      return [outcome?.kind === 'rows' ? placeIn(made[index] ?? [], outcome.outer, time.steps) : undefined];
    });
    const [place] = places;
    if (place === undefined || places.some((each) => each?.axis !== place.axis || each.before !== 1)) return undefined;
    return { inputs: times, output: { steps: time.steps, axis: place.axis, rows: first[place.axis]! / time.steps } };
  } catch (error) {
    if (error instanceof RowsMeet) return undefined;
    throw error;
  }
}

/**
 * Other inputs that are as long where they meet time, in the first input that has it or in the result, are cut with it:
 * all of them, or one where others are only as long by chance. They meet counted from the last axis.
 */
function aligned({ node, shapes, times, outputShapes }: Operands): Operands['times'][] {
  const place = times.findIndex((each) => each !== undefined);
  const time = times[place]!;
  const extent = time.steps * time.rows;
  const made = outputShapes[0] ?? [];
  const inResult = made.flatMap((size, axis) => (size === extent ? [made.length - axis] : []));
  const fromEnd = new Set([(shapes[place]?.length ?? 0) - time.axis, ...inResult]);
  return [...fromEnd].flatMap((behind) => {
    const cuts = node.input.map((_, index) => {
      const shape = shapes[index];
      const axis = (shape?.length ?? 0) - behind;
      return times[index] === undefined && shape?.[axis] === extent ? { ...time, axis } : undefined;
    });
    const alone = cuts.flatMap((cut, index) => (cut === undefined ? [] : [times.with(index, cut)]));
    return [times.map((own, index) => own ?? cuts[index])].concat(alone);
  });
}

/** By the rule for rows. Inputs of which each chunk takes all come first, then those that are as long as time. */
export function followed(operands: Operands, rule: RowRule): Commuting | undefined {
  const found = followedAlong(operands, rule, operands.times);
  if (found !== undefined) return found;
  for (const times of aligned(operands)) {
    const alongside = followedAlong(operands, rule, times);
    if (alongside !== undefined) return alongside;
  }
  return undefined;
}

export const squeeze: Rule = (operands) => {
  const { node, graph, shapes } = operands;
  const axes = attributeOf(node, 'axes', undefined) ?? wholeNumbers(graph.weight(node.input[1] ?? ''));
  const found = followed(operands, rows.squeeze);
  return found && { ...found, squeezed: axes?.map((axis) => axisFromFront(axis, shapes[0]!.length)) ?? [] };
};

export const reshape: Rule = (operands) => {
  const { node, graph, shapes, times, outputShapes } = operands;
  const found = times[1] === undefined ? followed(operands, rows.reshape) : undefined;
  const [from, to] = [shapes[0], outputShapes[0]];
  if (found === undefined || from === undefined || to === undefined) return undefined;
  const given = wholeNumbers(graph.weight(node.input[1] ?? ''));
  const { axis: after, rows: perStep } = found.output;
  /** The model's sizes, so that another batch stays possible; only those that time changes are written out. */
  const chunkSizes = ({ steps }: Chunk): number[] =>
    to.map((size, axis) => {
      const asGiven = given?.[axis];
      if (axis === after) return asGiven === -1 ? -1 : steps * perStep;
      if (asGiven === 0 && axis === times[0]?.axis) return size;
      return asGiven ?? size;
    });
  const mergesLast = to.length === from.length - 1 && to.slice(0, -1).every((size, axis) => size === from[axis]);
  return { ...found, sizes: chunkSizes, mergesLast };
};
