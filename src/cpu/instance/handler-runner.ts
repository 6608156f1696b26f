/** Loads a function's handler module and converts its arguments and results. */
import { validateHeaderName, validateHeaderValue } from 'node:http';
import { pathToFileURL } from 'node:url';
import { TensorError, type Tensor } from '../../tensor/index.ts';
import type { Handler, HandlerCall, HandlerContext } from './handler.ts';
import { handlerStack } from './handler-stack.ts';
import { toBody, toHandlerTensor, toTensor } from './handler-tensors.ts';
import { CpuError, type HandlerRequest, type HandlerResponse } from '../types.ts';

const messageCharactersMax = 1000;

/** Loads the handler as a module for this session alone: other functions in the process do not see its state. */
export async function loadHandler(path: string, session: number): Promise<Handler> {
  const module = (await import(`${pathToFileURL(path).href}?session=${session}`)) as Partial<Handler> & {
    default?: Partial<Handler>;
  };
  const preprocess = module.preprocess ?? module.default?.preprocess?.bind(module.default);
  const postprocess = module.postprocess ?? module.default?.postprocess?.bind(module.default);
  if (typeof preprocess !== 'function' || typeof postprocess !== 'function') {
    throw new TypeError('the handler does not export both preprocess(request) and postprocess(tensors, request)');
  }
  return { preprocess, postprocess };
}

/** The session whose handler the error came from. */
export function sessionOfStack(stack: string): number | undefined {
  const session = /\?session=(\d+):/.exec(stack)?.[1];
  return session === undefined ? undefined : Number(session);
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
        throw new CpuError('handler-input', `the body is not JSON: ${(error as Error).message}`);
      }
    },
  };
}

export async function runPreprocess(handler: Handler, call: HandlerCall, context: HandlerContext): Promise<Tensor[]> {
  try {
    const made = await handler.preprocess(call, context);
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
  context: HandlerContext,
): Promise<HandlerResponse> {
  try {
    return await toResponse(await handler.postprocess(tensors.map(toHandlerTensor), call, context));
  } catch (error) {
    throw asHandlerError('postprocess', error);
  }
}

/** Without this check ONNX Runtime would report an error about its 'feeds'. */
export function checkGiven(
  tensors: readonly Tensor[],
  inputs: readonly string[],
  optional: readonly string[] = [],
): void {
  const given = tensors.map(({ name }) => name);
  const missing = inputs.find((name) => !given.includes(name));
  const unknown = given.find((name) => !inputs.includes(name) && !optional.includes(name));
  if (missing === undefined && unknown === undefined) return;
  const problem =
    missing === undefined ? `gave '${unknown}', which is no input` : `did not give the input '${missing}'`;
  throw new CpuError('handler-failed', `the handler's preprocess ${problem} of the model (it gave ${list(given)})`);
}

function list(names: readonly string[]): string {
  return names.length === 0 ? 'nothing' : names.map((name) => `'${name}'`).join(', ');
}

/** A failure inside a handler, with the status that it asked for, or the one that fits. */
function asHandlerError(step: string, error: unknown): CpuError {
  if (error instanceof CpuError) return error;
  const message = messageOf(error);
  const status = statusOf(error);
  // The client gets the message, the log also the place.
  const stack = status === undefined || status >= 500 ? handlerStack(error) : undefined;
  if (stack !== undefined) console.error(stack);
  if (status === undefined) return new CpuError('handler-failed', `the handler's ${step} failed: ${message}`);
  return new CpuError(status < 500 ? 'handler-input' : 'handler-failed', message, status);
}

function statusOf(error: unknown): number | undefined {
  try {
    const status: unknown = typeof error === 'object' && error !== null && 'status' in error ? error.status : undefined;
    const usable = typeof status === 'number' && Number.isInteger(status) && status >= 400 && status <= 599;
    return usable ? status : undefined;
  } catch {
    return undefined; // The object has a getter that throws.
  }
}

/** One line about any thrown value. */
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

/** Checked by shape: naming the global class would load Node's whole fetch, 50 ms of the first call's time. */
function isWebResponse(value: unknown): value is Response {
  return (
    typeof value === 'object' && value !== null && 'arrayBuffer' in value && 'headers' in value && 'status' in value
  );
}

async function toResponse(value: unknown): Promise<HandlerResponse> {
  if (isWebResponse(value)) {
    const { status } = value;
    // The object may not be a platform Response, which would have checked the status itself.
    if (!Number.isInteger(status) || status < 200 || status > 599) {
      throw new TensorError(`postprocess returned a response with the status ${String(status)}, which is none`);
    }
    const headers = Object.fromEntries(value.headers);
    for (const [name, text] of Object.entries(headers)) {
      validateHeaderName(name);
      validateHeaderValue(name, text);
    }
    return { status, headers, body: new Uint8Array(await value.arrayBuffer()) };
  }
  const made = toBody(value);
  if (made === undefined) throw new TypeError('postprocess returned nothing that can be sent');
  return { status: 200, headers: { 'content-type': made.type }, body: made.body };
}
