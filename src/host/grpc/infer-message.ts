/**
 * `ModelInfer`: converts messages to tensors and back, with the same checks as over HTTP. Pure. For any message, only
 * HostError and TensorError are thrown.
 */
import { checkBytes, elementCount, packBytes, TensorError, type DataType, type Tensor } from '../../tensor/index.ts';
import { given } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import { checkComplete, checkShape, rowsOf, type ModelSpec } from '../infer/model-spec.ts';
import { describeInput, readOutputs, readRequestFields, refuseSurplus, type InferCall } from '../infer/oip.ts';
import type {
  InferInputTensor,
  InferTensorContents,
  ModelInferRequest,
  ModelInferResponse,
  Parameters,
} from './messages.ts';

/** @throws HostError 'bad-request', or TensorError naming the tensor */
export function decodeInferMessage(message: ModelInferRequest, spec: ModelSpec): Omit<InferCall, 'binary'> {
  const { inputs, raw_input_contents: raw, outputs } = message;
  const { timeoutMs, priority } = readRequestFields({ parameters: plainParameters(message.parameters) });
  if (inputs.length > spec.inputByName.size) refuseSurplus(inputs, spec);
  if (raw.length > 0 && raw.length !== inputs.length) {
    throw new HostError(
      'bad-request',
      `the request has ${raw.length} raw_input_contents, but ${inputs.length} inputs; there must be one for each`,
    );
  }
  const tensors: Tensor[] = [];
  for (const [index, input] of inputs.entries()) {
    const tensor = tensorFrom(input, raw[index], spec);
    if (tensors.some(({ name }) => name === tensor.name))
      throw new TensorError(`input '${tensor.name}' is given twice`);
    tensors.push(tensor);
  }
  checkComplete(spec, tensors);
  const wanted = outputs.map((output) => ({ name: output.name, parameters: plainParameters(output.parameters) }));
  const { names, classes } = readOutputs(wanted, spec);
  const id = message.id === '' ? undefined : message.id;
  return { tensors, id, outputs: names, classes, timeoutMs, priority, rows: rowsOf(spec, tensors) };
}

function tensorFrom(input: InferInputTensor, raw: Buffer | undefined, spec: ModelSpec): Tensor {
  const { name, datatype, input: declared } = describeInput({ name: input.name ?? '', datatype: input.datatype }, spec);
  if (input.parameters !== undefined && 'shared_memory_region' in input.parameters) {
    throw new HostError('bad-request', `input '${name}' asks for shared memory, which this host does not offer`);
  }
  const shape = checkShape(declared, input.shape.map(Number));
  const contents = input.contents ?? undefined;
  if (raw !== undefined && contents !== undefined && lengthOf(contents) > 0) {
    throw new TensorError(
      `input '${name}' has contents, and the request raw_input_contents: only one of them may be there`,
    );
  }
  const data = raw ?? dataOf(name, datatype, contents, elementCount(shape));
  const tensor: Tensor = { name, datatype, shape, data };
  checkBytes(tensor);
  return tensor;
}

interface TypedContents {
  /** The list of a message that holds the elements. */
  readonly key: keyof InferTensorContents;
  readonly bytes: (list: readonly never[]) => Uint8Array;
  /** Range of the datatype, if the list's type can hold more. */
  readonly range?: readonly [number, number];
}

const numbers = (
  key: keyof InferTensorContents,
  array: { from(list: readonly number[]): { readonly buffer: ArrayBuffer } },
  range?: readonly [number, number],
): TypedContents => ({ key, bytes: (list) => new Uint8Array(array.from(list).buffer), ...given({ range }) });

/** Other datatypes travel only as raw bytes. */
const typed: Partial<Readonly<Record<DataType, TypedContents>>> = {
  BOOL: { key: 'bool_contents', bytes: (list) => Uint8Array.from(list, Number) },
  INT8: numbers('int_contents', Int8Array, [-128, 127]),
  INT16: numbers('int_contents', Int16Array, [-32_768, 32_767]),
  INT32: numbers('int_contents', Int32Array),
  INT64: { key: 'int64_contents', bytes: (list) => new Uint8Array(BigInt64Array.from(list, BigInt).buffer) },
  UINT8: numbers('uint_contents', Uint8Array, [0, 255]),
  UINT16: numbers('uint_contents', Uint16Array, [0, 65_535]),
  UINT32: numbers('uint_contents', Uint32Array),
  UINT64: { key: 'uint64_contents', bytes: (list) => new Uint8Array(BigUint64Array.from(list, BigInt).buffer) },
  FP32: numbers('fp32_contents', Float32Array),
  FP64: numbers('fp64_contents', Float64Array),
  BYTES: { key: 'bytes_contents', bytes: packBytes },
};

function dataOf(
  name: string,
  datatype: DataType,
  contents: InferTensorContents | undefined,
  count: number,
): Uint8Array {
  const form = typed[datatype];
  if (form === undefined) {
    throw new TensorError(`input '${name}' is ${datatype}, which travels in raw_input_contents only`);
  }
  const { key, range, bytes } = form;
  const list = contents?.[key] ?? [];
  const total = contents === undefined ? 0 : lengthOf(contents);
  if (list.length !== total) throw new TensorError(`input '${name}' is ${datatype}, so only ${key} may have elements`);
  if (list.length !== count) {
    throw new TensorError(`input '${name}' has ${list.length} elements in ${key}, but its shape takes ${count}`);
  }
  if (range !== undefined) {
    const wrong = (list as readonly number[]).findIndex((value) => value < range[0] || value > range[1]);
    if (wrong >= 0) {
      throw new TensorError(
        `input '${name}': element ${wrong} is ${String(list[wrong])}, which ${datatype} cannot hold`,
      );
    }
  }
  return bytes(list as readonly never[]);
}

const lengthOf = (contents: InferTensorContents): number =>
  Object.values(contents).reduce((sum: number, list: readonly unknown[]) => sum + list.length, 0);

/** Parameters in the form of the HTTP API; undefined without parameters. */
export function plainParameters(parameters: Parameters | undefined): Record<string, unknown> | undefined {
  if (parameters === undefined) return undefined;
  const plain: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const [key, value] of Object.entries(parameters)) {
    const choice = value.parameter_choice;
    if (choice === undefined) continue;
    plain[key] = choice === 'int64_param' || choice === 'uint64_param' ? Number(value[choice]) : value[choice];
  }
  return plain;
}

/** Outputs travel as raw bytes, which every datatype has. */
export function encodeInferMessage(
  model: { readonly name: string; readonly version: string },
  id: string | undefined,
  tensors: readonly Tensor[],
): ModelInferResponse {
  return {
    model_name: model.name,
    model_version: model.version,
    ...(id === undefined ? {} : { id }),
    outputs: tensors.map(({ name, datatype, shape }) => ({ name, datatype, shape })),
    raw_output_contents: tensors.map(({ data }) => data),
  };
}
