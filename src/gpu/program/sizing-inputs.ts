/**
 * Sizing inputs: their elements decide how large other tensors are (the new shape of a Reshape, the axes of a sum).
 * Memory cannot be planned without them, so a program is made for their values as well as for all shapes.
 */
import { dataTypeOf, Graph, type ModelProto, type TensorProto } from '../../onnx/index.ts';
import { argumentsOf, factsOf } from '../../operators/index.ts';
import { bytesOfNumbers, type DataType } from '../../tensor/index.ts';
import type { FunctionBase } from './base.ts';
import { ProgramError } from './error.ts';
import { argumentsMax } from './input-shapes.ts';
import type { InputShapes } from './types.ts';

/** Names of the sizing inputs. Inputs with more than one axis are data. */
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
    // Arithmetic may stand between a sizing input and the operator that it sizes.
    if (producer !== undefined && factsOf(producer)?.arithmetic === 'elements') producer.input.forEach(follow);
  };
  for (const { proto } of graph.nodes) {
    argumentsOf(proto, 'shape', 'kernel').forEach(follow);
  }
  return found;
}

const sizing = ['INT64', 'INT32', 'INT16', 'FP32', 'FP64'] as const satisfies readonly DataType[];

const isSizing = (datatype: DataType | undefined): datatype is (typeof sizing)[number] =>
  sizing.some((each) => each === datatype);

/** The values of an input as bytes. @throws ProgramError 'bad-shapes' for another datatype */
export function bytesOfValues(name: string, datatype: DataType | undefined, values: readonly number[]): Uint8Array {
  if (!isSizing(datatype)) {
    throw new ProgramError(
      'bad-shapes',
      `the input '${name}' is ${datatype}; programs are made for values of ${sizing.join(', ')}`,
    );
  }
  return bytesOfNumbers(datatype, values);
}

/** The model with the known values of sizing inputs as constants. The inputs stay, but no node reads them any more. */
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
