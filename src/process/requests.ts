/**
 * Requests and their answers over a channel: numbered, so that many can be under way; each is answered once, or fails.
 */
import { isMainThread } from 'node:worker_threads';
import type { Message, Tensor } from '../tensor/index.ts';
import { isToldToEnd, leave, parentChannel } from './parent.ts';
import { HangCheck } from './hang-check.ts';
import type { Peer, PeerEnd, StartPeer } from './peer.ts';

type ToServer =
  | { readonly id: number; readonly request: object }
  /** Who asked has gone. */
  | { readonly id: number; readonly cancel: true }
  /** Whether it listens. */
  | { readonly id: number; readonly ping: true };

type FromServer<Failure> =
  /** Something on the way to the answer has happened. */
  | { readonly id: number; readonly note: true }
  | { readonly id: number; readonly ok: true; readonly answer: unknown }
  | { readonly id: number; readonly ok: false; readonly failure: Failure };

export interface Reply<Answer = unknown> {
  readonly answer: Answer;
  readonly tensors: readonly Tensor[];
}

/** The default form of a failure. */
export interface PlainFailure {
  readonly message: string;
}

/** Why a request got no answer: the server failed at it, or is gone. */
export type NoAnswer<Failure> =
  { readonly failure: Failure; readonly ended?: never } | { readonly ended: PeerEnd; readonly failure?: never };

export interface RequestOptions<Request, Failure> {
  readonly errorOf: (cause: NoAnswer<Failure>, request: Request) => Error;
  readonly onEnd?: (end: PeerEnd) => void;
  /** Without a request for this long, it is ended. */
  readonly idleMsMax?: number;
}

interface Task<Request> {
  readonly request: Request;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
  readonly over: () => void;
  readonly onNote: (() => void) | undefined;
}

/** The longest delay of Node's timers. */
const timerMsMax = 2 ** 31 - 1;
/** How often a server is pinged within the time for which it may be silent. */
const beats = 10;

/** A process or thread that answers requests. While no request is under way, it does not keep this process running. */
export class Server<Request extends object, Failure extends object = PlainFailure> {
  readonly pid: number;
  readonly #peer: Peer<ToServer>;
  readonly #options: RequestOptions<Request, Failure>;
  readonly #tasks = new Map<number, Task<Request>>();
  /** Keeps this process running while a request is under way: one handle instead of the peer and its pipes. */
  readonly #awake = setInterval(() => undefined, timerMsMax).unref();
  #next = 0;
  #end: PeerEnd | undefined;
  #isClosing = false;
  #idle: NodeJS.Timeout | undefined;
  #heart: NodeJS.Timeout | undefined;
  #silentBeats = 0;

