/**
 * Requests of the Open Inference Protocol's `infer`, in JSON or with Triton's binary tensor data extension. Pure: bytes
 * in, tensors out. For any bytes, only HostError and TensorError are thrown.
 */
import { checkBytes, elementBytes, JsonText, packBytes, tensorFromJson, TensorError } from '../../tensor/index.ts';
import type { DataType, Grow, JsonForm, Steps, Tensor } from '../../tensor/index.ts';
import { getOrMake } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import type { TensorSpec } from '../types.ts';
import { isObject, notJson, parseTensorJson } from './json-body.ts';
import { checkComplete, checkShape, rowsOf, shapeText, shown, unknownName, type ModelSpec } from './model-spec.ts';

/** The header with the length of the JSON part, in lower case as in Node's header objects. */
export const headerLengthName = 'inference-header-content-length';

/** Where tensors are in a request. */
const form: JsonForm = {
  members: new Map([['inputs', { items: { members: new Map([['data', 'tensor']]) } }]]),
};

/** A decoded infer request. */
export interface InferCall {
  readonly tensors: readonly Tensor[];
  readonly id: string | undefined;
  /** Names of the requested outputs, in that order; undefined: all. */
  readonly outputs: readonly string[] | undefined;
  readonly binary: BinaryOutputs;
  /** Outputs to be replaced by their highest values with classes, and how many. */
  readonly classes: ReadonlyMap<string, number> | undefined;
  /** `parameters.timeout` (microseconds) in milliseconds; undefined if not given. */
  readonly timeoutMs: number | undefined;
  /** `parameters.priority`, 1 = highest; undefined if not given. */
  readonly priority: number | undefined;
  /** Inferences in this request: the size of its batch. */
  readonly rows: number;
}

/** Which outputs travel as raw bytes. */
export interface BinaryOutputs {
  readonly byDefault: boolean;
  readonly byName: ReadonlyMap<string, boolean> | undefined;
}

/** The JSON length in a header; undefined without the header. */
export function parseHeaderLength(header: string | string[] | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (typeof header !== 'string' || !/^\d{1,15}$/.test(header)) {
    throw new HostError('bad-request', 'the header Inference-Header-Content-Length is not a number of bytes');
  }
  return Number(header);
}

/**
 * Decodes and checks a request.
 * @param headerLength bytes of JSON at the start of `body`; undefined: all of it; 0: `body` is the raw data of the only
 * input
 * @param grow is told the bytes of tensors before they are read from JSON; what it throws is thrown
 * @throws HostError 'bad-request' | 'bad-json', or TensorError, with a sentence that names the tensor or field
 */
export function* decodeInfer(
  body: Buffer,
  headerLength: number | undefined,
  spec: ModelSpec,
  grow?: Grow,
): Steps<InferCall> {
  if (headerLength === 0) return decodeRaw(body, spec);
  if (headerLength !== undefined && headerLength > body.byteLength) {
    throw new HostError(
      'bad-request',
      `Inference-Header-Content-Length is ${headerLength}, but the body has ${body.byteLength} bytes`,
    );
  }
  const json = headerLength === undefined ? body : body.subarray(0, headerLength);
  const payload = headerLength === undefined ? undefined : body.subarray(headerLength);
  const text = payload !== undefined && json.byteLength <= knownBytesMax ? json.toString('latin1') : undefined;
  const known = text === undefined ? undefined : knownHeaders.get(spec)?.get(text);
  if (known !== undefined && payload?.byteLength === known.dataBytes) return withData(known, payload);
  const what = headerLength === undefined ? 'the body' : 'the inference header';
  const request = yield* parseTensorJson(json, what, form);
  if (!isObject(request)) throw new HostError('bad-json', `${what} is JSON, but not an object`);
  const { id, timeoutMs, priority, binaryByDefault } = readRequestFields(request);
  const tensors = yield* readInputs(request['inputs'], payload, spec, what, grow);
  const { names, byName, classes } = readOutputs(request['outputs'], spec);
  const binary = { byDefault: binaryByDefault, byName };
  const call = { tensors, id, outputs: names, binary, classes, timeoutMs, priority, rows: rowsOf(spec, tensors) };
  // With an id the header differs in each call.
  if (text !== undefined && id === undefined) keep(spec, text, call, payload!.byteLength);
  return call;
}

/**
 * A client's binary requests repeat their header call after call; parsing it takes longer than all other steps here.
 */
interface KnownHeader {
  /** Its tensors have no data. */
  readonly call: InferCall;
  readonly bytes: readonly number[];
  readonly dataBytes: number;
}

const knownBytesMax = 1024;
const knownMax = 32;
const knownHeaders = new WeakMap<ModelSpec, Map<string, KnownHeader>>();

function keep(spec: ModelSpec, text: string, call: InferCall, dataBytes: number): void {
  const bytes = call.tensors.map(({ data }) => data.byteLength);
  // The header itself contains some of the data.
  if (bytes.reduce((sum, size) => sum + size, 0) !== dataBytes) return;
  const tensors = call.tensors.map((tensor) => ({ ...tensor, data: noData }));
  const headers = getOrMake(knownHeaders, spec, () => new Map());
  // A model is called with a few headers or with ever new ones; tracking the least recently used is not worth it.
  if (headers.size === knownMax) headers.clear();
  headers.set(text, { call: { ...call, tensors }, bytes, dataBytes });
}

const noData = new Uint8Array();

function withData({ call, bytes }: KnownHeader, payload: Buffer): InferCall {
  let at = 0;
  const tensors = call.tensors.map(({ name, datatype, shape }, index): Tensor => {
    const tensor = { name, datatype, shape, data: payload.subarray(at, (at += bytes[index]!)) };
    checkBytes(tensor);
    return tensor;
  });
  // Written out: V8 takes a microsecond to copy an object by spread.
  const { id, outputs, binary, classes, timeoutMs, priority, rows } = call;
  return { tensors, id, outputs, binary, classes, timeoutMs, priority, rows };
}

