/** What a host and its instances say to each other. An instance does one thing at a time and answers in order. */
import type { ModelOpening } from '../../onnx/index.ts';
import { elements, tensorOf, type Tensor } from '../../tensor/index.ts';
import type { CpuErrorCode } from '../types.ts';
import type { DiskRead } from './wait-meter.ts';

/** Host to instance. The tensors of a `run` follow in the order of its calls; a request's body is one UINT8 tensor. */
export type ToInstance =
  | {
      readonly op: 'load';
      /** Later messages name the session by this number. */
      readonly session: number;
      readonly key: string;
      readonly modelPath: string;
      readonly handlerPath?: string;
      /** The model is loaded at its first run; until then the instance has only the handler. */
      readonly lazily: boolean;
      readonly inputNames?: readonly string[];
      readonly opening?: ModelOpening;
      readonly settings: SessionSettings;
    }
  | { readonly op: 'go-offline' }
  /** End the session and return its memory to the system. */
  | { readonly op: 'release'; readonly session: number }
  /**
   * `join`: whether calls with like inputs may share a run of the model, joined along dimension 0. `asksForModel`: the
   * host is asked to run the model, for each call by itself.
   */
  | {
      readonly op: 'run';
      readonly session: number;
      readonly join: Joining;
      readonly calls: readonly CallHeader[];
      readonly asksForModel?: true;
    }
  /**
   * The answers of other functions, in the order of the calls, or that of the model. Their tensors follow. Without any the
   * instance is to run the model after all: of all these runs of one session together, where calls may share one.
   */
  | { readonly op: 'answered'; readonly ids: readonly number[]; readonly answers: readonly OtherAnswerHeader[] };

/** `compared`: joined, and each call is run alone as well, to see that it gets the same. */
export type Joining = 'no' | 'joined' | 'compared';

/** How a session runs. */
export interface SessionSettings {
  readonly threads: number;
  /** Cores of its own, at least one per thread: the first for the calling thread, one for each other thread. */
  readonly cores?: readonly number[];
  /** Whether idle threads spin: faster by some microseconds per operator, at the cost of a whole core each. */
  readonly spinning: boolean;
  /** Whether no other function has a session in its process. */
  readonly isAlone: boolean;
  /** The same model prepared, with its weights in a file that all its instances map; see weights.ts. */
  readonly sharedModelPath?: string;
  /** What ONNX Runtime writes to standard error: 3 for errors, which is the default, 4 for nothing that is also told. */
  readonly logSeverity?: 3 | 4;
}

export type CallHeader =
  | { readonly kind: 'tensors'; readonly count: number; readonly outputs?: readonly string[] | undefined }
  | {
      readonly kind: 'request';
      readonly method: string;
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
    };

/** A handler's call to another function; the body of a request is one UINT8 tensor. */
export type OtherCallHeader = { readonly name: string } & (
  | { readonly kind: 'tensors'; readonly count: number }
  | { readonly kind: 'request'; readonly headers: Readonly<Record<string, string>> }
);

export type OtherAnswerHeader =
  | { readonly kind: 'tensors'; readonly count: number }
  | { readonly kind: 'response'; readonly status: number; readonly headers: Readonly<Record<string, string>> }
  | { readonly kind: 'error'; readonly code: string; readonly status: number; readonly message: string };

/** A body travels as one tensor. */
export const bodyTensor = (body: Uint8Array): Tensor => ({
  name: 'body',
  datatype: 'UINT8',
  shape: [body.byteLength],
  data: body,
});
export const bodyIn = ([tensor]: readonly Tensor[]): Uint8Array => tensor?.data ?? new Uint8Array();

/** Each header with the tensors that belong to it, which follow in the order of the headers from index `at` on. */
export function withTensors<Header extends { readonly kind: string; readonly count?: number }>(
  headers: readonly Header[],
  tensors: readonly Tensor[],
  at = 0,
): { readonly header: Header; readonly tensors: readonly Tensor[] }[] {
  return headers.map((header) => {
    const count = header.count ?? (header.kind === 'error' ? 0 : 1);
    return { header, tensors: tensors.slice(at, (at += count)) };
  });
}

export type Phase = 'preprocess' | 'load' | 'infer' | 'postprocess';

/** Instance to host. */
export type FromInstance =
  /** ONNX Runtime is loaded and no model is: the instance can become any function. */
  | { readonly op: 'started' }
  /** It begins a load: it may be silent until the load is over. */
  | { readonly op: 'loading' }
  /**
   * `bytes`: how much the process has grown meanwhile. `sharedProblem`: why the prepared model could not be used, so
   * that the instance loaded the model itself.
   */
  | {
      readonly op: 'loaded';
      readonly loadMs: number;
      readonly bytes: number;
      readonly disk?: DiskRead;
      readonly sharedProblem?: string;
    }
  | { readonly op: 'load-failed'; readonly message: string }
  | { readonly op: 'released' }
  /**
   * Something failed outside of any call, so the process is unusable. `session`: whose function's code did it, where
   * that is known.
   */
  | { readonly op: 'dying'; readonly reason: string; readonly session?: number }
  /** Sent before each step of a function with a handler, so that the host can apply the step's time limit. */
  | { readonly op: 'phase'; readonly phase: Phase; readonly call: number }
  /**
   * This call waits for other functions, or for its model, whose inputs follow: `call` counts those that are still in the
   * message. It leaves the others, with a `ran` of its own. The instance takes other messages when none is left, until
   * it gets the answers. `id`: a number of its own.
   */
  | {
      readonly op: 'ask';
      readonly id: number;
      readonly call: number;
      readonly asked: readonly OtherCallHeader[] | 'model';
    }
  /**
   * One result per call, in their order; their {@link timesTensor} follows, then the tensors of all results. `loaded`:
   * the model was loaded for it. `mixing`: see {@link RunResult}.
   */
  | {
      readonly op: 'ran';
      readonly results: readonly ResultHeader[];
      readonly loaded?: LoadedLate;
      readonly mixing?: string;
    };

