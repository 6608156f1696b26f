/**
 * How operators are applied chunk by chunk along time, and how their inputs are cut for it. A rule looks at one
 * node with inputs that are cut along time, and finds the time axis of its output; it returns undefined if the node
 * needs its whole input at once.
 */
import { elementCount } from '../../tensor/index.ts';
import { type Graph, attributeOf, axisFromFront, type NodeProto, wholeNumbers } from '../../onnx/index.ts';
import { sameTime, type Chunk, type TimeAxis } from './time-axis.ts';

export type Shape = readonly number[];

/** A node and what is known about its inputs. */
export interface Operands {
  readonly node: NodeProto;
  readonly graph: Graph;
  readonly opset: number;
  /** By input; undefined for one that is left out or has an unknown shape. */
  readonly shapes: readonly (Shape | undefined)[];
  /** Where inputs are cut; undefined for whole inputs. */
  readonly times: readonly (TimeAxis | undefined)[];
  readonly outputShape: Shape | undefined;
}

/** How a node is applied to chunks. */
export interface Commuting {
  /** By input: how it is cut; undefined: each chunk takes all of it. */
  readonly inputs: readonly (TimeAxis | undefined)[];
  /** The time axis of the output. */
  readonly output: TimeAxis;
  /** Reshape only: the sizes for one chunk. */
  readonly sizes?: (chunk: Chunk) => readonly number[];
  /** Squeeze only: the removed axes. */
  readonly squeezed?: readonly number[];
  /** Reshape only: the last two axes become one, and all others stay. */
  readonly mergesLast?: boolean;
}

export type Rule = (operands: Operands) => Commuting | undefined;

const extent = ({ steps, rows }: TimeAxis): number => steps * rows;

/** The first input is cut, the others are taken whole; the output has time along `axis`. */
function firstOnly({ times, node }: Operands, axis: number | undefined): Commuting | undefined {
  const [time, ...others] = times;
  if (time === undefined || axis === undefined || others.some((other) => other !== undefined)) return undefined;
  return { inputs: node.input.map((_, place) => (place === 0 ? time : undefined)), output: { ...time, axis } };
}

export const sameAxis: Rule = (operands) => firstOnly(operands, operands.times[0]?.axis);

/** An optional second input is a vector along the last axis (a bias). */
export const withVector: Rule = (operands) => {
  const [rank, vector] = [operands.shapes[0]?.length, operands.shapes[1]];
  if ((operands.node.input[1] ?? '') === '') return sameAxis(operands);
  return vector?.length === 1 && operands.times[0]?.axis !== (rank ?? 0) - 1 ? sameAxis(operands) : undefined;
};

/** Inputs that are broadcast from the right; undefined stands for one that is left out. */
function broadcastTime(
  given: readonly (Shape | undefined)[],
  times: readonly (TimeAxis | undefined)[],
): Commuting | undefined {
  const rank = Math.max(...given.map((shape) => shape?.length ?? 0));
  const aligned = times.map((time, place) => time && { ...time, axis: time.axis + rank - given[place]!.length });
  const output = aligned.find((time) => time !== undefined);
  if (output === undefined || aligned.some((time) => time !== undefined && !sameTime(time, output))) return undefined;
  const inputs: (TimeAxis | undefined)[] = [];
  for (const shape of given) {
    const axis = shape === undefined ? -1 : output.axis - (rank - shape.length);
    const size = axis < 0 ? 1 : shape![axis]!;
    if (size !== 1 && size !== extent(output)) return undefined;
    inputs.push(size === 1 ? undefined : { ...output, axis });
  }
  return { inputs, output };
}

/** Elementwise operators. */
export const broadcast: Rule = ({ node, shapes, times }) => {
  const given = node.input.map((name, place) => (name === '' ? undefined : shapes[place]));
  if (node.input.some((name, place) => name !== '' && given[place] === undefined)) return undefined;
  return broadcastTime(given, times);
};

export const dropout: Rule = (operands) => {
  // Training draws a random mask, so it is not a function of the input.
  const training = operands.node.input[2] ?? '';
  return training === '' || isFalse(operands.graph, training) ? sameAxis(operands) : undefined;
};

function isFalse(graph: Graph, value: string): boolean {
  const tensor = graph.weight(value)?.tensor;
  const first = tensor?.rawData?.[0] ?? tensor?.int32Data?.[0];
  return first === 0;
}

/** The first input is cut; `axisOf` finds where its time axis goes. */
const moving =
  (axisOf: (shape: Shape, time: TimeAxis, operands: Operands) => number | undefined): Rule =>
  (operands) => {
    const [shape] = operands.shapes;
    const [time] = operands.times;
    return shape && time && firstOnly(operands, axisOf(shape, time, operands));
  };

