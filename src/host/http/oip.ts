/**
 * Requests and replies of the Open Inference Protocol's `infer`, in JSON or with Triton's binary tensor data extension.
 * Pure: bytes in, tensors out, and back. Whatever bytes come in, only HostError and TensorError are thrown.
 */
import { checkBytes, elementBytes, packBytes, tensorFromJson, TensorError, valuesToJson } from '../../tensor/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { TensorSpec } from '../types.ts';
import { isObject, parseJsonObject } from './json-body.ts';
import { checkAgreement, checkComplete, checkShape, rowsOf, shapeText, shown, unknownName } from './model-spec.ts';
import type { ModelSpec } from './model-spec.ts';

/** The header with the length of the JSON part, in the lower-case form of Node's header objects. */
export const headerLengthName = 'inference-header-content-length';

/** A decoded infer request. */
export interface InferCall {
  readonly tensors: readonly Tensor[];
  readonly id: string | undefined;
  /** Names of the outputs that were asked for, in that order; undefined: all. */
  readonly outputs: readonly string[] | undefined;
  readonly binary: BinaryOutputs;
  /** `parameters.timeout` (microseconds) in milliseconds; undefined where none was given. */
  readonly timeoutMs: number | undefined;
  /** `parameters.priority`, 1 = highest; undefined where none was given. */
  readonly priority: number | undefined;
  /** Inferences in this request: the size of its batch. */
  readonly rows: number;
}

/** Which outputs travel as raw bytes. */
export interface BinaryOutputs {
  readonly byDefault: boolean;
  readonly byName: ReadonlyMap<string, boolean> | undefined;
}

/** The JSON length that a header states; undefined when there is no such header. */
export function parseHeaderLength(header: string | string[] | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (typeof header !== 'string' || !/^\d{1,15}$/.test(header)) {
    throw new HostError('bad-request', 'the header Inference-Header-Content-Length is not a number of bytes');
  }
  return Number(header);
}

/**
 * Decodes and checks a request.
 *
 * @param headerLength bytes of JSON at the start of `body`; undefined: all of it; 0: `body` is the one input's raw data
 * @throws HostError 'bad-request' | 'bad-json', or TensorError, with a sentence that names the tensor or field
 */
export function decodeInfer(body: Buffer, headerLength: number | undefined, spec: ModelSpec): InferCall {
  if (headerLength === 0) return decodeRaw(body, spec);
  if (headerLength !== undefined && headerLength > body.byteLength) {
    throw new HostError(
      'bad-request',
      `Inference-Header-Content-Length is ${headerLength}, but the body has ${body.byteLength} bytes`,
    );
  }
  const json = headerLength === undefined ? body : body.subarray(0, headerLength);
  const payload = headerLength === undefined ? undefined : body.subarray(headerLength);
  const request = parseJsonObject(json, headerLength === undefined ? 'the body' : 'the inference header');
  const { id, timeoutMs, priority, binaryByDefault } = readRequestFields(request);
  const tensors = readInputs(request['inputs'], payload, spec);
  const { names, byName } = readOutputs(request['outputs'], spec);
  return {
    tensors,
    id,
    outputs: names,
    binary: { byDefault: binaryByDefault, byName },
    timeoutMs,
    priority,
    rows: rowsOf(spec, tensors),
  };
}

/**
 * Triton's raw binary request: the body is the data of the model's only input. Dimension 0 counts as a batch of 1 when
 * it varies; one other dimension that varies follows from the number of bytes. A BYTES input is one element.
 */
function decodeRaw(body: Buffer, spec: ModelSpec): InferCall {
  const [input] = spec.inputs;
  if (input === undefined || spec.inputs.length !== 1) {
    throw new HostError(
      'bad-request',
      `Inference-Header-Content-Length is 0, which only a model with one input takes; this one has ${spec.inputs.length}`,
    );
  }
  const { name, datatype } = input;
  const shape = rawShape(input, body.byteLength);
  const tensor: Tensor = { name, datatype, shape, data: datatype === 'BYTES' ? packBytes([body]) : body };
  checkBytes(tensor);
  return {
    tensors: [tensor],
    id: undefined,
    outputs: undefined,
    binary: { byDefault: true, byName: undefined },
    timeoutMs: undefined,
    priority: undefined,
    rows: rowsOf(spec, [tensor]),
  };
}

function rawShape(input: TensorSpec, bytes: number): number[] {
  const shape = input.shape.map((size, index) =>
    size === -1 && (index === 0 || input.datatype === 'BYTES') ? 1 : size,
  );
  const varying = shape.indexOf(-1);
  if (varying === -1) return shape;
  if (shape.indexOf(-1, varying + 1) !== -1) {
    throw new TensorError(
      `input '${input.name}' ${shapeText(input)} has several sizes that vary, so raw data alone cannot tell its shape`,
    );
  }
  const others = shape.reduce(
    (product, size) => (size === -1 ? product : product * size),
    elementBytes[input.datatype],
  );
  shape[varying] = Math.max(1, Math.floor(bytes / others));
  return shape;
}

