/** Random inputs for a check before the first call. They depend on the model alone, so each check draws the same. */
import { attributeOf, dataTypeOf, Graph, type NodeProto } from '../../onnx/index.ts';
import { factsOf } from '../../operators/index.ts';
import { bytesOfNumbers, elementCount, type DataType, type Tensor } from '../../tensor/index.ts';
import { randomOf } from '../../tools/index.ts';
import type { FunctionBase } from '../program/base.ts';
import { ProgramError } from '../program/error.ts';
import { checkShapes } from '../program/prepare.ts';
import { inputShape, shapeIn } from '../program/input-shapes.ts';
import { bytesOfValues } from '../program/sizing-inputs.ts';
import type { InputShapes } from '../program/types.ts';

/** Whether its result has its input's numbers. */
const passesOn = (proto: NodeProto): boolean => (factsOf(proto)?.keeps ?? 'nothing') !== 'nothing';

/**
 * Rows of the smallest table that an input indexes, so that drawn token ids are in the vocabulary. Undefined if it
 * indexes none: it may be a mask, a type or a length, for which 0 and 1 are valid.
 */
function rowsLookedUp(graph: Graph, base: FunctionBase, input: string): number | undefined {
  const seen = new Set([input]);
  let least: number | undefined;
  // What it gains meanwhile is visited too.
  for (const value of seen) {
    for (const { proto } of graph.consumers(value)) {
      if (passesOn(proto) && proto.input[0] === value) {
        const [output] = proto.output;
        if (output !== undefined) seen.add(output);
      } else if (proto.opType === 'Gather' && proto.input[1] === value) {
        const axis = attributeOf(proto, 'axis', 0);
        const table =
          base.weights.find(({ name }) => name === proto.input[0])?.shape ?? graph.weight(proto.input[0]!)?.dims;
        const rows = table?.at(axis);
        if (rows !== undefined) least = Math.min(least ?? rows, rows);
      }
    }
  }
  return least;
}

const floats = new Set<DataType>(['FP32', 'FP64', 'FP16']);

/** Ranges for whole numbers, `end` excluded. */
const ranges: Partial<Record<DataType, readonly [low: number, end: number]>> = {
  INT64: [0, 2],
  UINT64: [0, 2],
  INT32: [0, 2],
  UINT32: [0, 2],
  INT16: [0, 100],
  UINT16: [0, 100],
  INT8: [-100, 100],
  UINT8: [0, 256],
  BOOL: [0, 2],
};

/**
 * Random numbers of a type; undefined for a type that cannot be drawn.
 *
 * @param next a random number in [0, 1)
 * @param rows of the table that the numbers index
 */
function draw(datatype: DataType, count: number, next: () => number, rows: number | undefined): Uint8Array | undefined {
  if (datatype === 'BYTES') return undefined;
  if (floats.has(datatype)) {
    return bytesOfNumbers(
      datatype,
      Array.from({ length: count }, () => Math.fround(next() * 2 - 1)),
    );
  }
  const range = ranges[datatype];
  if (range === undefined) return undefined;
  const [low, end] = rows === undefined ? range : [0, rows];
  return bytesOfNumbers(
    datatype,
    Array.from({ length: count }, () => low + Math.floor(next() * (end - low))),
  );
}

/** @throws ProgramError 'bad-shapes' */
export function drawInputs(base: FunctionBase, given: InputShapes): Tensor[] {
  const shapes = checkShapes(base, given);
  const graph = new Graph(base.model);
  const next = randomOf(Number.parseInt(base.modelHash.slice(0, 8), 16));
  return base.inputs.map((name) => {
    const datatype = dataTypeOf(graph.type(name)?.elementType ?? 0);
    if (datatype === undefined) throw new ProgramError('bad-shapes', `the input '${name}' has no known type`);
    const shape = shapeIn(shapes, name) ?? [];
    const { values } = inputShape(shapes, name) ?? {};
    if (values !== undefined) return { name, datatype, shape, data: bytesOfValues(name, datatype, values) };
    // A boolean indexes no table.
    const rows = datatype === 'BOOL' ? undefined : rowsLookedUp(graph, base, name);
    const data = draw(datatype, elementCount(shape), next, rows);
    if (data !== undefined) return { name, datatype, shape, data };
    throw new ProgramError('bad-shapes', `no values can be drawn for the input '${name}', which is ${datatype}`);
  });
}
