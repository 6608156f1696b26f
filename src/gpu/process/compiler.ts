/** The GPU process's side of the thread that makes programs. */
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import type { HybridProgram } from '../hybrid/compile.ts';
import type { OperatorDraft } from '../hybrid/operator-draft.ts';
import type { HybridPlan } from '../hybrid/types.ts';
import type {
  InputShapes,
  Obstacle,
  Program,
  ProgramErrorCode,
  ProgramSettings,
  WeightLayout,
} from '../program/index.ts';
import { GpuError } from '../types.ts';
import type { CompileOrder } from './compile-worker.ts';

export type CompileAnswer =
  | { readonly id: number; readonly ok: true; readonly made: unknown }
  | {
      readonly id: number;
      readonly ok: false;
      /** `model`: the file could not be read as a model. `plan`: a plan over GPU and CPU cannot be carried out. */
      readonly code: ProgramErrorCode | 'model' | 'plan';
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
  readonly resolve: (made: unknown) => void;
  readonly reject: (error: GpuError) => void;
}

type Without<Whole, Key extends PropertyKey> = Whole extends unknown ? Omit<Whole, Key> : never;
type Order = Without<CompileOrder, 'id' | 'cacheFolder' | 'settings'>;

export class Compiler {
  readonly #cacheFolder: string;
  readonly #tasks = new Map<number, Task>();
  #worker: Worker | undefined;
  #next = 0;

  constructor(cacheFolder: string) {
    this.#cacheFolder = cacheFolder;
    // Reading its code takes it a good part of a second, which it need not begin with when the first function waits for it.
    this.#worker = this.#start();
  }

  /** @throws CompileError */
  async compile(modelPath: string, shapes: InputShapes, settings: ProgramSettings | undefined): Promise<Program> {
    return (await this.#order({ op: 'program', modelPath, shapes }, settings)) as Program;
  }

  /** @throws CompileError */
  async layout(modelPath: string, settings: ProgramSettings | undefined): Promise<WeightLayout> {
    return (await this.#order({ op: 'layout', modelPath }, settings)) as WeightLayout;
  }

  /** @throws CompileError */
  async hybrid(
    given: {
      readonly modelPath: string;
      readonly shapes: InputShapes;
      readonly cells: number;
      readonly plan: HybridPlan;
      readonly layout: WeightLayout;
    },
    settings: ProgramSettings | undefined,
  ): Promise<HybridProgram> {
    return (await this.#order({ op: 'hybrid', ...given }, settings)) as HybridProgram;
  }

  /** What the operator profile of a function starts from. @throws CompileError */
  async operators(
    given: {
      readonly modelPath: string;
      readonly shapes: InputShapes;
      readonly cells: number;
      readonly layout: WeightLayout;
    },
    settings: ProgramSettings | undefined,
  ): Promise<OperatorDraft> {
    return (await this.#order({ op: 'operators', ...given }, settings)) as OperatorDraft;
  }

  #order(order: Order, settings: ProgramSettings | undefined): Promise<unknown> {
    const id = this.#next++;
    this.#worker ??= this.#start();
    const whole = { id, ...order, cacheFolder: this.#cacheFolder, ...(settings === undefined ? {} : { settings }) };
    return new Promise((resolve, reject) => {
      this.#tasks.set(id, { resolve, reject });
      // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread's port, not a window
      this.#worker!.postMessage(whole satisfies CompileOrder);
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
    if (answer.ok) task?.resolve(answer.made);
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
