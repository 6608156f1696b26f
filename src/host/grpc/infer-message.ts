/**
 * `ModelInfer`: messages to tensors and back, under the same checks as the HTTP form. Pure. Whatever a message holds,
 * only HostError and TensorError are thrown.
 */
import { checkBytes, elementCount, packBytes, TensorError, type DataType, type Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import { checkAgreement, checkComplete, checkShape, rowsOf, type ModelSpec } from '../infer/model-spec.ts';
import type { InferCall } from '../infer/oip.ts';
import { describeInput, readOutputs, readRequestFields, refuseSurplus } from '../infer/request-fields.ts';
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
  if (inputs.length > spec.inputs.length) refuseSurplus(inputs, spec);
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
  checkAgreement(spec, tensors);
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

/** Which list of a message holds the elements of a datatype; none: it travels as raw bytes only. */
const listOf: Readonly<Record<DataType, keyof InferTensorContents | undefined>> = {
  BOOL: 'bool_contents',
  INT8: 'int_contents',
  INT16: 'int_contents',
  INT32: 'int_contents',
  INT64: 'int64_contents',
  UINT8: 'uint_contents',
  UINT16: 'uint_contents',
  UINT32: 'uint_contents',
  UINT64: 'uint64_contents',
  FP16: undefined,
  BF16: undefined,
  FP32: 'fp32_contents',
  FP64: 'fp64_contents',
  BYTES: 'bytes_contents',
};

/** Elements that a 32-bit list can hold, but the datatype cannot. */
const ranges: Partial<Readonly<Record<DataType, readonly [number, number]>>> = {
  INT8: [-128, 127],
  INT16: [-32_768, 32_767],
  UINT8: [0, 255],
  UINT16: [0, 65_535],
};

function dataOf(
  name: string,
  datatype: DataType,
  contents: InferTensorContents | undefined,
  count: number,
): Uint8Array {
  const key = listOf[datatype];
  if (key === undefined) {
    throw new TensorError(`input '${name}' is ${datatype}, which travels in raw_input_contents only`);
  }
  const list = contents?.[key] ?? [];
  const total = contents === undefined ? 0 : lengthOf(contents);
  if (list.length !== total) throw new TensorError(`input '${name}' is ${datatype}, so only ${key} may have elements`);
  if (list.length !== count) {
    throw new TensorError(`input '${name}' has ${list.length} elements in ${key}, but its shape takes ${count}`);
  }
  if (datatype === 'BYTES') return packBytes(list as readonly Buffer[]);
  const range = ranges[datatype];
  if (range !== undefined) {
    const wrong = (list as readonly number[]).findIndex((value) => value < range[0] || value > range[1]);
    if (wrong >= 0) {
      throw new TensorError(
        `input '${name}': element ${wrong} is ${String(list[wrong])}, which ${datatype} cannot hold`,
      );
    }
  }
  return bytesOf(datatype, list);
}

const arrays = {
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  FP32: Float32Array,
  FP64: Float64Array,
} as const;

function bytesOf(datatype: Exclude<DataType, 'BYTES'>, list: readonly unknown[]): Uint8Array {
  switch (datatype) {
    case 'BOOL':
      return Uint8Array.from(list as readonly boolean[], Number);
    case 'INT64':
      return new Uint8Array(BigInt64Array.from(list as readonly string[], BigInt).buffer);
    case 'UINT64':
      return new Uint8Array(BigUint64Array.from(list as readonly string[], BigInt).buffer);
    case 'FP16':
    case 'BF16':
      throw new TensorError(`${datatype} has no typed contents`);
    case 'INT8':
    case 'INT16':
    case 'INT32':
    case 'UINT8':
    case 'UINT16':
    case 'UINT32':
    case 'FP32':
    case 'FP64':
      return new Uint8Array(arrays[datatype].from(list as readonly number[]).buffer);
  }
}

const lengthOf = (contents: InferTensorContents): number =>
  Object.values(contents).reduce((sum: number, list: readonly unknown[]) => sum + list.length, 0);

/** Parameters as the HTTP form has them; undefined where there is none. */
export function plainParameters(parameters: Parameters | undefined): Record<string, unknown> | undefined {
  if (parameters === undefined) return undefined;
  const plain: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const [key, value] of Object.entries(parameters)) {
    switch (value.parameter_choice) {
      case 'bool_param':
        plain[key] = value.bool_param;
        break;
      case 'int64_param':
        plain[key] = Number(value.int64_param);
        break;
      case 'uint64_param':
        plain[key] = Number(value.uint64_param);
        break;
      case 'double_param':
        plain[key] = value.double_param;
        break;
      case 'string_param':
        plain[key] = value.string_param;
        break;
      case undefined:
        break;
    }
  }
  return plain;
}

/** Outputs travel as raw bytes, which no datatype is without. */
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
