/**
 * Calls to a module that runs in a process or thread of its own. An interface of methods says what can be asked:
 *
 *     interface PinApi { pin(order: { bytes: number }): Pinned }
 *
 * The module answers with {@link serve}; {@link Remote} calls it. Each method takes one order of plain data, and tensors
 * beside it, whose bytes are not copied into the message's text. Each call is answered once, or fails with the method's
 * error, or with {@link GoneError} if the process or thread ends first.
 */
import { isMainThread } from 'node:worker_threads';
import { timerMsMax, type CancelSignal } from '../tools/index.ts';
import { owned, type FrameMemory, type Message, type Tensor } from '../tensor/index.ts';
import { startProcess, type ProcessOptions } from './child.ts';
import { HangCheck } from './hang-check.ts';
import { isToldToEnd, leave, parentChannel } from './parent.ts';
import type { Peer, PeerEnd, PeerEvents } from './peer.ts';
import type { SharedMemory } from './region.ts';
import { startThread, type ThreadOptions } from './thread.ts';

type Tensors = readonly Tensor[];

/** The answer of a method that also returns tensors. */
export interface Reply<Answer = unknown> {
  readonly answer: Answer;
  readonly tensors: Tensors;
}

type NamesIn<Api> = keyof Api & string;
type OrderOf<Method> = Method extends (...given: infer Given) => unknown ? Given[0] : never;
type ResultOf<Method> = Method extends (...order: never[]) => infer Result ? Result : never;
type AnswerOf<Method> = ResultOf<Method> extends Reply<infer Answer> ? Answer : ResultOf<Method>;

/** A method that takes tensors must be given some; one that takes nothing needs no order. */
export type Asked<Method> = Method extends () => unknown
  ? [order?: OrderOf<Method>, options?: CallOptions]
  : Method extends (order: infer Order) => unknown
    ? [order: Order, options?: CallOptions]
    : [order: OrderOf<Method>, options: CallOptions & { readonly tensors: Tensors }];

export interface CallOptions {
  /** When aborted, the method is told; its answer is still waited for. Not with `inOrder`. */
  readonly cancel?: CancelSignal | undefined;
  /** When aborted, the process or thread is ended. */
  readonly stop?: AbortSignal | undefined;
  /**
   * Without an answer for this long, the process or thread is ended: its {@link PeerEnd} `isLate`. A process that is
   * starved by others gets more, up to ten times as long.
   */
  readonly timeMsMax?: number | undefined;
  /** Called when the method sends a note, before the answer. */
  readonly onNote?: (() => void) | undefined;
}

interface AnyCallOptions extends CallOptions {
  readonly tensors?: Tensors;
}

/** The process or thread ended before it had answered. */
export class GoneError extends Error {
  override readonly name = 'GoneError';
  readonly end: PeerEnd;
  constructor(what: string, end: PeerEnd) {
    super(`${what} is gone: ${end.reason}`);
    this.end = end;
  }
}

/** Errors that arrive as what they were, with their fields. Any other arrives as an `Error` with its name and message. */
export type ErrorClasses = Readonly<Record<string, abstract new (...values: never[]) => Error>>;

interface SentError {
  readonly name: string;
  readonly message: string;
  /** Of one of the {@link ErrorClasses}, which `name` then names. */
  readonly fields?: object;
}

/** `id`: of no other call under way; absent with `inOrder`. The headers of like calls are equal, and need not be read again. */
interface Request {
  readonly id?: number;
  readonly op: string;
  readonly in?: unknown;
}

type ToRemote = Request | { readonly id: number; readonly cancel: true } | { readonly ping: true };

type FromRemote =
  | { readonly id?: number; readonly out?: unknown }
  | { readonly id?: number; readonly error: SentError }
  | { readonly id?: number; readonly note: true }
  | { readonly pong: true };

export type RemoteOptions = {
  /** 'the thread that pins memory', for errors. */
  readonly what: string;
  /** The same as the module gives to {@link serve}. */
  readonly errors?: ErrorClasses;
  /** What callers get instead of a method's error, or of a {@link GoneError}. */
  readonly errorOf?: (error: Error) => Error;
  /** It begins with a call when it has answered the one before. */
  readonly inOrder?: boolean;
  /** Of a process: in which tensors of answers count while they arrive. A call whose answer has no room gets its error. */
  readonly answers?: FrameMemory | undefined;
  /** Without a call for this long, it is ended. */
  readonly idleMsMax?: number;
  readonly onEnd?: (end: PeerEnd) => void;
} & (
  | { readonly process: ProcessOptions; readonly thread?: never }
  | { readonly thread: ThreadOptions; readonly process?: never }
);

