/** The inputs and outputs of a model, in the terms of the Open Inference Protocol. */
import type { DataType } from '../tensor/index.ts';
import { dataTypeOf, elementTypeName } from './element-type.ts';
import { OnnxError } from './error.ts';
import { Graph } from './graph.ts';
import { opsetOf } from './opset.ts';
import { type ModelProto, type TypeProto, type ValueInfoProto } from './types.ts';
import { isLearned, type Weight } from './weight.ts';

/** An input or output of a model. */
export interface TensorSpec {
  readonly name: string;
  readonly datatype: DataType;
  /** -1 for a varying size. */
  readonly shape: readonly number[];
  /** For each dimension the model's name of a varying size ('batch', 'sequence'), else undefined. */
  readonly dimensionNames: readonly (string | undefined)[];
}

/** What a host needs to know about a model. */
export interface ModelMetadata {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  /** Version of the default operator set; 0 if the model does not use it. */
  readonly opset: number;
  /** Name and version of the program that wrote the model; may be empty. */
  readonly producer: string;
  /** Nodes of the main graph. */
  readonly nodeCount: number;
  /**
   * Elements of the distinct weights, as model zoos count learnable parameters: without integer tables and masks,
   * without the running mean and variance of BatchNormalization, and without scalars.
   */
  readonly parameterCount: number;
  /** Bytes of all distinct weights and constants. */
  readonly weightBytes: number;
}

function kindOfType(type: TypeProto | undefined): string {
  if (type?.sequenceType !== undefined) return 'a sequence';
  if (type?.mapType !== undefined) return 'a map';
  if (type?.optionalType !== undefined) return 'an optional';
  if (type?.sparseTensorType !== undefined) return 'a sparse tensor';
  return 'of no known type';
}

function specOf({ name, type }: ValueInfoProto, role: 'input' | 'output'): TensorSpec {
  const tensor = type?.tensorType;
  if (tensor === undefined) {
    throw new OnnxError('unsupported', `the ${role} '${name}' is ${kindOfType(type)}; only tensors can be served`);
  }
  const datatype = dataTypeOf(tensor.elemType);
  if (datatype === undefined) {
    throw new OnnxError(
      'unsupported',
      `the ${role} '${name}' has the element type ${elementTypeName(tensor.elemType)}, which the protocol cannot carry`,
    );
  }
  const dimensions = tensor.shape?.dim;
  if (dimensions === undefined) {
    if (role === 'input') {
      throw new OnnxError('unsupported', `the input '${name}' does not say how many dimensions it has`);
    }
    // A client reads an output's shape from the reply; here at least one varying dimension is stated.
    return { name, datatype, shape: [-1], dimensionNames: [undefined] };
  }
  return {
    name,
    datatype,
    shape: dimensions.map(({ dimValue }) => (dimValue === undefined || dimValue < 0n ? -1 : Number(dimValue))),
    dimensionNames: dimensions.map(({ dimValue, dimParam }) =>
      (dimValue === undefined || dimValue < 0n) && dimParam !== undefined && dimParam !== '' ? dimParam : undefined,
    ),
  };
}

/** A Constant node with fewer elements is arithmetic (an epsilon, a scale), not a weight. */
const constantElementsMin = 64;

function countParameters(graph: Graph): number {
  const statistics = new Set<Weight>();
  for (const { proto } of graph.nodes) {
    if (proto.opType !== 'BatchNormalization') continue;
    for (const value of proto.input.slice(3, 5)) {
      for (const weight of graph.weightsBehind(value)) statistics.add(weight);
    }
  }
  let count = 0;
  for (const weight of graph.weights) {
    if (!isLearned(weight) || statistics.has(weight) || weight.dims.length === 0) continue;
    if (weight.origin === 'constant' && weight.elementCount < constantElementsMin) continue;
    count += weight.elementCount;
  }
  return count;
}

/**
 * The inputs (without those that have an initializer), outputs and size of a model. Reads no weights.
 * @throws OnnxError `unsupported` naming an input or output that is not a tensor of a protocol datatype, and
 * `bad-model` for a graph with a cycle
 */
export function describeModel(model: ModelProto, graph: Graph = new Graph(model)): ModelMetadata {
  const required = new Set(graph.inputs);
  return {
    inputs: model.graph.input.filter(({ name }) => required.has(name)).map((info) => specOf(info, 'input')),
    outputs: model.graph.output.map((info) => specOf(info, 'output')),
    opset: opsetOf(model) ?? 0,
    producer: `${model.producerName} ${model.producerVersion}`.trim(),
    nodeCount: model.graph.node.length,
    parameterCount: countParameters(graph),
    weightBytes: graph.weights.reduce((sum, { byteLength }) => sum + byteLength, 0),
  };
}
