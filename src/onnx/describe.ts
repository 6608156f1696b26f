/** The inputs and outputs of a model, in the terms of the Open Inference Protocol. */
import type { DataType } from '../tensor/index.ts';
import { dataTypeOf, elementTypeName } from './element-type.ts';
import { OnnxError } from './error.ts';
import { Graph } from './graph.ts';
import type { ValueType } from './graph-node.ts';
import { opsetOf } from './opset.ts';
import { obstacleIn, optionalInputs, servedModel, type ServedModel } from './served.ts';
import type { ModelOpening } from './served-session.ts';
import { ElementType, type ModelProto, type ValueInfoProto } from './types.ts';
import { isLearned, type Weight } from './weight.ts';

/** An input or output of a model. */
export interface TensorSpec {
  readonly name: string;
  readonly datatype: DataType;
  /** -1 for a varying size. */
  readonly shape: readonly number[];
  /** For each dimension the model's name of a varying size ('batch', 'sequence'), else undefined. */
  readonly dimensionNames: readonly (string | undefined)[];
  /** The model does not say how many dimensions this input has: it takes any shape, and `shape` is [-1]. */
  readonly anyRank?: boolean;
}

/** What a host needs to know about a model. */
export interface ModelMetadata {
  /** The inputs that each call must give. */
  readonly inputs: readonly TensorSpec[];
  /** Inputs with an initializer: a call that leaves one out gets the initializer's value. */
  readonly optionalInputs?: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  /** How instances open the model; undefined: they open its file unchanged. */
  readonly opening?: ModelOpening;
  /** How what is served differs from what the file says, in sentences without a full stop. */
  readonly remarks?: readonly string[];
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
  /**
   * Bytes that a session keeps after runs of one row, estimated from the graph's shapes; undefined: few, or unknown.
   */
  readonly runBytes?: number;
}

/** Types of outputs whose type or shape the file leaves out. */
type SeenOutputs = ReadonlyMap<string, ValueType>;

function specOf(
  info: ValueInfoProto,
  role: 'input' | 'output',
  { bfloat16 }: ServedModel,
  seen?: SeenOutputs,
): TensorSpec {
  const { name, type } = info;
  const obstacle = obstacleIn(type);
  if (obstacle !== undefined) {
    throw new OnnxError(
      'unsupported',
      `the ${role} '${name}' ${obstacle}; only tensors can be served: export the model with a tensor in its place`,
    );
  }
  const inSession = seen?.get(name);
  const elementType = type?.tensorType?.elemType || inSession?.elementType || ElementType.UNDEFINED;
  const datatype = bfloat16.has(name) ? 'BF16' : dataTypeOf(elementType);
  if (datatype === undefined) {
    throw new OnnxError(
      'unsupported',
      `the ${role} '${name}' has the element type ${elementTypeName(elementType)}, which the protocol cannot carry`,
    );
  }
  const stated = type?.tensorType?.shape?.dim.map(({ dimValue, dimParam }) =>
    dimValue !== undefined && dimValue >= 0n ? Number(dimValue) : dimValue === undefined ? dimParam : undefined,
  );
  const sizes = stated ?? (inSession?.shape?.length === 0 ? undefined : inSession?.shape);
  if (sizes === undefined) {
    // The protocol has no unknown rank. [-1] says at least that the size varies, and the reply has the actual shape.
    const unknown = { name, datatype, shape: [-1], dimensionNames: [undefined] };
    return role === 'input' ? { ...unknown, anyRank: true } : unknown;
  }
  return {
    name,
    datatype,
    shape: sizes.map((size) => (typeof size === 'number' ? size : -1)),
    dimensionNames: sizes.map((size) => (typeof size === 'string' && size !== '' ? size : undefined)),
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
 * The inputs, outputs and size of a model, in its served form. Reads no weights.
 *
 * @param seen types of outputs whose type or shape the file leaves out: those that a session reports, or that the
 * operators of the served model tell
 * @throws OnnxError `unsupported` if an input is not a tensor of a protocol datatype (the message names it) or no
 * output is one; `bad-model` if the graph has a cycle
 */
export function describeModel(file: ModelProto, seen?: (served: ModelProto) => SeenOutputs): ModelMetadata {
  const served = servedModel(file);
  const { model, isMended, bfloat16, remarks } = served;
  const graph = new Graph(model);
  const required = new Set(graph.inputs);
  const optional = optionalInputs(file);
  const inputs = model.graph.input
    .filter(({ name }) => required.has(name))
    .map((info) => specOf(info, 'input', served));
  const types = seen?.(model);
  const outputs = model.graph.output.map((info) => specOf(info, 'output', served, types));
  if (outputs.length === 0) throw new OnnxError('unsupported', withoutOutputs(remarks));
  const opening: ModelOpening = {
    isMended,
    bfloat16Outputs: outputs.filter(({ name }) => bfloat16.has(name)).map(({ name }) => name),
    optionalInputs: optional.map(({ name }) => name),
  };
  return {
    inputs,
    outputs,
    ...(optional.length > 0 && { optionalInputs: optional.map((info) => specOf(info, 'input', served)) }),
    ...((isMended || optional.length > 0) && { opening }),
    ...(remarks.length > 0 && { remarks }),
    opset: opsetOf(model) ?? 0,
    producer: `${model.producerName} ${model.producerVersion}`.trim(),
    nodeCount: file.graph.node.length,
    parameterCount: countParameters(graph),
    weightBytes: graph.weights.reduce((sum, { byteLength }) => sum + byteLength, 0),
  };
}

function withoutOutputs(remarks: readonly string[]): string {
  if (remarks.length === 0) return 'it has no outputs';
  return (
    `it has no output that is a tensor (${remarks.join('; ')}): export it with tensors in their place, ` +
    'a classifier of scikit-learn with zipmap=False'
  );
}
