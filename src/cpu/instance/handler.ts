/** What a function's handler module exports, and the arguments that it gets. */
import type { DataType } from '../../tensor/index.ts';

/**
 * A tensor as handlers see it: `data` as the typed array of its datatype (FP16 as its 16-bit patterns). An element of
 * BYTES is a string, or a Uint8Array where its bytes are not UTF-8. From `preprocess` a plain array of numbers,
 * bigints, booleans, strings or Uint8Arrays will do as well.
 */
export interface HandlerTensor {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly data: ArrayLike<number> | ArrayLike<bigint> | readonly (string | Uint8Array)[] | readonly boolean[];
}

/** The HTTP request that called the function. */
export interface HandlerCall {
  readonly method: string;
  /** Path and query, as sent. */
  readonly url: string;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** The body as UTF-8 text. */
  text(): string;
  /** The body as JSON; throws (the client gets 400) when it is not. */
  json(): unknown;
}

/** What another function answered to {@link HandlerContext.call}. */
export interface FunctionReply {
  readonly status: number;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** The body as UTF-8 text. */
  text(): string;
  /** The body as JSON; throws when it is not. */
  json(): unknown;
}

/**
 * Calls other functions of the same host, within what is left of this call's SLO. While the handler waits, its instance
 * serves other calls and its time limit stands still. A failed call rejects with an error that has the `code` and the
 * `status` of docs/errors.md.
 */
export interface HandlerContext {
  /** Runs the model of another function, without its handler. Resolves to all its outputs, in the model's order. */
  invoke(name: string, tensors: readonly HandlerTensor[]): Promise<HandlerTensor[]>;
  /**
   * Sends a request to another function, whose handler answers. The body is text, bytes, or anything else as JSON. A
   * function that is waiting for this one's answer cannot be called.
   */
  call(name: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<FunctionReply>;
}

/**
 * A handler module exports these two functions (by name, or together as its default export). They run in the instance's
 * process, one call at a time, under the time limit `timeouts.handlerMs`.
 *
 * An error thrown with a numeric `status` property (400-599) becomes that status with the error's message; any other is
 * a 500.
 */
export interface Handler {
  /** The model's inputs, in any order. Each invocation is one request: dimension 0 is its own batch. */
  preprocess(
    request: HandlerCall,
    context: HandlerContext,
  ): readonly HandlerTensor[] | Promise<readonly HandlerTensor[]>;
  /**
   * The reply: a string (text/plain), bytes (application/octet-stream), a web `Response` (status and headers of its
   * own), or anything else as JSON.
   */
  postprocess(tensors: readonly HandlerTensor[], request: HandlerCall, context: HandlerContext): unknown;
}
