/** Common to all gRPC methods: deadline, cancellation, authorization, accounting, and errors as status codes. */
import { Metadata, type handleUnaryCall, type sendUnaryData, type ServerUnaryCall } from '@grpc/grpc-js';
import { toHostError, type HostError } from '../errors.ts';
import type { Asking, RouteScope } from '../access/access.ts';
import type { HostContext } from '../http/host-context.ts';
import type { HeaderList } from '../calls/infer.ts';
import { accountReply } from '../replied.ts';
import { guardedCall } from './guarded-call.ts';
import { serviceError } from './status.ts';
import type { FunctionVersion } from '../types.ts';

/** What the routes of HTTP share, without the parts that only HTTP has. */
export type GrpcContext = Omit<HostContext, 'bodies' | 'exchangeMeans' | 'events' | 'logs'>;

/** Who may call a handler; the guard looks before the handler's message is read. */
const scopes = new WeakMap<object, RouteScope>();

export function forScope<Handler extends object>(scope: RouteScope, handler: Handler): Handler {
  scopes.set(handler, scope);
  return handler;
}

export function scopeOfHandler(handler: object): RouteScope {
  const scope = scopes.get(handler);
  if (scope === undefined) throw new Error('a handler says nothing about who may call it');
  return scope;
}

/** What unary and streaming calls have in common. */
export interface CallLike {
  readonly metadata: Metadata;
  getDeadline(): Date | number;
  getPeer(): string;
  on(event: 'cancelled', listener: () => void): unknown;
}

/** Milliseconds until the caller's deadline; Infinity if it set none. */
export function deadlineInMs(call: CallLike): number {
  const deadline = call.getDeadline();
  return (deadline instanceof Date ? deadline.getTime() : deadline) - Date.now();
}

/** Aborts when the caller cancels before its answer. */
export class CallerSignal {
  readonly #controller = new AbortController();
  #isAnswered = false;

  constructor(call: CallLike) {
    // grpc-js reports every ended call as cancelled; aborting those would cost more than the rest of the method.
    call.on('cancelled', () => {
      if (!this.#isAnswered) this.#controller.abort();
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  answered(): void {
    this.#isAnswered = true;
  }
}

/** A metadata value as text; undefined if absent. */
export function metadataText({ metadata }: CallLike, key: string): string | undefined {
  const [value] = metadata.get(key);
  return value?.toString();
}

/** A call as {@link Access} sees it: the key is in the metadata `authorization`, as in HTTP. */
export const asking = (context: GrpcContext, call: CallLike): Asking =>
  askingOf(context, call.metadata, () => call.getPeer());

export function askingOf({ connections }: GrpcContext, metadata: Metadata, getPeer: () => string): Asking {
  return {
    get authorization() {
      return metadata.get('authorization')[0]?.toString();
    },
    get address() {
      // `127.0.0.1:51234` or `[::1]:51234`
      const peer = getPeer()
        .replace(/:\d+$/, '')
        .replace(/^\[(.*)\]$/, '$1');
      return connections.addressOf(peer, (name) => metadata.get(name).join(','));
    },
  };
}

/** Parses `name` or `name@version`. */
export function modelId(text: string): { readonly name: string; readonly version: string | undefined } {
  const at = text.lastIndexOf('@');
  return at < 0 ? { name: text, version: undefined } : { name: text.slice(0, at), version: text.slice(at + 1) };
}

export function metadataOf(headers: HeaderList): Metadata {
  const metadata = new Metadata();
  for (let at = 0; at + 1 < headers.length; at += 2) {
    metadata.add(String(headers[at]).toLowerCase(), String(headers[at + 1]));
  }
  return metadata;
}

/** A method with one request and one reply. Errors that `work` throws become status codes. */
export function unary<Request, Response>(
  context: GrpcContext,
  method: string,
  scope: RouteScope,
  work: (request: Request, call: ServerUnaryCall<Request, Response>) => Response | Promise<Response>,
): handleUnaryCall<Request, Response> {
  return forScope(scope, (call: ServerUnaryCall<Request, Response>, callback: sendUnaryData<Response>) => {
    const startMs = performance.now();
    void (async () => {
      try {
        const response = await work(call.request, call);
        account(context, { method, startMs });
        callback(null, response);
      } catch (error) {
        account(context, { method, startMs, error, keyName: guardedCall(call).keyName });
        callback(serviceError(error));
      }
    })();
  });
}

/** A call that has ended. */
export interface Ended {
  readonly method: string;
  readonly startMs: number;
  readonly error?: unknown;
  /** The version that it asked for, once that is known to exist. */
  readonly called?: FunctionVersion | undefined;
  readonly keyName?: string | undefined;
  /** Bytes of the tensors that it carried. */
  readonly requestBytes?: number;
  readonly replyBytes?: number;
}

/** Counts a call, and logs it if it failed. */
export function account(
  context: GrpcContext,
  { method, startMs, error, called, keyName, requestBytes = 0, replyBytes = 0 }: Ended,
): void {
  const failure: HostError | undefined = error === undefined ? undefined : toHostError(error);
  const durationMs = performance.now() - startMs;
  const status = failure?.status ?? 200;
  const replied = { called, status, failure, durationMs, requestBytes, replyBytes };
  accountReply(context, replied, { grpc: method, function: called?.name, key: keyName });
}
