/** Inputs for a check of which no call was seen yet: drawn to the model's types and sizes, the same ones each time. */
import { dataTypeOf, Graph } from '../../onnx/index.ts';
import { elementCount, type DataType, type Tensor } from '../../tensor/index.ts';
import { float16FromFloat32 } from '../engine/convert.ts';
import type { FunctionBase } from '../program/base.ts';
import { ProgramError } from '../program/error.ts';
import { checkShapes } from '../program/prepare.ts';
import { inputShape, shapeIn } from '../program/input-shapes.ts';
import { bytesOfValues } from '../program/sizing-inputs.ts';
import type { InputShapes } from '../program/types.ts';

/** mulberry32. */
function sequence(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Between them and a lookup, a value keeps its numbers. */
const passing = new Set(['Cast', 'Flatten', 'Identity', 'Reshape', 'Squeeze', 'Unsqueeze']);

/**
 * How many rows the smallest table has that is looked up with an input's numbers; undefined where none is. Token ids are then
 * of the vocabulary. Numbers that do something else may be masks, types or lengths: 0 and 1 are valid for all of them.
 */
function rowsLookedUp(graph: Graph, base: FunctionBase, input: string): number | undefined {
  const waiting = [input];
  const seen = new Set(waiting);
  let least: number | undefined;
  for (let value = waiting.pop(); value !== undefined; value = waiting.pop()) {
    for (const { proto } of graph.consumers(value)) {
      if (passing.has(proto.opType) && proto.input[0] === value) {
        const [output] = proto.output;
        if (output !== undefined && !seen.has(output)) {
          seen.add(output);
          waiting.push(output);
        }
      } else if (proto.opType === 'Gather' && proto.input[1] === value) {
        const axis = Number(proto.attribute.find(({ name }) => name === 'axis')?.i ?? 0n);
        const table =
          base.weights.find(({ name }) => name === proto.input[0])?.shape ?? graph.weight(proto.input[0]!)?.dims;
        const rows = table?.at(axis);
        if (rows !== undefined) least = Math.min(least ?? rows, rows);
      }
    }
  }
  return least;
}

function halves(values: Float32Array): Uint16Array<ArrayBuffer> {
  const bits = new Uint16Array(values.length);
  float16FromFloat32(new Uint32Array(values.buffer), bits);
  return bits;
}

interface Drawing {
  /** In [0, 1). */
  readonly next: () => number;
  /** How many rows the table has that is looked up with the numbers. */
  readonly rows: number | undefined;
}

type Draw = (length: number, drawing: Drawing) => Uint8Array;

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView<ArrayBuffer>): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);

const floats =
  (make: (values: Float32Array<ArrayBuffer>) => ArrayBufferView<ArrayBuffer>): Draw =>
  (length, { next }) =>
    bytesOf(make(Float32Array.from({ length }, () => next() * 2 - 1)));

/** Whole numbers below the rows of a table, where they look one up; else from `low` to below `end`. */
const whole =
  (make: (values: number[]) => ArrayBufferView<ArrayBuffer>, low: number, end: number): Draw =>
  (length, { next, rows }) => {
    const [first, count] = rows === undefined ? [low, end - low] : [0, rows];
    return bytesOf(make(Array.from({ length }, () => first + Math.floor(next() * count))));
  };

const draws: Readonly<Record<DataType, Draw | undefined>> = {
  FP32: floats((values) => values),
  FP64: floats((values) => Float64Array.from(values)),
  FP16: floats(halves),
  INT64: whole((values) => BigInt64Array.from(values, BigInt), 0, 2),
  UINT64: whole((values) => BigUint64Array.from(values, BigInt), 0, 2),
  INT32: whole((values) => Int32Array.from(values), 0, 2),
  UINT32: whole((values) => Uint32Array.from(values), 0, 2),
  INT16: whole((values) => Int16Array.from(values), 0, 100),
  UINT16: whole((values) => Uint16Array.from(values), 0, 100),
  INT8: whole((values) => Int8Array.from(values), -100, 100),
  UINT8: whole((values) => Uint8Array.from(values), 0, 256),
  BOOL: whole((values) => Uint8Array.from(values), 0, 2),
  BF16: undefined,
  BYTES: undefined,
};

/** @throws ProgramError 'bad-shapes' */
export function drawInputs(base: FunctionBase, given: InputShapes): Tensor[] {
  const shapes = checkShapes(base, given);
  const graph = new Graph(base.model);
  const next = sequence(Number.parseInt(base.modelHash.slice(0, 8), 16));
  return base.inputs.map((name) => {
    const datatype = dataTypeOf(graph.type(name)?.elementType ?? 0);
    if (datatype === undefined) throw new ProgramError('bad-shapes', `the input '${name}' has no known type`);
    const shape = shapeIn(shapes, name) ?? [];
    const { values } = inputShape(shapes, name) ?? {};
    if (values !== undefined) return { name, datatype, shape, data: bytesOfValues(name, datatype, values) };
    const draw = draws[datatype];
    if (draw === undefined) throw new ProgramError('bad-shapes', `no values can be drawn for the input '${name}', which is ${datatype}`); // prettier-ignore
    // A truth value looks nothing up.
    const rows = datatype === 'BOOL' ? undefined : rowsLookedUp(graph, base, name);
    return { name, datatype, shape, data: draw(elementCount(shape), { next, rows }) };
  });
}