/** A model that was loaded at its first run. `sharedProblem`: as with `loaded`. */
export interface LoadedLate {
  readonly loadMs: number;
  readonly sharedProblem?: string;
}

/** Milliseconds of one call inside an instance; the time of a joined run counts in full for each of its calls. */
export interface CallTimes {
  /**
   * From the start of the message until the call's run of the model, less its preprocess and the load: time spent on
   * other calls.
   */
  readonly waitMs: number;
  /** It waited for the model to be loaded. 0: it did not. */
  readonly loadMs: number;
  readonly preprocessMs: number;
  readonly inferMs: number;
  readonly postprocessMs: number;
}

const timesPerMessage = 4;
const timesPerCall = 5;

/** How long an instance worked on a message, by its own clock, without the time for which the host ran the model. */
export interface MessageTimes {
  readonly busyMs: number;
  /** How much of that others had the cores. */
  readonly coreWaitMs: number;
  readonly disk: DiskRead | undefined;
}

/**
 * How long a message took, and each of its calls. As a tensor, so that the header of an answer says the same each time
 * and need not be read again.
 *
 * @param times of a call that failed they say nothing
 */
export function timesTensor({ busyMs, coreWaitMs, disk }: MessageTimes, times: readonly CallTimes[]): Tensor {
  const numbers = new Float64Array(timesPerMessage + timesPerCall * times.length);
  numbers[0] = busyMs;
  numbers[1] = coreWaitMs;
  numbers[2] = disk?.bytes ?? 0;
  numbers[3] = disk?.ms ?? 0;
  let at = timesPerMessage;
  for (const { waitMs, loadMs, preprocessMs, inferMs, postprocessMs } of times) {
    numbers[at++] = waitMs;
    numbers[at++] = loadMs;
    numbers[at++] = preprocessMs;
    numbers[at++] = inferMs;
    numbers[at++] = postprocessMs;
  }
  return tensorOf('times', 'FP64', [numbers.length], numbers);
}

/** @param numbers of a {@link timesTensor} */
function callTimesOf(numbers: Float64Array, call: number): CallTimes {
  const at = timesPerMessage + timesPerCall * call;
  return {
    waitMs: numbers[at]!,
    loadMs: numbers[at + 1]!,
    preprocessMs: numbers[at + 2]!,
    inferMs: numbers[at + 3]!,
    postprocessMs: numbers[at + 4]!,
  };
}

interface SharedRun {
  /** Calls that shared the run. */
  readonly batch: number;
  /** Their rows together; absent if the call ran alone. */
  readonly batchRows?: number | undefined;
}

export type ResultHeader =
  | (SharedRun & { readonly kind: 'tensors'; readonly count: number })
  | (SharedRun & {
      readonly kind: 'response';
      readonly status: number;
      readonly headers: Readonly<Record<string, string>>;
    })
  | {
      readonly kind: 'error';
      readonly code: CpuErrorCode;
      readonly message: string;
      readonly status?: number;
    };

/** What one run answered: a result per call, with its tensors (a handler's reply: one tensor, the body). */
export interface RunResult extends MessageTimes {
  /** The instance loaded the model for it. */
  readonly loaded: LoadedLate | undefined;
  /** How a joined run gave a call something else than its run alone, which it was answered from. */
  readonly mixing: string | undefined;
  readonly results: readonly {
    readonly header: ResultHeader;
    readonly times: CallTimes;
    readonly tensors: readonly Tensor[];
  }[];
}

/** Each result with its own tensors and times. */
export function takeResults(header: FromInstance & { op: 'ran' }, tensors: readonly Tensor[]): RunResult {
  const numbers = elements(tensors[0]!) as Float64Array;
  const results = withTensors(header.results, tensors, 1).map(({ header: result, tensors: own }, call) => ({
    header: result,
    times: callTimesOf(numbers, call),
    tensors: own,
  }));
  const { loaded, mixing } = header;
  const bytes = numbers[2]!;
  // Written out, here and in the other half: iterators and spreads took ten microseconds of each answer.
  return {
    busyMs: numbers[0]!,
    coreWaitMs: numbers[1]!,
    disk: bytes === 0 ? undefined : { bytes, ms: numbers[3]! },
    results,
    loaded,
    mixing,
  };
}

/** The results of a run whose answer had no room. */
export function droppedResults(header: FromInstance & { op: 'ran' }, busyMs: number, message: string): RunResult {
  const times = { waitMs: 0, loadMs: 0, preprocessMs: 0, inferMs: busyMs, postprocessMs: 0 };
  const error: ResultHeader = { kind: 'error', code: 'too-many-requests', message };
  const results = header.results.map((result) => ({
    header: result.kind === 'error' ? result : error,
    times,
    tensors: [],
  }));
  const { loaded, mixing } = header;
  return { busyMs, coreWaitMs: 0, disk: undefined, results, loaded, mixing };
}
