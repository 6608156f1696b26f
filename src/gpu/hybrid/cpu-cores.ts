/**
 * The CPU's side of hybrid execution: one worker thread a core, which runs sub-graphs with ONNX Runtime on tensors in
 * native memory. Threads rather than processes, since the tensors lie in this process's pinned buffers.
 */
import { basename } from 'node:path';
import { getOrMake } from '../../tools/index.ts';
import { compiledModule, Server, startThread } from '../../process/index.ts';
import { GpuError } from '../types.ts';
import type { CpuCoreRequest } from './cpu-core-protocol.ts';
import type { CpuCall, CpuCallResult, CpuPart, CpuPartSpec } from './types.ts';

const module = compiledModule('./cpu-core-thread.js', import.meta.url);

export interface CpuCoresOptions {
  /** Threads, the cores 1 to `count`. */
  readonly count: number;
  /**
   * The operating system's numbers of the cores to pin them to, the first for core 1; those without one are not pinned.
   */
  readonly cores?: readonly number[];
}

/** Worker threads, each one core's: what a core is given it does in order, one at a time. */
export class CpuCores {
  readonly #cores: readonly Core[];

  /**
   * Threads start with the first sub-graph that is opened on them. @throws GpuError 'invalid' for a count that is none
   */
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

  /** Opens a sub-graph on a core, or finds it open. @throws GpuError 'invalid' when ONNX Runtime refuses it */
  async open(core: number, { modelPath }: CpuPartSpec): Promise<CpuPart> {
    return await this.#core(core).open(modelPath);
  }

  /**
   * Ends a core's thread once the call that it is at has ended; those behind it are rejected as 'died'. The next call
   * starts a thread anew.
   */
  async end(core: number): Promise<void> {
    await this.#core(core).end();
  }

  /** Ends all threads as {@link end} does. */
  async close(): Promise<void> {
    await Promise.all(this.#cores.map((core) => core.close()));
  }

  #core(number: number): Core {
    const core = this.#cores[number - 1];
    if (core !== undefined) return core;
    throw new GpuError('invalid', `there is no core ${number}: there are ${this.count}, counted from 1`);
  }
}

/** The sub-graphs of one core: they outlive its thread. */
class Core {
  readonly #number: number;
  readonly #pinTo: number | null;
  /** Who has each sub-graph open, by its path. */
  readonly #users = new Map<string, number>();
  /** Sub-graphs that the thread was given, by their paths: how opening them ends. */
  readonly #opened = new Map<string, Promise<unknown>>();
  #thread: Server<CpuCoreRequest> | undefined;
  #isClosed = false;

  constructor(number: number, pinTo: number | null) {
    this.#number = number;
    this.#pinTo = pinTo;
  }

  async open(modelPath: string): Promise<CpuPart> {
    this.#users.set(modelPath, (this.#users.get(modelPath) ?? 0) + 1);
    try {
      await this.#openOn(this.#running(), modelPath);
    } catch (error) {
      await this.#leave(modelPath);
      throw error;
    }
    let isOpen = true;
    /** The text of each call that came before: making it costs more than the message. */
    const texts = new WeakMap<CpuCall, string>();
    return {
      run: async (call) => {
        if (!isOpen) throw new GpuError('invalid', `the sub-graph ${basename(modelPath)} was released`);
        const thread = this.#running();
        // Opened if it is not yet, as after the death of the thread before: what it is given it does in order.
        void this.#openOn(thread, modelPath);
        const { answer } = await thread.ask<CpuCallResult>({ op: 'run', modelPath, call: asMessage(call, texts) });
        return answer;
      },
      release: async () => {
        if (!isOpen) return;
        isOpen = false;
        await this.#leave(modelPath);
      },
    };
  }

  async end(): Promise<void> {
    this.#thread?.end('it was ended');
    await this.#thread?.exited;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.end();
  }

  #running(): Server<CpuCoreRequest> {
    if (this.#isClosed) throw new GpuError('cancelled', 'the cores for sub-graphs were closed');
    if (this.#thread?.isAlive !== true) {
      this.#opened.clear();
      this.#thread = startCore(this.#number);
    }
    return this.#thread;
  }

  #openOn(thread: Server<CpuCoreRequest>, modelPath: string): Promise<unknown> {
    return getOrMake(this.#opened, modelPath, () => {
      const opened = thread.ask({ op: 'open', modelPath, pinTo: this.#pinTo });
      // What failed once may be tried again.
      opened.catch(() => this.#release(modelPath));
      return opened;
    });
  }

  async #leave(modelPath: string): Promise<void> {
    const users = (this.#users.get(modelPath) ?? 0) - 1;
    if (users > 0) {
      this.#users.set(modelPath, users);
      return;
    }
    this.#users.delete(modelPath);
    await this.#release(modelPath);
  }

  async #release(modelPath: string): Promise<void> {
    if (!this.#opened.delete(modelPath) || this.#thread?.isAlive !== true) return;
    try {
      await this.#thread.ask({ op: 'release', modelPath });
    } catch {
      // With its thread the session went as well.
    }
  }
}

function asMessage(call: CpuCall, texts: WeakMap<CpuCall, string>): string | CpuCall {
  let text = texts.get(call);
  if (text !== undefined) return text;
  if (call.inputs.some((input) => 'data' in input)) return call;
  text = JSON.stringify(call);
  texts.set(call, text);
  return text;
}

function startCore(core: number): Server<CpuCoreRequest> {
  return new Server((events) => startThread({ module, name: `core ${core}`, ends: 'between-messages' }, events), {
    errorOf: ({ failure, ended }, { modelPath }) => {
      const about = basename(modelPath);
      return ended === undefined
        ? new GpuError('invalid', `the sub-graph ${about} failed on the CPU: ${failure.message}`)
        : new GpuError('died', `the thread of core ${core} died with the sub-graph ${about}: ${ended.reason}`);
    },
  });
}
