/**
 * Inputs whose elements decide how large other tensors are: the new shape of a Reshape, the axes of a sum. Nothing can
 * be placed in memory before they are known, so a program is made for their values, as it is for the shapes of all
 * inputs.
 */
import { namesIn } from '../../tools/index.ts';
import { dataTypeOf, Graph, type ModelProto, type TensorProto } from '../../onnx/index.ts';
import { bytesOfNumbers, type DataType } from '../../tensor/index.ts';
import type { FunctionBase } from './base.ts';
import { ProgramError } from './error.ts';
import { argumentsOf } from './shaped-by-shapes.ts';
import { argumentsMax } from './input-shapes.ts';
import type { InputShapes } from './types.ts';

/** Between an input and the operator that it sizes, these compute with few numbers. */
const arithmetic = namesIn(
  'Add Cast Ceil Concat Div Floor Gather Identity Max Min Mul Neg Reshape Slice Squeeze Sub Unsqueeze',
);

/**
 * Operators whose result has a shape of its own whatever this input says, and whose kernels are made for its value all
 * the same.
 */
const kernelArguments = new Map([
  ['CumSum', 1],
  ['CumProd', 1],
]);

/** A cache grows by one with each call: a program for each of its sizes would not be used twice. */
const grown = new Set(['GroupQueryAttention']);

/** By name. Those with more than one axis hold data. */
export function sizingInputs({ model, inputs }: FunctionBase): ReadonlySet<string> {
  const graph = new Graph(model);
  const few = new Set(
    inputs.filter((name) => {
      const { elementType = 0, shape } = graph.type(name) ?? {};
      if (!isSizing(dataTypeOf(elementType)) || shape === undefined || shape.length > 1) return false;
      const [length = 1] = shape;
      return typeof length !== 'number' || length <= argumentsMax;
    }),
  );
  const found = new Set<string>();
  const seen = new Set<string>();
  const follow = (value: string): void => {
    if (value === '' || seen.has(value)) return;
    seen.add(value);
    if (few.has(value)) found.add(value);
    const producer = graph.producer(value)?.proto;
    if (producer !== undefined && arithmetic.has(producer.opType)) producer.input.forEach(follow);
  };
  for (const { proto } of graph.nodes) {
    if (grown.has(proto.opType)) continue;
    argumentsOf(proto.opType, proto.input).forEach(follow);
    const place = kernelArguments.get(proto.opType);
    if (place !== undefined) follow(proto.input[place] ?? '');
  }
  return found;
}

const sizing = ['INT64', 'INT32', 'INT16', 'FP32', 'FP64'] as const satisfies readonly DataType[];

const isSizing = (datatype: DataType | undefined): datatype is (typeof sizing)[number] =>
  sizing.some((each) => each === datatype);

/** The elements that an input was given values for. @throws ProgramError */
export function bytesOfValues(name: string, datatype: DataType | undefined, values: readonly number[]): Uint8Array {
  if (!isSizing(datatype)) {
    throw new ProgramError(
      'bad-shapes',
      `the input '${name}' is ${datatype}; programs are made for values of ${sizing.join(', ')}`,
    );
  }
  return bytesOfNumbers(datatype, values);
}

/** The model with what is known of its inputs' values as constants. The inputs stay: nothing takes them any more. */
export function withValues(model: ModelProto, shapes: InputShapes): ModelProto {
  const known = shapes.flatMap(({ name, shape, values }) => (values === undefined ? [] : [{ name, shape, values }]));
  if (known.length === 0) return model;
  const { graph } = model;
  const constantOf = new Map(known.map(({ name }) => [name, `${name} as given`]));
  const initializers = known.map(({ name, shape, values }): TensorProto => {
    const dataType = graph.input.find((input) => input.name === name)?.type?.tensorType?.elemType ?? 0;
    const rawData = bytesOfValues(name, dataTypeOf(dataType), values);
    return { name: constantOf.get(name)!, dims: shape.map(BigInt), dataType, rawData };
  });
  const node = graph.node.map((each) =>
    Object.assign({}, each, { input: each.input.map((value) => constantOf.get(value) ?? value) }),
  );
  return { ...model, graph: { ...graph, node, initializer: [...graph.initializer, ...initializers] } };
}
