/**
 * The catalogue of all request errors: a code, the HTTP status, and when it happens. Every failure leaves the host as
 * `{"error": "<one sentence>"}` with the code in the reply header `X-Turntable-Error`.
 */
import { CpuError } from '../cpu/index.ts';
import { isMachineShort } from '../hardware/index.ts';
import { QueueError, type QueueErrorCode } from '../queue/index.ts';
import { TensorError } from '../tensor/index.ts';

export interface CatalogueEntry {
  readonly status: number;
  /** When a client gets this error; docs/errors.md is generated from it. */
  readonly when: string;
  /** Seconds for `Retry-After`, where trying again can help. */
  readonly retryAfterS?: number;
}

export const catalogue = {
  'bad-request': {
    status: 400,
    when: 'The request line, a header or a field of the body is not what the path asks for.',
  },
  'bad-json': {
    status: 400,
    when: 'The body, or its JSON part, is not JSON. Inside tensors NaN and Infinity are taken.',
  },
  'bad-tensor': { status: 400, when: 'A tensor has the wrong name, datatype, shape, element or byte count.' },
  'bad-name': { status: 400, when: 'A function name or version has characters or a length that are not allowed.' },
  'bad-settings': { status: 400, when: 'A setting of a function is unknown or has a value that is not allowed.' },
  'digest-mismatch': { status: 400, when: 'The bytes of an uploaded blob do not have the sha256 that the path names.' },
  'inference-input': {
    status: 400,
    when:
      'The model cannot run the input: a size that it does not take, an index outside its vocabulary, a division by ' +
      'zero or of the least whole number by -1, more memory than there is, or no rows if they ended its process before.',
  },
  'handler-input': { status: 400, when: "The function's handler refused the input." },
  unauthorized: {
    status: 401,
    when: 'The request needs an API key and has none, an unknown one, or a malformed Authorization header.',
  },
  forbidden: {
    status: 403,
    when: 'The API key lacks the scope, or a browser page of another origin asked.',
  },
  'unknown-path': { status: 404, when: 'Nothing is served at this path.' },
  'unknown-function': { status: 404, when: 'No function of this name is registered.' },
  'unknown-version': { status: 404, when: 'The function has no such version.' },
  'unknown-blob': { status: 404, when: 'No blob with this sha256 is stored.' },
  'unknown-call': { status: 404, when: 'No asynchronous call has this id, or its reply is kept no longer.' },
  'method-not-allowed': { status: 405, when: 'The path exists, but not for this method.' },
  'body-timeout': { status: 408, when: "The client's headers or body did not arrive in time." },
  'version-exists': { status: 409, when: 'This version is published already, with another model or other settings.' },
  'publish-in-progress': { status: 409, when: 'Another upload of the same function and version is under way.' },
  'folder-function': { status: 409, when: 'The function ships in the functions folder and can only be changed there.' },
  'no-version-before': { status: 409, when: 'A rollback was asked for, and no version served before this one.' },
  'call-finished': { status: 409, when: 'The asynchronous call to be cancelled has ended already.' },
  'call-id-in-use': { status: 409, when: 'Another asynchronous call was accepted under this X-Call-Id.' },
  'body-too-large': { status: 413, when: 'The body, or an uploaded model, is over the configured limit.' },
  'reply-too-large': {
    status: 413,
    when: 'The outputs as JSON are over the configured limit; as binary data they may still be asked for.',
  },
  'unsupported-media-type': {
    status: 415,
    when: 'The Content-Type or Content-Encoding is not one that the path takes.',
  },
  'warm-up-failed': {
    status: 422,
    when:
      'A version could not be loaded, or failed on its own example, before it got calls; the one before ' +
      'goes on serving.',
  },
  'model-refused': {
    status: 422,
    when:
      "The validator could not accept the uploaded model, or a function's changed folder; what served " +
      'before still does.',
  },
  'too-many-requests': {
    status: 429,
    when: 'More requests are in progress than the host is configured to hold.',
    retryAfterS: 1,
  },
  'rate-limited': {
    status: 429,
    when:
      'An API key or an address sent more requests a second than `rate.perKey` or `rate.perAddress` allows; ' +
      '`Retry-After` says when the next one is taken.',
    retryAfterS: 1,
  },
  'headers-too-large': { status: 431, when: 'The headers of the request are over 16 KiB together.' },
  'client-gone': { status: 499, when: 'The client closed the connection before the answer (log and metrics only).' },
  internal: { status: 500, when: 'A defect of the host; the log has the details.' },
  'instance-died': {
    status: 500,
    when: 'The process that ran the model died, on the second try as well. Then the version may be stopped: `not-ready`.',
  },
  'model-load-failed': { status: 500, when: 'The model could not be loaded into an instance.' },
  'machine-short': {
    status: 503,
    when:
      'A model could not be loaded or run, because memory, processes or files of the machine did not suffice; the ' +
      'sentence names the limit. Nothing is wrong with the function.',
    retryAfterS: 10,
  },
  'inference-failed': { status: 500, when: 'The run of the model failed.' },
  'handler-failed': { status: 500, when: "The function's handler threw." },
  'handler-timeout': { status: 500, when: "The function's handler went over its time limit and was stopped." },
  'inference-timeout': { status: 500, when: 'The run of the model went over its time limit and was stopped.' },
  'queue-full': { status: 503, when: "The function's queue is full.", retryAfterS: 1 },
  shed: {
    status: 503,
    when:
      'The answer was predicted to come after its SLO wherever it ran, and the function sheds such calls ' +
      '(`admission`); `Retry-After` is from the prediction.',
    retryAfterS: 1,
  },
  'not-ready': {
    status: 503,
    when: 'The function, or the host, is not ready to serve. Two processes in a row may have died of the version.',
    retryAfterS: 1,
  },
  unloaded: { status: 503, when: 'The function was unloaded, and has to be loaded before it is called.' },
  'too-many-connections': {
    status: 503,
    when: 'The host has as many connections open, or files, as it may: of this address, or of all (`limits.connections`).',
    retryAfterS: 1,
  },
  'validator-unavailable': {
    status: 503,
    when:
      'The validator did not start, or was ended from outside: memory or processes of the machine are short, and nothing ' +
      'is known of the model.',
    retryAfterS: 10,
  },
  draining: { status: 503, when: 'The host is shutting down and takes no new work.', retryAfterS: 5 },
  'no-fleet': { status: 503, when: 'Something of a fleet was asked of a host that is in none.' },
  'unknown-host': { status: 404, when: 'The fleet has no host of this name.' },
  'store-unavailable': {
    status: 503,
    when:
      'The store of functions does not answer, so nothing can be published or changed; what is published goes on ' +
      'serving.',
    retryAfterS: 1,
  },
  'fleet-unavailable': {
    status: 503,
    when: 'Redis, or the other host of the fleet that was asked about, does not answer.',
    retryAfterS: 1,
  },
  'no-queue': { status: 503, when: 'An asynchronous invocation was asked of a host that has no queue (Redis).' },
  'queue-unavailable': {
    status: 503,
    when: 'Redis, which keeps asynchronous calls, does not answer; nothing was accepted.',
    retryAfterS: 1,
  },
  'deadline-passed': {
    status: 504,
    when: 'The deadline passed while the invocation was waiting; it was never started.',
  },
  'store-read-only': {
    status: 503,
    when: 'The data folder cannot be written: a read-only disk, or missing rights. What is published goes on serving.',
  },
  'disk-full': { status: 507, when: 'The disk of the model store is full.' },
} as const satisfies Record<string, CatalogueEntry>;

