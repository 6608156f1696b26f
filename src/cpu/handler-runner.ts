/** Loads a function's handler module and turns what it takes and gives into the project's forms. */
import { pathToFileURL } from 'node:url';
import {
  arrayOf,
  bytesElements,
  elementCount,
  elements,
  isDataType,
  packBytes,
  TensorError,
  type Tensor,
} from '../tensor/index.ts';
import type { Handler, HandlerCall, HandlerTensor } from './handler.ts';
import type { HandlerRequest, HandlerResponse } from './types.ts';

/** A failure inside a handler, with the status that it asked for or the one that fits. */
export class HandlerError extends Error {
  override readonly name = 'HandlerError';
  readonly code: 'handler-failed' | 'handler-input';
  readonly status: number | undefined;
  constructor(code: 'handler-failed' | 'handler-input', message: string, status?: number) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

const messageCharactersMax = 1000;

export async function loadHandler(path: string): Promise<Handler> {
  const module = (await import(pathToFileURL(path).href)) as Partial<Handler> & { default?: Partial<Handler> };
  const preprocess = module.preprocess ?? module.default?.preprocess?.bind(module.default);
  const postprocess = module.postprocess ?? module.default?.postprocess?.bind(module.default);
  if (typeof preprocess !== 'function' || typeof postprocess !== 'function') {
    throw new TypeError('the handler does not export both preprocess(request) and postprocess(tensors, request)');
  }
  return { preprocess, postprocess };
}

/** The call as the handler sees it; the same object goes to both of its steps. */
export function handlerCall(request: HandlerRequest): HandlerCall {
  const text = (): string =>
    Buffer.from(request.body.buffer, request.body.byteOffset, request.body.byteLength).toString('utf8');
  return {
    ...request,
    text,
    json() {
      try {
        return JSON.parse(text()) as unknown;
      } catch (error) {
        throw new HandlerError('handler-input', `the body is not JSON: ${(error as Error).message}`);
      }
    },
  };
}

export async function runPreprocess(handler: Handler, call: HandlerCall): Promise<Tensor[]> {
  try {
    const made = await handler.preprocess(call);
    if (!Array.isArray(made)) throw new TensorError('preprocess did not return an array of tensors');
    return made.map(toTensor);
  } catch (error) {
    throw asHandlerError('preprocess', error);
  }
}

export async function runPostprocess(
  handler: Handler,
  tensors: readonly Tensor[],
  call: HandlerCall,
): Promise<HandlerResponse> {
  try {
    return await toResponse(await handler.postprocess(tensors.map(toHandlerTensor), call));
  } catch (error) {
    throw asHandlerError('postprocess', error);
  }
}

function asHandlerError(step: string, error: unknown): HandlerError {
  if (error instanceof HandlerError) return error;
  const message = messageOf(error);
  const status = statusOf(error);
  if (status === undefined) return new HandlerError('handler-failed', `the handler's ${step} failed: ${message}`);
  return new HandlerError(status < 500 ? 'handler-input' : 'handler-failed', message, status);
}

function statusOf(error: unknown): number | undefined {
  try {
    const status: unknown = typeof error === 'object' && error !== null && 'status' in error ? error.status : undefined;
    const usable = typeof status === 'number' && Number.isInteger(status) && status >= 400 && status <= 599;
    return usable ? status : undefined;
  } catch {
    return undefined; // A getter of the handler's own that throws.
  }
}

/** What was thrown, whatever it is, in one line. */
export function messageOf(error: unknown): string {
  let text: string;
  try {
    const message: unknown = typeof error === 'object' && error !== null && 'message' in error ? error.message : error;
    text = String(message);
  } catch {
    text = 'something that cannot be shown';
  }
  const line = text.replaceAll(/\s+/g, ' ').trim();
  return line.length > messageCharactersMax ? `${line.slice(0, messageCharactersMax)}...` : line;
}

function toTensor(made: HandlerTensor): Tensor {
  const { name, datatype, shape, data } = made;
  if (typeof name !== 'string') throw new TensorError('preprocess returned a tensor without a name');
  if (!isDataType(datatype)) throw new TensorError(`tensor '${name}' has the unknown datatype '${String(datatype)}'`);
  if (!Array.isArray(shape) || shape.some((size) => !Number.isInteger(size) || size < 0)) {
    throw new TensorError(`tensor '${name}' has no valid shape`);
  }
  const count = elementCount(shape);
  if (data?.length !== count) {
    throw new TensorError(
      `tensor '${name}' has ${String(data?.length)} elements, but its shape [${shape.join(',')}] takes ${count}`,
    );
  }
  if (datatype === 'BYTES') return { name, datatype, shape, data: packBytes(data as readonly string[]) };
  const Array_ = arrayOf[datatype];
  const wide = datatype === 'INT64' || datatype === 'UINT64';
  const typed =
    data instanceof Array_
      ? data
      : wide
        ? (Array_ as typeof BigInt64Array).from(data as ArrayLike<number>, BigInt)
        : (Array_ as typeof Float64Array).from(data as ArrayLike<number>, Number);
  return { name, datatype, shape, data: new Uint8Array(typed.buffer, typed.byteOffset, typed.byteLength) };
}

function toHandlerTensor(tensor: Tensor): HandlerTensor {
  const { name, datatype, shape } = tensor;
  if (datatype === 'BYTES') {
    const data = Array.from(bytesElements(tensor), (element) => Buffer.from(element).toString('utf8'));
    return { name, datatype, shape, data };
  }
  return { name, datatype, shape, data: elements(tensor) };
}

/** By its shape: naming the global class would load Node's whole fetch, 50 ms of the first call's time. */
function isWebResponse(value: unknown): value is Response {
  return (
    typeof value === 'object' && value !== null && 'arrayBuffer' in value && 'headers' in value && 'status' in value
  );
}

async function toResponse(value: unknown): Promise<HandlerResponse> {
  if (isWebResponse(value)) {
    return {
      status: value.status,
      headers: Object.fromEntries(value.headers),
      body: new Uint8Array(await value.arrayBuffer()),
    };
  }
  if (typeof value === 'string') {
    return { status: 200, headers: { 'content-type': 'text/plain; charset=utf-8' }, body: Buffer.from(value, 'utf8') };
  }
  if (ArrayBuffer.isView(value)) {
    const body = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    return { status: 200, headers: { 'content-type': 'application/octet-stream' }, body };
  }
  const json = JSON.stringify(value);
  if (json === undefined) throw new TypeError('postprocess returned nothing that can be sent');
  return { status: 200, headers: { 'content-type': 'application/json' }, body: Buffer.from(json, 'utf8') };
}
