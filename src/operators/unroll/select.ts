/**
 * Nodes that take a few steps of a sequence, mostly the last one. If all are in one chunk, the others need not be
 * joined.
 */
import { attributeOf, axisFromFront, isDefaultDomain, wholeNumbers } from '../../onnx/index.ts';
import type { Operands } from '../chunks/rules.ts';
import { chunksOf, type TimeAxis } from '../chunks/time-axis.ts';

export interface Selection {
  /** How the first input is cut. */
  readonly time: TimeAxis;
  /** The index of the chunk. */
  readonly chunk: number;
  /** The constants with the position in the chunk: INT64, by input. */
  readonly places: ReadonlyMap<number, readonly number[]>;
  /** Gather only: its index is a scalar. */
  readonly isScalar: boolean;
}

/** Since this opset the arguments of Slice are inputs. */
const sliceInputsOpset = 10;

export function selecting(operands: Operands, stepsMax: number): Selection | undefined {
  const { node, times } = operands;
  const [time, ...others] = times;
  if (time === undefined || others.some((other) => other !== undefined)) return undefined;
  if (!isDefaultDomain(node.domain)) return undefined;
  if (node.opType === 'Gather') return gathered(operands, time, stepsMax);
  return node.opType === 'Slice' ? sliced(operands, time, stepsMax) : undefined;
}

/** The chunk that contains rows `first` to `last`, and the first row of that chunk. */
function chunkOf(
  time: TimeAxis,
  first: number,
  last: number,
  stepsMax: number,
): { chunk: number; start: number } | undefined {
  if (first < 0 || last < first || last >= time.steps * time.rows) return undefined;
  const chunk = Math.floor(first / time.rows / stepsMax);
  if (chunk !== Math.floor(last / time.rows / stepsMax)) return undefined;
  return { chunk, start: chunksOf(time.steps, stepsMax)[chunk]!.first * time.rows };
}

function gathered({ node, graph, shapes }: Operands, time: TimeAxis, stepsMax: number): Selection | undefined {
  const rank = shapes[0]?.length ?? 0;
  const indices = wholeNumbers(graph.weight(node.input[1] ?? ''));
  const [index] = indices ?? [];
  const axis = attributeOf(node, 'axis', 0);
  if (index === undefined || indices?.length !== 1 || axisFromFront(axis, rank) !== time.axis) return undefined;
  const dims = shapes[1]?.length;
  if (dims === undefined || dims > 1) return undefined;
  const at = index < 0 ? index + time.steps * time.rows : index;
  const found = chunkOf(time, at, at, stepsMax);
  return found && { time, chunk: found.chunk, places: new Map([[1, [at - found.start]]]), isScalar: dims === 0 };
}

function sliced({ node, graph, shapes, opset }: Operands, time: TimeAxis, stepsMax: number): Selection | undefined {
  const rank = shapes[0]?.length ?? 0;
  const [starts, ends, axes] = [1, 2, 3].map((place) => wholeNumbers(graph.weight(node.input[place] ?? '')));
  const strides = (node.input[4] ?? '') === '' ? [1] : wholeNumbers(graph.weight(node.input[4] ?? ''));
  const [start, end, axis] = [starts?.[0], ends?.[0], axes?.[0]];
  if (opset < sliceInputsOpset || start === undefined || end === undefined || axis === undefined) return undefined;
  if (axes?.length !== 1 || strides?.length !== 1 || strides[0] !== 1) return undefined;
  if (axisFromFront(axis, rank) !== time.axis) return undefined;
  const extent = time.steps * time.rows;
  const first = Math.max(0, start < 0 ? start + extent : start);
  const behind = Math.min(extent, end < 0 ? end + extent : end);
  const found = chunkOf(time, first, behind - 1, stepsMax);
  if (found === undefined) return undefined;
  const places = new Map([
    [1, [first - found.start]],
    [2, [behind - found.start]],
    [3, [time.axis]],
  ]);
  if ((node.input[4] ?? '') !== '') places.set(4, [1]);
  return { time, chunk: found.chunk, places, isScalar: false };
}