export type ErrorCode = keyof typeof catalogue;

export const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(catalogue, code);

/** A failure that is reported to a client. The message is one sentence that names the tensor, field or limit. */
export class HostError extends Error {
  override readonly name = 'HostError';
  readonly code: ErrorCode;
  readonly status: number;

  readonly #retryAfterS: number | undefined;

  constructor(
    code: ErrorCode,
    message: string,
    options?: ErrorOptions & { status?: number | undefined; retryAfterS?: number },
  ) {
    // Nobody reads the stack of what a client is told, and a flood makes thousands of them a second.
    const { stackTraceLimit } = Error;
    if (code !== 'internal') Error.stackTraceLimit = 0;
    super(message, options);
    Error.stackTraceLimit = stackTraceLimit;
    this.#retryAfterS = options?.retryAfterS;
    this.code = code;
    this.status = options?.status ?? catalogue[code].status;
  }

  get retryAfterS(): number | undefined {
    const entry: CatalogueEntry = catalogue[this.code];
    return this.#retryAfterS ?? entry.retryAfterS;
  }
}

/**
 * Converts any thrown value to a {@link HostError}; a value without a code becomes `internal`, with its text as the
 * cause.
 */
export function toHostError(error: unknown): HostError {
  if (error instanceof HostError) return error;
  if (error instanceof TensorError) return new HostError('bad-tensor', error.message, { cause: error });
  if (error instanceof CpuError) {
    return new HostError(codeOfCpu(error), error.message, { cause: error, status: error.status });
  }
  if (error instanceof QueueError) return new HostError(codeOfQueue[error.code], error.message, { cause: error });
  if (error instanceof Error && 'code' in error && error.code === 'ENOSPC') {
    return new HostError('disk-full', 'the disk of the model store is full', { cause: error });
  }
  if (error instanceof Error && 'code' in error && (error.code === 'EMFILE' || error.code === 'ENFILE')) {
    const reason = 'the host has as many files open as it may (ulimit -n)';
    return new HostError('too-many-connections', reason, { cause: error });
  }
  if (error instanceof Error && 'code' in error && (error.code === 'EAGAIN' || error.code === 'ENOMEM')) {
    return new HostError('machine-short', `the machine is short of memory or processes (${error.code})`, {
      cause: error,
    });
  }
  return new HostError('internal', 'the host met an unexpected error; its log has the details', { cause: error });
}

/** What a pool failed at may be nobody's fault but the machine's. */
function codeOfCpu({ code, message }: CpuError): ErrorCode {
  switch (code) {
    case 'cancelled':
      return 'client-gone';
    case 'stopping':
      return 'draining';
    case 'instance-died':
    case 'model-load-failed':
    case 'inference-failed':
      return isMachineShort(message) ? 'machine-short' : code;
    default:
      return code;
  }
}

/** Failures that say nothing about the function: with more memory, processes or files it would have been served. */
export const ofTheMachine: ReadonlySet<string> = new Set<ErrorCode>([
  'machine-short',
  'validator-unavailable',
  'too-many-requests',
  'too-many-connections',
  'disk-full',
]);

const codeOfQueue = {
  unavailable: 'queue-unavailable',
  // The host itself runs calls that no worker takes, so clients see these two only if it cannot.
  'no-worker': 'queue-unavailable',
  'worker-gone': 'queue-unavailable',
  'taken-back': 'queue-unavailable',
  'payload-too-large': 'body-too-large',
  'queue-full': 'queue-full',
  stopping: 'draining',
} as const satisfies Record<QueueErrorCode, ErrorCode>;
