/**
 * The CPU's side of hybrid execution: one worker thread a core, which runs sub-graphs with ONNX Runtime on tensors in native memory.
 * Threads rather than processes, since the tensors lie in this process's pinned buffers.
 */
import { basename } from 'node:path';
import { Worker } from 'node:worker_threads';
import { GpuError } from '../types.ts';
import type { CpuCoreThreadOptions, FromCpuCore, ToCpuCore } from './cpu-core-protocol.ts';
import type { CpuCall, CpuCallResult, CpuCores, CpuPart, CpuPartSpec } from './types.ts';

export interface CpuCoresOptions {
  /** Threads, the cores 1 to `count`. */
  readonly count: number;
  /** The operating system's numbers of the cores to pin them to, the first for core 1; those without one are not pinned. */
  readonly cores?: readonly number[];
}

/** Threads start with the first sub-graph that is opened on them. @throws GpuError 'invalid' for a count that is none */
export function startCpuCores({ count, cores = [] }: CpuCoresOptions): CpuCoreThreads {
  if (!Number.isSafeInteger(count) || count < 0) {
    throw new GpuError('invalid', `there cannot be ${count} cores for sub-graphs: it takes a whole number, 0 or more`);
  }
  return new CpuCoreThreads(count, cores);
}

export class CpuCoreThreads implements CpuCores {
  readonly #cores: readonly Core[];

  constructor(count: number, pinTo: readonly number[]) {
    this.#cores = Array.from({ length: count }, (_, index) => new Core(index + 1, pinTo[index] ?? null));
  }

  get count(): number {
    return this.#cores.length;
  }

  async open(core: number, { modelPath }: CpuPartSpec): Promise<CpuPart> {
    return await this.#core(core).open(modelPath);
  }

  /**
   * Ends a core's thread once the call that it is at has ended; those behind it are rejected as 'died'. The next call starts a thread
   * anew.
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
  #thread: Thread | undefined;
  #isClosed = false;

  constructor(number: number, pinTo: number | null) {
    this.#number = number;
    this.#pinTo = pinTo;
  }

  async open(modelPath: string): Promise<CpuPart> {
    const thread = this.#running();
    this.#users.set(modelPath, (this.#users.get(modelPath) ?? 0) + 1);
    try {
      await thread.part(modelPath).opened;
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
        return await this.#running().run(modelPath, asMessage(call, texts));
      },
      release: async () => {
        if (!isOpen) return;
        isOpen = false;
        await this.#leave(modelPath);
      },
    };
  }

  async end(): Promise<void> {
    await this.#thread?.end();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.end();
  }

  #running(): Thread {
    if (this.#isClosed) throw new GpuError('cancelled', 'the cores for sub-graphs were closed');
    if (this.#thread?.isAlive !== true) this.#thread = new Thread(this.#number, this.#pinTo);
    return this.#thread;
  }

  async #leave(modelPath: string): Promise<void> {
    const users = (this.#users.get(modelPath) ?? 0) - 1;
    if (users > 0) {
      this.#users.set(modelPath, users);
      return;
    }
    this.#users.delete(modelPath);
    await this.#thread?.release(modelPath);
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

interface Task {
  readonly about: string;
  readonly resolve: (result: CpuCallResult | null) => void;
  readonly reject: (error: GpuError) => void;
}

interface ThreadPart {
  readonly number: number;
  readonly opened: Promise<unknown>;
}

class Thread {
  readonly #core: number;
  readonly #worker: Worker;
  readonly #stop = new Int32Array(new SharedArrayBuffer(4));
  readonly #exited: Promise<void>;
  readonly #tasks = new Map<number, Task>();
  readonly #parts = new Map<string, ThreadPart>();
  #reason = 'it ended';
  #nextTask = 0;
  #nextPart = 0;
  #isAlive = true;

  constructor(core: number, pinTo: number | null) {
    this.#core = core;
    const workerData: CpuCoreThreadOptions = { pinTo, stop: this.#stop };
    // JavaScript from dist/ even when this runs from src/, as in tests: a thread of Node 20 cannot run TypeScript.
    const file = import.meta.url.endsWith('.ts')
      ? '../../../dist/gpu/hybrid/cpu-core-thread.js'
      : './cpu-core-thread.js';
    this.#worker = new Worker(new URL(file, import.meta.url), { workerData, name: `core ${core}` });
    this.#worker.unref();
    this.#worker.on('message', (answer: FromCpuCore) => this.#take(answer));
    this.#worker.on('error', (error) => {
      this.#isAlive = false;
      this.#reason = error.message;
    });
    // Only now does nothing write to the tensors of its calls any more.
    this.#exited = new Promise((resolve) => {
      this.#worker.on('exit', () => {
        this.#died();
        resolve();
      });
    });
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** The sub-graph on this thread: opened if it is not yet, as after the death of the thread before. */
  part(modelPath: string): ThreadPart {
    let part = this.#parts.get(modelPath);
    if (part === undefined) {
      const number = this.#nextPart++;
      const opened = this.#send(modelPath, (id) => ({ op: 'open', id, part: number, modelPath }));
      // What failed once may be tried again.
      opened.catch(() => this.release(modelPath));
      part = { number, opened };
      this.#parts.set(modelPath, part);
    }
    return part;
  }

  async run(modelPath: string, call: string | CpuCall): Promise<CpuCallResult> {
    const { number: part } = this.part(modelPath);
    return (await this.#send(modelPath, (id) => ({ op: 'run', id, part, call })))!;
  }

  async release(modelPath: string): Promise<void> {
    const part = this.#parts.get(modelPath);
    this.#parts.delete(modelPath);
    if (part === undefined || !this.#isAlive) return;
    try {
      await this.#send(modelPath, (id) => ({ op: 'release', id, part: part.number }));
    } catch {
      // With its thread the session went as well.
    }
  }

  /**
   * The thread leaves by itself: to terminate one that is inside of ONNX Runtime's binding ends the whole process, by an exception that
   * the binding can throw no further.
   */
  async end(): Promise<void> {
    this.#reason = 'it was ended';
    if (this.#isAlive) {
      this.#isAlive = false;
      Atomics.store(this.#stop, 0, 1);
      const message: ToCpuCore = { op: 'stop', id: this.#nextTask++ };
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
      this.#worker.postMessage(message);
      this.#worker.ref();
    }
    await this.#exited;
  }

  #send(modelPath: string, message: (id: number) => ToCpuCore): Promise<CpuCallResult | null> {
    const id = this.#nextTask++;
    if (this.#tasks.size === 0) this.#worker.ref();
    return new Promise((resolve, reject) => {
      this.#tasks.set(id, { about: basename(modelPath), resolve, reject });
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
      this.#worker.postMessage(message(id));
    });
  }

  #take(answer: FromCpuCore): void {
    const task = this.#tasks.get(answer.id);
    this.#tasks.delete(answer.id);
    if (this.#tasks.size === 0) this.#worker.unref();
    if (answer.ok) task?.resolve(answer.result);
    else task?.reject(new GpuError('invalid', `the sub-graph ${task.about} failed on the CPU: ${answer.message}`));
  }

  #died(): void {
    this.#isAlive = false;
    const tasks = [...this.#tasks.values()];
    this.#tasks.clear();
    for (const { about, reject } of tasks) {
      reject(
        new GpuError('died', `the thread of core ${this.#core} died with the sub-graph ${about}: ${this.#reason}`),
      );
    }
  }
}
