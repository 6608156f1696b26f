/**
 * `ModelInfer`: converts messages to tensors and back, with the same checks as over HTTP. Pure. For any message, only
 * HostError and TensorError are thrown.
 */
import {
  byteCount,
  checkBytes,
  elementCount,
  TensorError,
  type DataType,
  type Grow,
  type Tensor,
} from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import { checkComplete, checkShape, rowsOf, type ModelSpec } from '../infer/model-spec.ts';
import { contentBytes, outOfRange, typedForms } from './infer-wire.ts';
import { describeInput, readOutputs, readRequestFields, refuseSurplus, type InferCall } from '../infer/oip.ts';
import type {
  InferInputTensor,
  InferTensorContents,
  ModelInferRequest,
  ModelInferResponse,
  Parameters,
} from './messages.ts';

/**
 * Reads the tensors and options of a request.
 *
 * @param grow called with the bytes of a tensor before it is made of typed contents; its error is thrown
 * @throws HostError 'bad-request', or TensorError naming the tensor
 */
export function decodeInferMessage(message: ModelInferRequest, spec: ModelSpec, grow: Grow): Omit<InferCall, 'binary'> {
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
    const tensor = tensorFrom(input, raw[index], spec, grow);
    if (tensors.some(({ name }) => name === tensor.name))
      throw new TensorError(`input '${tensor.name}' is given twice`);
    tensors.push(tensor);
  }
  checkComplete(spec, tensors);
  const requested = outputs.map((output) => ({ name: output.name, parameters: plainParameters(output.parameters) }));
  const { names, classes } = readOutputs(requested, spec);
  const id = message.id === '' ? undefined : message.id;
  return { tensors, id, outputs: names, classes, timeoutMs, priority, rows: rowsOf(spec, tensors) };
}

function tensorFrom(input: InferInputTensor, raw: Uint8Array | undefined, spec: ModelSpec, grow: Grow): Tensor {
  const { name, datatype, input: declared } = describeInput({ name: input.name ?? '', datatype: input.datatype }, spec);
  if (input.parameters !== undefined && 'shared_memory_region' in input.parameters) {
    throw new HostError('bad-request', `input '${name}' asks for shared memory, which this host does not offer`);
  }
  const shape = checkShape(declared, input.shape.map(Number));
  const { contents } = input;
  if (raw !== undefined && lengthOf(contents) > 0) {
    throw new TensorError(
      `input '${name}' has contents, and the request has raw_input_contents; only one of the two is allowed`,
    );
  }
  const data = raw ?? dataOf(name, datatype, contents, elementCount(shape), grow);
  const tensor: Tensor = { name, datatype, shape, data };
  checkBytes(tensor);
  return tensor;
}

function dataOf(
  name: string,
  datatype: DataType,
  contents: InferTensorContents | undefined,
  count: number,
  grow: Grow,
): Uint8Array {
  const form = typedForms[datatype];
  if (form === undefined) {
    throw new TensorError(`input '${name}' is ${datatype}, which travels in raw_input_contents only`);
  }
  const { field } = form;
  const elementsGiven = contents?.counts[field] ?? 0;
  if (elementsGiven !== lengthOf(contents)) {
    throw new TensorError(`input '${name}' is ${datatype}, so only ${field} may have elements`);
  }
  if (elementsGiven !== count) {
    throw new TensorError(`input '${name}' has ${elementsGiven} elements in ${field}, but its shape takes ${count}`);
  }
  if (contents === undefined) return new Uint8Array();
  const wrong = outOfRange(contents, form);
  if (wrong !== undefined) {
    throw new TensorError(`input '${name}': element ${wrong.index} is ${wrong.value}, which ${datatype} cannot hold`);
  }
  const bytes = byteCount(datatype, [count]) ?? contents.textBytes + 4 * count;
  grow(bytes);
  return contentBytes(contents, form, bytes);
}

const lengthOf = (contents: InferTensorContents | undefined): number =>
  Object.values(contents?.counts ?? {}).reduce((sum, count) => sum + count, 0);

/** Converts a message's parameters to the form that they have over HTTP. */
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
