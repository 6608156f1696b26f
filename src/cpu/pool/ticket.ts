/** One invocation inside its pool, from its acceptance to its answer. */
import { rowsOf, type Tensor } from '../../tensor/index.ts';
import { bodyIn, bodyTensor, type CallHeader, type ResultHeader } from '../instance/protocol.ts';
import {
  type InvokeOptions,
  type PoolInput,
  type PoolOutput,
  type PoolResult,
  type RunModel,
  CpuError,
} from '../types.ts';
import type { OrderedCall, RunOutcome } from '../instance/tasks.ts';

/** All instants are performance.now(). */
export interface Ticket extends OrderedCall {
  readonly tensors: readonly Tensor[];
  /** Bytes of all its tensors. */
  readonly bytes: number;
  /** Rows of its batch (a handler's request: 1, since only preprocess knows). */
  readonly rows: number;
  readonly arrivalMs: number;
  readonly deadlineMs: number;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (result: PoolResult) => void;
  readonly reject: (error: Error) => void;
  /** Runs its model in place of the instance. */
  readonly runModel: RunModel | undefined;
  /** The model's run elsewhere, for the latest instance that had the call. */
  modelRun: ModelRun | undefined;
  /** It joins no batch: an instance died while it worked on it, or its model runs elsewhere. */
  alone: boolean;
  /** An instance died while it worked on this call, perhaps among others: alone in a message, it is to show the cause. */
  isSuspect: boolean;
  /** Instances that died, or had to be stopped, while they ran this call alone. */
  deaths: number;
  /** Whether it waited for a load, and for how long so far. */
  cold: boolean;
  loadMs: number;
}

/** A run of the model elsewhere. */
export interface ModelRun {
  readonly run: RunModel;
  /** It has given outputs. */
  ran: boolean;
  /** The error that it was rejected with. */
  failure: Error | undefined;
}

export function makeTicket(
  input: PoolInput,
  options: InvokeOptions,
  resolve: (result: PoolResult) => void,
  reject: (error: Error) => void,
): Ticket {
  const tensors = input.kind === 'tensors' ? input.tensors : [bodyTensor(input.request.body)];
  let bytes = 0;
  for (const { data } of tensors) bytes += data.byteLength;
  // Without a handler the instance has no work before the model's run.
  const runModel = input.kind === 'request' ? options.runModel : undefined;
  return {
    call: toCall(input),
    tensors,
    bytes,
    rows: input.kind === 'tensors' ? (rowsOf(input.tensors) ?? 1) : 1,
    arrivalMs: performance.now(),
    deadlineMs: options.deadlineMs ?? Infinity,
    signal: options.signal,
    resolve,
    reject,
    runModel,
    invokeOthers: options.invokeOthers,
    stages: options.stages,
    modelRun: undefined,
    alone: runModel !== undefined,
    isSuspect: false,
    deaths: 0,
    cold: false,
    loadMs: 0,
  };
}

/** Has one instance ask for the ticket's model; the result is kept for the answer. */
export function expectModelRun(ticket: Ticket): void {
  const { runModel } = ticket;
  if (runModel === undefined) return;
  // A run for an earlier instance may still be under way; its result is dropped.
  const mine: ModelRun = {
    ran: false,
    failure: undefined,
    run: async (inputs) => {
      try {
        const outputs = await runModel(inputs);
        mine.ran = outputs !== undefined;
        return outputs;
      } catch (error) {
        mine.failure = error instanceof Error ? error : new Error(String(error));
        throw error;
      }
    },
  };
  ticket.modelRun = mine;
}

function toCall(input: PoolInput): CallHeader {
  if (input.kind === 'request') {
    const { method, url, headers } = input.request;
    return { kind: 'request', method, url, headers };
  }
  const { tensors, outputs } = input;
  return { kind: 'tensors', count: tensors.length, outputs };
}

/** An instance's answer, in the form for the pool's caller. */
function toOutput(header: ResultHeader & { kind: 'tensors' | 'response' }, tensors: readonly Tensor[]): PoolOutput {
  if (header.kind === 'tensors') return { kind: 'tensors', tensors };
  return { kind: 'response', response: { status: header.status, headers: header.headers, body: bodyIn(tensors) } };
}

// What the outcome of a run means for its invocations.