/**
 * Triton's raw binary request: the body is the data of the model's only input. A varying dimension 0 is a batch of 1;
 * one other varying dimension follows from the number of bytes. A BYTES input is one element.
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
    classes: undefined,
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

function* readInputs(
  inputs: unknown,
  payload: Buffer | undefined,
  spec: ModelSpec,
  what: string,
  grow: Grow | undefined,
): Steps<Tensor[]> {
  if (!Array.isArray(inputs)) throw new HostError('bad-request', "the request has no 'inputs' that is an array");
  // Before the loop, so that a million entries are refused at the first one too many.
  if (inputs.length > spec.inputByName.size) refuseSurplus(inputs, spec);
  const tensors: Tensor[] = [];
  let at = 0;
  for (const entry of inputs as unknown[]) {
    const { name, datatype, input, fields } = describeInput(entry, spec);
    if (tensors.some((tensor) => tensor.name === name)) throw new TensorError(`input '${name}' is given twice`);
    const shape = checkShape(input, fields['shape']);
    const size = binarySize(name, fields);
    if (size === undefined) {
      tensors.push(yield* fromJson(name, datatype, shape, fields['data'], what, grow));
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
  return tensors;
}

/** Bytes of the input's raw data; undefined if its data is JSON. */
function binarySize(name: string, fields: Record<string, unknown>): number | undefined {
  const size = parametersOf(fields, `input '${name}'`)?.['binary_data_size'];
  if (size === undefined) return undefined;
  if (typeof size !== 'number' || !Number.isSafeInteger(size) || size < 0) {
    throw new TensorError(`input '${name}' has a binary_data_size that is not a number of bytes`);
  }
  if (fields['data'] !== undefined) throw new TensorError(`input '${name}' has both 'data' and a binary_data_size`);
  return size;
}

function* fromJson(
  name: string,
  datatype: DataType,
  shape: readonly number[],
  data: unknown,
  what: string,
  grow: Grow | undefined,
): Steps<Tensor> {
  if (!(data instanceof JsonText)) throw new TensorError(`input '${name}' has neither 'data' nor a binary_data_size`);
  try {
    return yield* tensorFromJson(name, datatype, shape, data, grow);
  } catch (error) {
    throw notJson(what, error);
  }
}

// The fields of a request besides its tensors' data: the same over HTTP and gRPC.

interface RequestFields {
  readonly id: string | undefined;
  readonly timeoutMs: number | undefined;
  readonly priority: number | undefined;
  readonly binaryByDefault: boolean;
}

export function readRequestFields(request: Record<string, unknown>): RequestFields {
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
    // Triton's 0 means the default.
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

export function refuseSurplus(inputs: readonly unknown[], spec: ModelSpec): never {
  const seen = new Set<string>();
  for (const entry of inputs) {
    const { name } = describeInput(entry, spec);
    if (seen.has(name)) throw new TensorError(`input '${name}' is given twice`);
    seen.add(name);
  }
  throw new TensorError(`the request has ${inputs.length} inputs, but the model takes ${spec.inputByName.size}`);
}

export function describeInput(
  entry: unknown,
  spec: ModelSpec,
): { name: string; datatype: DataType; input: TensorSpec; fields: Record<string, unknown> } {
  if (!isObject(entry)) throw new HostError('bad-request', "an entry of 'inputs' is not an object");
  const { name, datatype } = entry;
  if (typeof name !== 'string') throw new HostError('bad-request', "an entry of 'inputs' has no 'name'");
  const input = spec.inputByName.get(name);
  if (input === undefined) throw unknownName('input', name, spec);
  if (datatype !== input.datatype) {
    const given = typeof datatype === 'string' ? `the datatype '${shown(datatype)}'` : 'no datatype';
    throw new TensorError(`input '${name}' has ${given}, but the model takes ${input.datatype}`);
  }
  return { name, datatype: input.datatype, input, fields: entry };
}

export function readOutputs(
  outputs: unknown,
  spec: ModelSpec,
): {
  names: readonly string[] | undefined;
  byName: ReadonlyMap<string, boolean> | undefined;
  classes: ReadonlyMap<string, number> | undefined;
} {
  if (outputs === undefined) return { names: undefined, byName: undefined, classes: undefined };
  if (!Array.isArray(outputs)) throw new HostError('bad-request', "'outputs' is not an array");
  const byName = new Map<string, boolean>();
  const classes = new Map<string, number>();
  const names = new Set<string>();
  for (const entry of outputs as unknown[]) {
    if (!isObject(entry)) throw new HostError('bad-request', "an entry of 'outputs' is not an object");
    const { name } = entry;
    if (typeof name !== 'string') throw new HostError('bad-request', "an entry of 'outputs' has no 'name'");
    if (!spec.outputByName.has(name)) throw unknownName('output', name, spec);
    if (names.has(name)) throw new TensorError(`output '${name}' is asked for twice`);
    names.add(name);
    const parameters = parametersOf(entry, `output '${name}'`);
    if (parameters === undefined) continue;
    const classification = wholeParameter(parameters, 'classification');
    if (classification !== undefined && classification > 0) classes.set(name, classification);
    const binary = booleanParameter(parameters, 'binary_data', `output '${name}'`);
    if (binary !== undefined) byName.set(name, binary);
  }
  // An empty list asks for every output, as in Triton.
  return {
    names: names.size === 0 ? undefined : [...names],
    byName: byName.size === 0 ? undefined : byName,
    classes: classes.size === 0 ? undefined : classes,
  };
}