  constructor(start: StartPeer<ToServer, FromServer<Failure>>, options: RequestOptions<Request, Failure>) {
    this.#options = options;
    this.#peer = start({
      message: ({ header, tensors }) => this.#take(header, tensors),
      closing: () => (this.#isClosing = true),
      ended: (end) => this.#ended(end),
    });
    this.pid = this.#peer.pid;
    this.#peer.unref();
  }

  /** Whether it can answer requests. */
  get isAlive(): boolean {
    return !this.#isClosing;
  }

  get exited(): Promise<void> {
    return this.#peer.exited;
  }

  /**
   * Rejects with the `errorOf` of a failure or an end.
   *
   * @param signal when aborted, the server's handler is told
   * @param onNote called when the server's handler sends a note, before the answer
   */
  ask<Answer>(
    request: Request,
    tensors: readonly Tensor[] = [],
    signal?: AbortSignal,
    onNote?: () => void,
  ): Promise<Reply<Answer>> {
    if (this.#end !== undefined) return Promise.reject(this.#options.errorOf({ ended: this.#end }, request));
    const id = this.#next++;
    const cancel = (): void => this.#peer.send({ id, cancel: true });
    signal?.addEventListener('abort', cancel, { once: true });
    clearTimeout(this.#idle);
    if (this.#tasks.size === 0) this.#awake.ref();
    return new Promise((resolve, reject) => {
      const over = (): void => signal?.removeEventListener('abort', cancel);
      this.#tasks.set(id, { request, resolve: resolve as Task<Request>['resolve'], reject, over, onNote });
      this.#peer.send({ id, request }, tensors);
      if (signal?.aborted === true) cancel();
    });
  }

  /**
   * Pings it periodically, and ends it when it has answered nothing for so long and is not starved. Pings are counted
   * instead of time, so that time for which this process itself was asleep does not count against the server.
   */
  watch(silenceMs: number): void {
    if (this.#end !== undefined) return;
    this.#silentBeats = 0;
    let check = new HangCheck(this.pid, silenceMs);
    this.#heart = setInterval(() => {
      if (++this.#silentBeats === 1) check = new HangCheck(this.pid, silenceMs);
      // Halves: the first look only tells what the server has used before.
      const isLimit = this.#silentBeats % Math.ceil(beats / 2) === 0;
      if (isLimit && check.hangs()) this.end(`it has not answered for ${silenceMs / 1000} s`);
      else this.#peer.send({ id: -1, ping: true });
    }, silenceMs / beats);
    this.#heart.unref();
  }

  /** Ends it; requests under way fail. */
  end(reason: string): void {
    this.#isClosing = true;
    clearTimeout(this.#idle);
    this.#peer.end(reason);
  }

  #take(header: FromServer<Failure>, tensors: readonly Tensor[]): void {
    this.#silentBeats = 0;
    const task = this.#tasks.get(header.id);
    if (task === undefined) return;
    if ('note' in header) {
      task.onNote?.();
      return;
    }
    this.#tasks.delete(header.id);
    task.over();
    if (this.#tasks.size === 0) this.#rest();
    if (header.ok) task.resolve({ answer: header.answer, tensors });
    else task.reject(this.#options.errorOf({ failure: header.failure }, task.request));
  }

  #rest(): void {
    this.#awake.unref();
    const { idleMsMax } = this.#options;
    if (idleMsMax === undefined) return;
    this.#idle = setTimeout(() => this.end('it had nothing to do'), idleMsMax);
    this.#idle.unref();
  }

  #ended(end: PeerEnd): void {
    this.#isClosing = true;
    this.#end = end;
    clearTimeout(this.#idle);
    clearInterval(this.#awake);
    clearInterval(this.#heart);
    const tasks = [...this.#tasks.values()];
    this.#tasks.clear();
    for (const { request, reject, over } of tasks) {
      over();
      reject(this.#options.errorOf({ ended: end }, request));
    }
    this.#options.onEnd?.(end);
  }
}

/** The message of a failure, or that `what` is gone and why. */
export function plainError(what: string): RequestOptions<unknown, PlainFailure>['errorOf'] {
  return ({ failure, ended }) => new Error(failure?.message ?? `${what} is gone: ${ended?.reason}`);
}

/** Starts a process or thread for one request. @param signal when aborted, it is ended */
export async function askOnce<Answer, Request extends object, Failure extends object = PlainFailure>(
  start: StartPeer<ToServer, FromServer<Failure>>,
  request: Request,
  errorOf: RequestOptions<Request, Failure>['errorOf'],
  signal?: AbortSignal,
): Promise<Answer> {
  const server = new Server<Request, Failure>(start, { errorOf });
  const stop = (): void => server.end('it was stopped');
  signal?.addEventListener('abort', stop);
  try {
    return (await server.ask<Answer>(request)).answer;
  } finally {
    signal?.removeEventListener('abort', stop);
    server.end('it has answered');
  }
}

export interface ServeOptions<Failure> {
  /** One request after the other. Otherwise all at once. */
  readonly inOrder?: boolean;
  readonly failureOf?: (error: unknown) => Failure;
}

/** @param note tells the asker that something on the way to the answer has happened */
type Handle<Request> = (
  request: Request,
  tensors: readonly Tensor[],
  signal: AbortSignal,
  note: () => void,
) => Promise<{ readonly answer: unknown; readonly tensors?: readonly Tensor[] }>;

/** The inner side: answers the requests of the parent. */
export function serve<Request extends object, Failure extends object = PlainFailure>(
  handle: Handle<Request>,
  { inOrder = false, failureOf = plainFailure as (error: unknown) => Failure }: ServeOptions<Failure> = {},
): void {
  const aborts = new Map<number, AbortController>();
  const channel = parentChannel<FromServer<Failure>, ToServer>(take);
  let last = Promise.resolve();

  function take(message: Message<ToServer>): void {
    const { header } = message;
    if ('cancel' in header) aborts.get(header.id)?.abort();
    else if ('ping' in header) channel.send({ id: header.id, ok: true, answer: null });
    else if (inOrder) last = last.then(() => answer(message));
    else void answer(message);
  }

  async function answer({ header, tensors }: Message<ToServer>): Promise<void> {
    if (!isMainThread && isToldToEnd()) {
      leave();
      return;
    }
    if (!('request' in header)) return;
    const { id, request } = header;
    const abort = new AbortController();
    aborts.set(id, abort);
    try {
      const note = (): void => channel.send({ id, note: true });
      const reply = await handle(request as Request, tensors, abort.signal, note);
      channel.send({ id, ok: true, answer: reply.answer }, reply.tensors);
    } catch (error) {
      channel.send({ id, ok: false, failure: failureOf(error) });
    } finally {
      aborts.delete(id);
    }
  }
}

function plainFailure(error: unknown): PlainFailure {
  return { message: error instanceof Error ? error.message : String(error) };
}