/** Answers every ticket of a run that ended. */
export function answer(
  key: string,
  instancePid: number,
  tickets: readonly Ticket[],
  outcome: RunOutcome & { kind: 'ran' },
): void {
  const { results, coreWaitMs, disk } = outcome.result;
  for (const [index, ticket] of tickets.entries()) {
    const result = results[index];
    if (result === undefined) {
      ticket.reject(new CpuError('inference-failed', `an instance of ${key} did not answer a call of its run`));
      continue;
    }
    const { header, times } = result;
    if (header.kind === 'error') {
      ticket.reject(ticket.modelRun?.failure ?? toError(key, header));
      continue;
    }
    // Weights are mapped, so that a run may be the first to need them from the disk.
    const diskMs = Math.min(times.inferMs, Math.max(0, (disk?.ms ?? 0) - times.loadMs));
    ticket.resolve({
      output: toOutput(header, result.tensors),
      timings: {
        queueMs: Math.max(0, outcome.startedMs - ticket.arrivalMs - ticket.loadMs) + times.waitMs,
        loadMs: ticket.loadMs + times.loadMs + diskMs,
        preprocessMs: times.preprocessMs,
        inferMs: times.inferMs - diskMs,
        postprocessMs: times.postprocessMs,
        coreWaitMs,
      },
      coldStart: ticket.cold || times.loadMs > 0,
      batchSize: header.batch,
      batchRows: header.batchRows,
      instancePid,
      modelElsewhere: ticket.modelRun?.ran === true ? true : undefined,
    });
  }
}

function toError(key: string, { code, message, status }: ResultHeader & { kind: 'error' }): CpuError {
  if (code !== 'model-load-failed') return new CpuError(code, message, status);
  return new CpuError(code, `the model of ${key} could not be loaded: ${message}`);
}

/**
 * Handles the calls of a dead instance. The call that caused the death fails, and so does one that has seen two
 * instances die while running alone, or one of a division. Returns the others, to be put back in this order for a second try.
 */
export function survivors(
  key: string,
  tickets: readonly Ticket[],
  outcome: RunOutcome & { kind: 'died' | 'timeout' },
): Ticket[] {
  return [...tickets].reverse().filter((ticket) => {
    // A model's run that took too long is one call's fault; in a message with several calls it is unknown whose.
    const guilty = outcome.kind === 'timeout' && (tickets.length === 1 || tickets[outcome.call] === ticket);
    if (guilty) {
      ticket.reject(outcome.error);
      return false;
    }
    if (outcome.kind === 'died' && outcome.isDivision && tickets.length === 1) {
      ticket.reject(refusedDivision(key));
      return false;
    }
    if (outcome.kind === 'timeout' ? outcome.call === -1 : outcome.suspect) {
      ticket.alone = true;
      ticket.isSuspect = true;
      if (tickets.length === 1) ticket.deaths++;
    }
    if (ticket.deaths <= 1) return true;
    const reason = outcome.kind === 'died' ? outcome.reason : outcome.error.message;
    ticket.reject(
      new CpuError('instance-died', `two instances of ${key} died while they ran this invocation: ${reason}`),
    );
    return false;
  });
}

/** Another process would end of it as well. */
const refusedDivision = (key: string): CpuError =>
  new CpuError(
    'inference-input',
    `the model of ${key} divides whole numbers of these inputs as no processor can: by zero, or the least one by -1 (SIGFPE)`,
  );

/** An input of the call that has no elements; undefined if all have some, or if a handler makes the inputs. */
export function emptyTensor({ call, tensors }: Ticket): Tensor | undefined {
  return call.kind === 'tensors' ? tensors.find(({ shape }) => shape.includes(0)) : undefined;
}

export function endsInstances(key: string, { name, shape }: Tensor): CpuError {
  return new CpuError(
    'inference-input',
    `the model of ${key} cannot run inputs without elements, as '${name}' of shape [${shape.join(', ')}]: ` +
      'an earlier call like it ended two instances',
  );
}

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: CpuError) => void;
  readonly handlerOnly: boolean;
}

/** Callers that wait for an instance to be ready, without a call. */
export class LoadWaiters {
  readonly #waiters: Waiter[] = [];

  get length(): number {
    return this.#waiters.length;
  }

  /** Whether the handler alone is enough for all of them. */
  get handlerSuffices(): boolean {
    return this.#waiters.every(({ handlerOnly }) => handlerOnly);
  }

  add(handlerOnly: boolean): Promise<void> {
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject, handlerOnly }));
  }

  resolve(): void {
    for (const waiter of this.#waiters.splice(0)) waiter.resolve();
  }

  reject(error: CpuError): void {
    for (const waiter of this.#waiters.splice(0)) waiter.reject(error);
  }
}