interface RequestFields {
  readonly id: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly priority: number | undefined;
  readonly binaryByDefault: boolean;
}

function readRequestFields(request: Record<string, unknown>): RequestFields {
  const { id, parameters } = request;
  if (id !== undefined && typeof id !== 'string') throw new HostError('bad-request', "'id' is not a string");
  if (parameters === undefined) return { id, timeoutMs: undefined, priority: undefined, binaryByDefault: false };
  if (!isObject(parameters)) throw new HostError('bad-request', "'parameters' is not an object");
  for (const key of ['sequence_id', 'sequence_start', 'sequence_end']) {
    if (parameters[key] !== undefined && parameters[key] !== 0 && parameters[key] !== false) {
      throw new HostError(
        'bad-request',
        `the parameter '${key}' is not supported: functions keep no state between calls`,
      );
    }
  }
  const timeoutUs = wholeParameter(parameters, 'timeout');
  return {
    id,
    timeoutMs: timeoutUs === 0 || timeoutUs === undefined ? undefined : timeoutUs / 1000,
    // Triton's 0 is 'the default'.
    priority: wholeParameter(parameters, 'priority') || undefined,
    binaryByDefault: booleanParameter(parameters, 'binary_data_output', 'the request') ?? false,
  };
}

function wholeParameter(parameters: Record<string, unknown>, key: string): number | undefined {
  const value = parameters[key];
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new HostError('bad-request', `the parameter '${key}' is not a whole number of at least 0`);
  }
  return value;
}

function booleanParameter(parameters: Record<string, unknown>, key: string, owner: string): boolean | undefined {
  const value = parameters[key];
  if (value === undefined || typeof value === 'boolean') return value;
  throw new HostError('bad-request', `the parameter '${key}' of ${owner} is not true or false`);
}

function parametersOf(entry: Record<string, unknown>, owner: string): Record<string, unknown> | undefined {
  const { parameters } = entry;
  if (parameters === undefined) return undefined;
  if (!isObject(parameters)) throw new HostError('bad-request', `'parameters' of ${owner} is not an object`);
  if (parameters['shared_memory_region'] !== undefined) {
    throw new HostError('bad-request', `${owner} asks for shared memory, which this host does not offer`);
  }
  return parameters;
}

function readInputs(inputs: unknown, payload: Buffer | undefined, spec: ModelSpec): Tensor[] {
  if (!Array.isArray(inputs)) throw new HostError('bad-request', "the request has no 'inputs' that is an array");
  // Before the loop, so that a million entries are refused at the first that is too many.
  if (inputs.length > spec.inputs.length) refuseSurplus(inputs, spec);
  const tensors: Tensor[] = [];
  let at = 0;
  for (const entry of inputs as unknown[]) {
    const { name, datatype, input, fields } = describeInput(entry, spec);
    if (tensors.some((tensor) => tensor.name === name)) throw new TensorError(`input '${name}' is given twice`);
    const shape = checkShape(input, fields['shape']);
    const size = binarySize(name, fields);
    if (size === undefined) {
      tensors.push(fromJson(name, datatype, shape, fields['data']));
      continue;
    }
    const left = payload === undefined ? 0 : payload.byteLength - at;
    if (payload === undefined || size > left) {
      throw new TensorError(
        payload === undefined
          ? `input '${name}' has a binary_data_size, but the request has no header Inference-Header-Content-Length`
          : `input '${name}' has a binary_data_size of ${size}, but only ${left} bytes are left in the body`,
      );
    }
    const tensor: Tensor = { name, datatype, shape, data: payload.subarray(at, at + size) };
    checkBytes(tensor);
    tensors.push(tensor);
    at += size;
  }
  if (payload !== undefined && at !== payload.byteLength) {
    throw new TensorError(`${payload.byteLength - at} bytes follow the data of the last input`);
  }
  checkComplete(spec, tensors);
  checkAgreement(spec, tensors);
  return tensors;
}

function refuseSurplus(inputs: readonly unknown[], spec: ModelSpec): never {
  const seen = new Set<string>();
  for (const entry of inputs) {
    const { name } = describeInput(entry, spec);
    if (seen.has(name)) throw new TensorError(`input '${name}' is given twice`);
    seen.add(name);
  }
  throw new TensorError(`the request has ${inputs.length} inputs, but the model takes ${spec.inputs.length}`);
}