interface Call {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
  readonly over: () => void;
  readonly onNote: (() => void) | undefined;
}

/** How often it is pinged within the time for which it may be silent. */
const beats = 10;

/** A process or thread that answers calls. While no call is under way, it does not keep this process running. */
export class Remote<Api extends object> {
  readonly pid: number;
  readonly #peer: Peer<ToRemote>;
  readonly #options: RemoteOptions;
  readonly #calls = new Map<number, Call>();
  /** Keeps this process running while a call is under way: one handle instead of the peer and its pipes. */
  readonly #awake = setInterval(() => undefined, timerMsMax).unref();
  #next = 0;
  /** Of calls that were answered. They are used again, so that the headers of like calls are equal. */
  readonly #freeIds: number[] = [];
  /** With `inOrder`: the call that is answered next. */
  #oldest = 0;
  #end: PeerEnd | undefined;
  #isClosing = false;
  #idle: NodeJS.Timeout | undefined;
  #heart: NodeJS.Timeout | undefined;
  #silentBeats = 0;
  #beatMs = 0;

  constructor(options: RemoteOptions) {
    this.#options = options;
    const { answers } = options;
    const events: PeerEvents<FromRemote> = {
      message: (message) => this.#take(message),
      account: answers && { memory: answers, counts: (header) => 'out' in header },
      closing: () => (this.#isClosing = true),
      ended: (end) => this.#ended(end),
    };
    this.#peer =
      options.thread === undefined ? startProcess(options.process, events) : startThread(options.thread, events);
    this.pid = this.#peer.pid;
    this.#peer.unref();
  }

  /** Whether it can answer calls. */
  get isAlive(): boolean {
    return !this.#isClosing;
  }

  /** How long it has left pings unanswered, if it is watched. */
  get silentMs(): number {
    return this.#silentBeats * this.#beatMs;
  }

  get exited(): Promise<void> {
    return this.#peer.exited;
  }

  /** Rejects with the method's error, or with {@link GoneError}; with `errorOf`, with what that makes of it. */
  async call<Name extends NamesIn<Api>>(name: Name, ...asked: Asked<Api[Name]>): Promise<AnswerOf<Api[Name]>> {
    return (await this.exchange(name, ...asked)).answer;
  }

  /** As {@link call}, for a method whose answer has tensors. */
  exchange<Name extends NamesIn<Api>>(name: Name, ...asked: Asked<Api[Name]>): Promise<Reply<AnswerOf<Api[Name]>>> {
    const [order, options = {}] = asked as readonly unknown[] as readonly [unknown, AnyCallOptions?];
    if (this.#end !== undefined) return Promise.reject(this.#gone(this.#end));
    const id = this.#freeIds.pop() ?? this.#next++;
    clearTimeout(this.#idle);
    if (this.#calls.size === 0) this.#awake.ref();
    return new Promise((resolve, reject) => {
      const over = this.#limit(id, options);
      this.#calls.set(id, { resolve: resolve as Call['resolve'], reject, over, onNote: options.onNote });
      const header = { op: name, in: order };
      this.#peer.send(this.#options.inOrder === true ? header : { id, ...header }, options.tensors);
      if (options.cancel?.aborted === true) this.#peer.send({ id, cancel: true });
      if (options.stop?.aborted === true) void this.end('it was stopped');
    });
  }

  /**
   * Pings the process periodically, and ends it when it has answered nothing for this long and is not starved. Pings
   * are counted instead of time, so that the time for which this process itself was asleep does not count.
   */
  watch(silenceMs: number): void {
    if (this.#end !== undefined) return;
    this.#silentBeats = 0;
    this.#beatMs = silenceMs / beats;
    let check = new HangCheck(this.pid, silenceMs);
    this.#heart = setInterval(() => {
      if (++this.#silentBeats === 1) check = new HangCheck(this.pid, silenceMs);
      // At half of the limit and at the limit: the first look only notes how much processor time it has used so far.
      const isLimit = this.#silentBeats % Math.ceil(beats / 2) === 0;
      if (isLimit && check.hangs()) void this.end(`it has not answered for ${silenceMs / 1000} s`);
      else this.#peer.send({ ping: true });
    }, this.#beatMs);
    this.#heart.unref();
  }

  /** Ends it; calls under way fail. Resolves when it is gone. */
  async end(reason: string, isLate = false): Promise<void> {
    this.#isClosing = true;
    clearTimeout(this.#idle);
    this.#peer.end(reason, isLate);
    await this.exited;
  }

  /** Returns what lifts the limits of a call. */
  #limit(id: number, { cancel, stop, timeMsMax }: AnyCallOptions): () => void {
    if (cancel === undefined && stop === undefined && timeMsMax === undefined) return nothing;
    const tell = (): void => this.#peer.send({ id, cancel: true });
    const end = (): void => void this.end('it was stopped');
    const check =
      timeMsMax === undefined || this.#options.process === undefined ? undefined : new HangCheck(this.pid, timeMsMax);
    // The first look only notes how much processor time it has used so far.
    check?.hangs();
    const late = (): void => {
      if (check === undefined || check.hangs()) void this.end(`it took longer than ${timeMsMax! / 1000} s`, true);
      else timer = setTimeout(late, timeMsMax).unref();
    };
    cancel?.addEventListener('abort', tell, { once: true });
    stop?.addEventListener('abort', end, { once: true });
    let timer = timeMsMax === undefined ? undefined : setTimeout(late, timeMsMax).unref();
    return () => {
      cancel?.removeEventListener('abort', tell);
      stop?.removeEventListener('abort', end);
      clearTimeout(timer);
    };
  }

  #take({ header, tensors, whyDropped }: Message<FromRemote>): void {
    this.#silentBeats = 0;
    if ('pong' in header) return;
    const { id = this.#oldest } = header;
    const call = this.#calls.get(id);
    if (call === undefined) return;
    if ('note' in header) {
      call.onNote?.();
      return;
    }
    this.#calls.delete(id);
    if (header.id === undefined) this.#oldest++;
    else this.#freeIds.push(id);
    call.over();
    if (this.#calls.size === 0) this.#rest();
    if ('error' in header) call.reject(this.#errorOf(received(header.error, this.#options.errors)));
    else if (whyDropped !== undefined) call.reject(whyDropped);
    else call.resolve({ answer: header.out, tensors });
  }

  #rest(): void {
    this.#awake.unref();
    const { idleMsMax } = this.#options;
    if (idleMsMax === undefined) return;
    this.#idle = setTimeout(() => void this.end('it had nothing to do'), idleMsMax);
    this.#idle.unref();
  }

  #ended(end: PeerEnd): void {
    this.#isClosing = true;
    this.#end = end;
    clearTimeout(this.#idle);
    clearInterval(this.#awake);
    clearInterval(this.#heart);
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    for (const { reject, over } of calls) {
      over();
      reject(this.#gone(end));
    }
    this.#options.onEnd?.(end);
  }

  #gone(end: PeerEnd): Error {
    return this.#errorOf(new GoneError(this.#options.what, end));
  }

  #errorOf(error: Error): Error {
    return this.#options.errorOf?.(error) ?? error;
  }
}

const nothing = (): void => undefined;

/** A process or thread that starts when it is needed, and again when it is needed after its end. */
export class OnDemand<Api extends object> {
  readonly #options: RemoteOptions;
  #remote: Remote<Api> | undefined;

  constructor(options: RemoteOptions) {
    this.#options = options;
  }

  get running(): Remote<Api> {
    if (this.#remote?.isAlive !== true) this.#remote = new Remote<Api>(this.#options);
    return this.#remote;
  }

  get isRunning(): boolean {
    return this.#remote?.isAlive === true;
  }

  /** Resolves when it is gone; at once if it does not run. */
  async end(reason: string): Promise<void> {
    await this.#remote?.end(reason);
  }
}

/** Starts a process or thread for one call. It is gone when the answer is there. */
export async function callOnce<Api extends object, Name extends NamesIn<Api>>(
  options: RemoteOptions,
  name: Name,
  ...asked: Asked<Api[Name]>
): Promise<AnswerOf<Api[Name]>> {
  const remote = new Remote<Api>(options);
  try {
    return await remote.call(name, ...asked);
  } finally {
    await remote.end('it has answered');
  }
}

/** What a method is given beside its order. */
export interface CallContext {
  /** Of a method that is {@link ServeOptions.lent} them, until it has answered. */
  readonly tensors: Tensors;
  /** Aborted when the caller cancels. */
  readonly signal: AbortSignal;
  /** Tells the caller that something on the way to the answer has happened. */
  readonly note: () => void;
}

/** The methods of a module, each of which may also answer later. */
export type Methods<Api> = {
  readonly [Name in keyof Api]: (
    order: OrderOf<Api[Name]>,
    context: CallContext,
  ) => ResultOf<Api[Name]> | Promise<ResultOf<Api[Name]>>;
};

/** An answer with tensors, as a method gives it: a plain object with these fields may be an answer of its own. */
export class WithTensors<Answer> implements Reply<Answer> {
  readonly answer: Answer;
  readonly tensors: Tensors;
  /** Called when the tensors are read no more. */
  readonly sent: (() => void) | undefined;
  constructor(answer: Answer, tensors: Tensors, sent?: () => void) {
    this.answer = answer;
    this.tensors = tensors;
    this.sent = sent;
  }
}

type AnyMethod = (order: unknown, context: CallContext) => unknown;

export interface ServeOptions<Api> {
  /** The same as the parent's. */
  readonly errors?: ErrorClasses;
  /**
   * Methods that read their tensors in the memory that both processes share, and pass them to no thread, which would be
   * sent all of that memory. Others get copies.
   */
  readonly lent?: readonly NamesIn<Api>[];
}

/**
 * The inner side: answers the calls of the parent. Returns the memory in which large tensors come and go, if there is any.
 * @param methods or what finds a method when it is called, which may throw
 */
export function serve<Api extends object>(
  methods: Methods<Api> | ((name: NamesIn<Api>) => Methods<Api>[NamesIn<Api>]),
  { errors = {}, lent = [] }: ServeOptions<Api> = {},
): SharedMemory | undefined {
  const find = (name: string): AnyMethod =>
    (typeof methods === 'function' ? methods(name as NamesIn<Api>) : methods[name as NamesIn<Api>]) as AnyMethod;
  const aborts = new Map<number, AbortController>();
  const isLent: ReadonlySet<string> = new Set(lent);
  const channel = parentChannel<FromRemote, ToRemote>(take, { lends: true });
  let last = Promise.resolve();

  function take(message: Message<ToRemote>): void {
    const { header } = message;
    if ('cancel' in header) aborts.get(header.id)?.abort();
    else if ('ping' in header) channel.send({ pong: true });
    else {
      const { tensors, release } = isLent.has(header.op) ? message : owned(message);
      if (header.id === undefined) last = last.then(() => answer(header, tensors)).finally(release);
      else void answer(header, tensors).finally(release);
    }
  }

  async function answer({ id, op, in: order }: Request, tensors: Tensors): Promise<void> {
    if (!isMainThread && isToldToEnd()) {
      leave();
      return;
    }
    const to = id === undefined ? {} : { id };
    const abort = new AbortController();
    if (id !== undefined) aborts.set(id, abort);
    let isAnswered = false;
    try {
      // After the answer the number may be another call's.
      const note = (): void => {
        if (!isAnswered) channel.send({ ...to, note: true });
      };
      const out = await find(op)(order, { tensors, signal: abort.signal, note });
      if (out instanceof WithTensors) channel.send({ ...to, out: out.answer as unknown }, out.tensors, out.sent);
      else channel.send({ ...to, out });
    } catch (error) {
      channel.send({ ...to, error: sent(error, errors) });
    } finally {
      isAnswered = true;
      if (id !== undefined) aborts.delete(id);
    }
  }

  return channel.memory;
}

function sent(error: unknown, classes: ErrorClasses): SentError {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error) };
  const { name, message } = error;
  const [known] = Object.entries(classes).find(([, each]) => error instanceof each) ?? [];
  return known === undefined ? { name, message } : { name: known, message, fields: Object.assign({}, error) };
}

function received({ name, message, fields }: SentError, classes: ErrorClasses = {}): Error {
  const error = new Error(message);
  if (fields !== undefined) Object.setPrototypeOf(error, (classes[name]?.prototype ?? Error.prototype) as object);
  return Object.assign(error, fields, { name });
}