export const transpose = moving((shape, time, { node }) => {
  const perm = attributeOf(node, 'perm', undefined) ?? shape.map((_, axis) => shape.length - 1 - axis);
  return perm.indexOf(time.axis);
});

/** The axes of Squeeze, Unsqueeze, ReduceSum, ...: an attribute, or in later opsets a constant input. */
const axesOf = ({ node, graph }: Operands, place = 1): readonly number[] | undefined =>
  attributeOf(node, 'axes', undefined) ?? wholeNumbers(graph.weight(node.input[place] ?? ''));

export const squeeze: Rule = (operands) => {
  const [shape] = operands.shapes;
  const [time] = operands.times;
  // Without axes every axis of size 1 is removed, including time's in a chunk of one step.
  const axes = axesOf(operands)?.map((axis) => axisFromFront(axis, shape?.length ?? 0));
  if (shape === undefined || time === undefined || axes === undefined || axes.includes(time.axis)) return undefined;
  const how = firstOnly(operands, time.axis - axes.filter((axis) => axis < time.axis).length);
  return how && { ...how, squeezed: axes };
};

export const unsqueeze = moving((shape, time, operands) => {
  const given = axesOf(operands);
  if (given === undefined) return undefined;
  const rank = shape.length + given.length;
  const added = new Set(given.map((axis) => axisFromFront(axis, rank)));
  const kept = Array.from({ length: rank }, (_, axis) => axis).filter((axis) => !added.has(axis));
  return kept[time.axis];
});

/**
 * The time axis after a reshape: the axis with as many places before it as before. What follows divides into the same
 * steps.
 */
function reshapedTime(from: Shape, to: Shape, time: TimeAxis): TimeAxis | undefined {
  const before = elementCount(from.slice(0, time.axis));
  if (elementCount(from) === 0 || elementCount(from) !== elementCount(to)) return undefined;
  let places = 1;
  for (const [axis, size] of to.entries()) {
    if (places === before && size > 1) {
      return size % time.steps === 0 ? { steps: time.steps, axis, rows: size / time.steps } : undefined;
    }
    places *= size;
  }
  return undefined;
}

export const reshape: Rule = ({ node, graph, shapes, times, outputShape }) => {
  const [from] = shapes;
  const [time, cutSizes] = times;
  if (from === undefined || outputShape === undefined || time === undefined || cutSizes !== undefined) return undefined;
  const output = reshapedTime(from, outputShape, time);
  if (output === undefined) return undefined;
  const given = wholeNumbers(graph.weight(node.input[1] ?? ''));
  /** The model's sizes, so that another batch stays possible; only those that time changes are written out. */
  const sizes = ({ steps }: Chunk): number[] =>
    outputShape.map((size, axis) => {
      const asGiven = given?.[axis];
      if (axis === output.axis) return asGiven === -1 ? -1 : steps * output.rows;
      if (asGiven === 0 && axis === time.axis) return size;
      return asGiven ?? size;
    });
  const mergesLast =
    outputShape.length === from.length - 1 && outputShape.slice(0, -1).every((size, axis) => size === from[axis]);
  return { inputs: [time, undefined], output, sizes, mergesLast };
};

export const flatten: Rule = (operands) => {
  const [from] = operands.shapes;
  const [time] = operands.times;
  if (from === undefined || time === undefined) return undefined;
  const axis = axisFromFront(attributeOf(operands.node, 'axis', 1), from.length);
  const to = [elementCount(from.slice(0, axis)), elementCount(from.slice(axis))];
  const output = reshapedTime(from, to, time);
  return output && { inputs: [time], output };
};

export const matMul: Rule = ({ shapes: [a, b], times: [timeA, timeB] }) => {
  if (a === undefined || b === undefined || a.length === 0 || b.length === 0) return undefined;
  const rank = Math.max(a.length, b.length);
  if (timeA !== undefined && timeA.axis === a.length - 2) {
    // Rows of the left side. A vector on the right removes an axis, but none before the rows.
    if (timeB !== undefined) return undefined;
    return { inputs: [timeA, undefined], output: { ...timeA, axis: timeA.axis + rank - a.length } };
  }
  if (timeB !== undefined && b.length > 1 && timeB.axis === b.length - 1) {
    if (timeA !== undefined || a.length === 1) return undefined;
    return { inputs: [undefined, timeB], output: { ...timeB, axis: rank - 1 } };
  }
  // Otherwise time has to be among the batch axes, which are broadcast.
  if (a.length < 2 || b.length < 2) return undefined;
  const found = broadcastTime([a, b], [timeA, timeB]);
  return found !== undefined && found.output.axis < rank - 2 ? found : undefined;
};

