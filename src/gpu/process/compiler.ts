/** The GPU process's side of the thread that makes programs. */
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { InputShapes, Obstacle, Program, ProgramErrorCode, ProgramSettings } from '../program/index.ts';
import { GpuError } from '../types.ts';

export type CompileAnswer =
  | { readonly id: number; readonly ok: true; readonly program: Program }
  | {
      readonly id: number;
      readonly ok: false;
      /** `model`: the file could not be read as a model. */
      readonly code: ProgramErrorCode | 'model';
      readonly message: string;
      readonly obstacles: readonly Obstacle[];
    };

/** A model that cannot be a program, with what is in the way. */
export class CompileError extends GpuError {
  readonly obstacles: readonly Obstacle[];
  constructor(code: 'unsupported' | 'invalid', message: string, obstacles: readonly Obstacle[]) {
    super(code, message);
    this.obstacles = obstacles;
  }
}

interface Task {
  readonly resolve: (program: Program) => void;
  readonly reject: (error: GpuError) => void;
}

export class Compiler {
  readonly #cacheFolder: string;
  readonly #tasks = new Map<number, Task>();
  #worker: Worker | undefined;
  #next = 0;

  constructor(cacheFolder: string) {
    this.#cacheFolder = cacheFolder;
  }

  /** @throws CompileError */
  compile(modelPath: string, shapes: InputShapes, settings: ProgramSettings | undefined): Promise<Program> {
    const id = this.#next++;
    this.#worker ??= this.#start();
    return new Promise((resolve, reject) => {
      this.#tasks.set(id, { resolve, reject });
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
      this.#worker!.postMessage({ id, modelPath, shapes, settings, cacheFolder: this.#cacheFolder });
    });
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
  }

  #start(): Worker {
    const worker = new Worker(fileURLToPath(new URL('./compile-worker.js', import.meta.url)));
    worker.on('message', (answer: CompileAnswer) => this.#take(answer));
    worker.on('error', (error) => this.#end(error.message));
    worker.on('exit', () => this.#end('it ended'));
    return worker;
  }

  #take(answer: CompileAnswer): void {
    const task = this.#tasks.get(answer.id);
    this.#tasks.delete(answer.id);
    if (answer.ok) task?.resolve(answer.program);
    else {
      const code = answer.code === 'unsupported' ? 'unsupported' : 'invalid';
      task?.reject(new CompileError(code, answer.message, answer.obstacles));
    }
  }

  #end(reason: string): void {
    this.#worker = undefined;
    const tasks = [...this.#tasks.values()];
    this.#tasks.clear();
    for (const task of tasks) task.reject(new CompileError('invalid', `the compiler died: ${reason}`, []));
  }
}
