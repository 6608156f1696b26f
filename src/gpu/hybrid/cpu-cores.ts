/**
 * The CPU's side of hybrid execution: one worker thread for each core runs sub-graphs with ONNX Runtime. Threads and
 * not processes, because the tensors are in this process's pinned memory.
 */
import { basename } from 'node:path';
import { compiledModule, GoneError, OnDemand, type Remote } from '../../process/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { GpuError } from '../types.ts';
import type { CpuCoreApi, OperatorTimes, OperatorTiming } from './cpu-core-protocol.ts';
import type { CpuCall } from './types.ts';

const module = compiledModule('./cpu-core-thread.js', import.meta.url);

export interface CpuCoresOptions {
  /** Number of threads. They are cores 1 to `count`. */
  readonly count: number;
  /** The operating system's core to pin each thread to, the first for core 1. Further threads are not pinned. */
  readonly cores?: readonly number[];
}

/** Worker threads, one for each core. A core runs its calls one at a time, in the order in which it gets them. */
export class CpuCores {
  readonly #cores: readonly Core[];

  /** A thread starts when the first sub-graph is opened on it. @throws GpuError 'invalid' for an invalid count */
  constructor({ count, cores = [] }: CpuCoresOptions) {
    if (!Number.isSafeInteger(count) || count < 0)
      throw new GpuError(
        'invalid',
        `there cannot be ${count} cores for sub-graphs: it takes a whole number, 0 or more`,
      );
    this.#cores = Array.from({ length: count }, (_, index) => new Core(index + 1, cores[index] ?? null));
  }

  get count(): number {
    return this.#cores.length;
  }

  /** @throws GpuError 'invalid' if there is none of this number */
  core(number: number): Core {
    const core = this.#cores[number - 1];
    if (core !== undefined) return core;
    throw new GpuError('invalid', `there is no core ${number}: there are ${this.count}, counted from 1`);
  }

  /** Ends all threads as {@link Core.end} does. */
  async close(): Promise<void> {
    await Promise.all(this.#cores.map((core) => core.close()));
  }
}

/** One core's sub-graphs. Its thread opens one when it first needs it, also after another thread has died. */
class Core {
  /** How many callers have a sub-graph open, by path. */
  readonly #users = new Map<string, number>();
  readonly #thread: OnDemand<CpuCoreApi>;
  #isClosed = false;

  constructor(number: number, pinTo: number | null) {
    const data = { pinTo };
    this.#thread = new OnDemand({
      what: `the thread of core ${number}`,
      inOrder: true,
      errorOf,
      thread: { module, name: `core ${number}`, ends: 'between-messages', data },
    });
  }

  /**
   * Opens a sub-graph, unless it is open: one session for each path.
   *
   * @param modelPath absolute path of an ONNX file
   * @throws GpuError 'invalid' if ONNX Runtime refuses it
   */
  async open(modelPath: string) {
    this.#users.set(modelPath, (this.#users.get(modelPath) ?? 0) + 1);
    try {
      await this.#running().call('open', { modelPath });
    } catch (error) {
      await this.#leave(modelPath);
      throw error;
    }
    let isOpen = true;
    /** The JSON of earlier calls: making it costs more than sending it. */
    const texts = new WeakMap<CpuCall, string>();
    return {
      /**
       * Resolves with the outputs that `loose` of the call names.
       *
       * @throws GpuError 'invalid' when the run fails, 'died' when the thread ended
       */
      run: async (call: CpuCall): Promise<readonly Tensor[]> => {
        if (!isOpen) throw new GpuError('invalid', `the sub-graph ${basename(modelPath)} was released`);
        return await this.#running().call('run', { modelPath, call: asMessage(call, texts) });
      },
      /** Closes the session when its last user has released it. */
      release: async (): Promise<void> => {
        if (!isOpen) return;
        isOpen = false;
        await this.#leave(modelPath);
      },
    };
  }

  /** Times a model's operators. @throws GpuError as {@link open} */
  async time(timing: OperatorTiming): Promise<OperatorTimes> {
    return await this.#running().call('time', timing);
  }

  /**
   * Ends the thread after its current call; the calls behind it are rejected as 'died'. The next call starts a new
   * thread.
   */
  async end(): Promise<void> {
    await this.#thread.end('it was ended');
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.end();
  }

  #running(): Remote<CpuCoreApi> {
    if (this.#isClosed) throw new GpuError('cancelled', 'the cores for sub-graphs were closed');
    return this.#thread.running;
  }

  async #leave(modelPath: string): Promise<void> {
    const users = (this.#users.get(modelPath) ?? 0) - 1;
    if (users > 0) {
      this.#users.set(modelPath, users);
      return;
    }
    this.#users.delete(modelPath);
    if (!this.#thread.isRunning) return;
    try {
      await this.#thread.running.call('release', { modelPath });
    } catch {
      // The thread died, and its sessions with it.
    }
  }
}

/** A sub-graph that is open on a core. */
export type CpuPart = Awaited<ReturnType<Core['open']>>;

function asMessage(call: CpuCall, texts: WeakMap<CpuCall, string>): string | CpuCall {
  let text = texts.get(call);
  if (text !== undefined) return text;
  if (call.inputs.some((input) => 'data' in input)) return call;
  text = JSON.stringify(call);
  texts.set(call, text);
  return text;
}

/** The name of a sub-graph's file is a hash, which tells nobody anything; ONNX Runtime names the node. */
const errorOf = (error: Error): GpuError =>
  error instanceof GoneError ? new GpuError('died', error.message) : new GpuError('invalid', error.message);