function describeInput(
  entry: unknown,
  spec: ModelSpec,
): { name: string; datatype: DataType; input: TensorSpec; fields: Record<string, unknown> } {
  if (!isObject(entry)) throw new HostError('bad-request', "an entry of 'inputs' is not an object");
  const { name, datatype } = entry;
  if (typeof name !== 'string') throw new HostError('bad-request', "an entry of 'inputs' has no 'name'");
  const input = spec.inputByName.get(name);
  if (input === undefined) throw unknownName('input', name, spec.inputs);
  if (datatype !== input.datatype) {
    const given = typeof datatype === 'string' ? `the datatype '${shown(datatype)}'` : 'no datatype';
    throw new TensorError(`input '${name}' has ${given}, but the model takes ${input.datatype}`);
  }
  return { name, datatype: input.datatype, input, fields: entry };
}

/** Bytes of the input's raw data; undefined where its data is JSON. */
function binarySize(name: string, fields: Record<string, unknown>): number | undefined {
  const size = parametersOf(fields, `input '${name}'`)?.['binary_data_size'];
  if (size === undefined) return undefined;
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) {
    throw new TensorError(`input '${name}' has a binary_data_size that is not a number of bytes`);
  }
  if (fields['data'] !== undefined) throw new TensorError(`input '${name}' has both 'data' and a binary_data_size`);
  return size;
}

function fromJson(name: string, datatype: DataType, shape: readonly number[], data: unknown): Tensor {
  if (data === undefined) throw new TensorError(`input '${name}' has neither 'data' nor a binary_data_size`);
  try {
    return tensorFromJson(name, datatype, shape, data);
  } catch (error) {
    // Showing a wrong element that is itself nested thousands deep.
    if (error instanceof RangeError) {
      throw new TensorError(`input '${name}': 'data' is nested deeper than its shape [${shape.join(',')}]`);
    }
    throw error;
  }
}

function readOutputs(
  outputs: unknown,
  spec: ModelSpec,
): { names: readonly string[] | undefined; byName: ReadonlyMap<string, boolean> | undefined } {
  if (outputs === undefined) return { names: undefined, byName: undefined };
  if (!Array.isArray(outputs)) throw new HostError('bad-request', "'outputs' is not an array");
  const byName = new Map<string, boolean>();
  const names = new Set<string>();
  for (const entry of outputs as unknown[]) {
    if (!isObject(entry)) throw new HostError('bad-request', "an entry of 'outputs' is not an object");
    const { name } = entry;
    if (typeof name !== 'string') throw new HostError('bad-request', "an entry of 'outputs' has no 'name'");
    if (!spec.outputByName.has(name)) throw unknownName('output', name, spec.outputs);
    if (names.has(name)) throw new TensorError(`output '${name}' is asked for twice`);
    names.add(name);
    const parameters = parametersOf(entry, `output '${name}'`);
    if (parameters === undefined) continue;
    if (parameters['classification'] !== undefined && parameters['classification'] !== 0) {
      throw new HostError('bad-request', `output '${name}' asks for classification, which this host does not offer`);
    }
    const binary = booleanParameter(parameters, 'binary_data', `output '${name}'`);
    if (binary !== undefined) byName.set(name, binary);
  }
  // An empty list asks for every output, as in Triton.
  return { names: names.size === 0 ? undefined : [...names], byName: byName.size === 0 ? undefined : byName };
}

/** A reply ready to be sent. */
export interface InferReply {
  /** Bytes of JSON at the start when raw tensor data follows, else undefined: the whole body is JSON. */
  readonly headerLength: number | undefined;
  /**
   * The body's parts, in order. The JSON stays a string, which Node writes together with the HTTP headers; copying the
   * tensors behind it would cost 2 µs for 4 KiB.
   */
  readonly parts: readonly [json: string, ...payload: Uint8Array[]];
}

/** Encodes the outputs of a run. FP16 and BF16 have no JSON form, so they are sent as binary whatever was asked. */
export function encodeInfer(
  model: { readonly name: string; readonly version: string },
  call: Pick<InferCall, 'id' | 'outputs' | 'binary'>,
  tensors: readonly Tensor[],
): InferReply {
  const ordered = call.outputs === undefined ? tensors : inOrder(call.outputs, tensors);
  const payload: Uint8Array[] = [];
  const outputs = ordered.map((tensor) => {
    const { name, datatype, shape, data } = tensor;
    const half = datatype === 'FP16' || datatype === 'BF16';
    const binary = half || (call.binary.byName?.get(name) ?? call.binary.byDefault);
    if (!binary) return { name, datatype, shape, data: valuesToJson(tensor) };
    payload.push(data);
    return { name, datatype, shape, parameters: { binary_data_size: data.byteLength } };
  });
  const json = JSON.stringify({ id: call.id, model_name: model.name, model_version: model.version, outputs });
  return { headerLength: payload.length === 0 ? undefined : Buffer.byteLength(json), parts: [json, ...payload] };
}

function inOrder(names: readonly string[], tensors: readonly Tensor[]): Tensor[] {
  return names.map((name) => {
    const tensor = tensors.find((candidate) => candidate.name === name);
    if (tensor === undefined) throw new HostError('internal', `the instance did not return the output '${name}'`);
    return tensor;
  });
}