export const gemm: Rule = ({ node, shapes, times: [time, timeB, timeC] }) => {
  const rowAxis = attributeOf(node, 'transA', 0) === 0 ? 0 : 1;
  if (time?.axis !== rowAxis || timeB !== undefined) return undefined;
  const output = { ...time, axis: 0 };
  const addend = (node.input[2] ?? '') === '' ? [] : shapes[2];
  if (addend === undefined) return undefined;
  const rowWise = addend.length === 2 && addend[0] !== 1;
  if (timeC !== undefined && (!rowWise || !sameTime(timeC, output))) return undefined;
  return { inputs: [time, undefined, rowWise ? output : undefined], output };
};

export const concat: Rule = ({ node, shapes, times }) => {
  const output = times.find((time) => time !== undefined);
  const rank = shapes.find((shape) => shape !== undefined)?.length;
  if (output === undefined || rank === undefined) return undefined;
  if (axisFromFront(attributeOf(node, 'axis', 0), rank) === output.axis) return undefined;
  for (const [place, time] of times.entries()) {
    if (time === undefined ? shapes[place]?.[output.axis] !== extent(output) : !sameTime(time, output))
      return undefined;
  }
  return { inputs: node.input.map(() => output), output };
};

/** Operators along one axis, which may be any except time's. */
export const alongAxis =
  (otherwise: number): Rule =>
  (operands) => {
    const axis = axisFromFront(attributeOf(operands.node, 'axis', otherwise), operands.shapes[0]?.length ?? 0);
    return operands.shapes[0] === undefined || axis === operands.times[0]?.axis ? undefined : sameAxis(operands);
  };

/** Operators on all axes from one on: time has to be before it. */
export const fromAxis =
  (otherwise: number): Rule =>
  (operands) => {
    const [shape, ...others] = operands.shapes;
    const [time] = operands.times;
    if (shape === undefined || time === undefined) return undefined;
    const axis = axisFromFront(attributeOf(operands.node, 'axis', otherwise), shape.length);
    if (time.axis >= axis) return undefined;
    const within = others.every((other, place) => {
      return (
        (operands.node.input[place + 1] ?? '') === '' || (other !== undefined && other.length <= shape.length - axis)
      );
    });
    return within ? sameAxis(operands) : undefined;
  };

/** Before opset 13 Softmax took all axes from one on together. */
export const softmax: Rule = (operands) => (operands.opset < 13 ? fromAxis(1) : alongAxis(-1))(operands);

/** Channels are axis 1; further outputs are for training. */
export const batchNormalization: Rule = (operands) => {
  const { node, times } = operands;
  const inference = attributeOf(node, 'training_mode', 0) === 0 && node.output.slice(1).every((name) => name === '');
  return inference && times[0]?.axis !== 1 ? sameAxis(operands) : undefined;
};

export const slice: Rule = (operands) => {
  const { node, graph, opset } = operands;
  const rank = operands.shapes[0]?.length;
  const starts = opset < 10 ? attributeOf(node, 'starts', undefined) : wholeNumbers(graph.weight(node.input[1] ?? ''));
  if (rank === undefined || starts === undefined) return undefined;
  const named = opset < 10 || (node.input[3] ?? '') !== '';
  const axes = named ? axesOf(operands, 3) : undefined;
  if (axes === undefined && opset >= 10 && named) return undefined;
  const sliced = axes?.map((axis) => axisFromFront(axis, rank)) ?? starts.map((_, axis) => axis);
  return sliced.includes(operands.times[0]?.axis ?? -1) ? undefined : sameAxis(operands);
};

export const gather = moving((shape, time, { node, shapes: [, indices] }) => {
  const axis = axisFromFront(attributeOf(node, 'axis', 0), shape.length);
  if (indices === undefined || axis === time.axis) return undefined;
  return time.axis < axis ? time.axis : time.axis - 1 + indices.length;
});

export const reduce = moving((shape, time, operands) => {
  const axes = axesOf(operands)?.map((axis) => axisFromFront(axis, shape.length));
  if (axes === undefined || axes.length === 0 || axes.includes(time.axis)) return undefined;
  const gone = attributeOf(operands.node, 'keepdims', 1) === 0 ? axes.filter((axis) => axis < time.axis).length : 0;
  return time.axis - gone;
});
