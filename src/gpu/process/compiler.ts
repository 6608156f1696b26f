/** The GPU process's side of the thread that makes programs. */
import { compiledModule, Server, startThread } from '../../process/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { DraftOrder, HybridPlan, HybridProgram, OperatorDraft } from '../hybrid/index.ts';
import type { InputShapes, Obstacle, Program, ProgramSettings, WeightLayout } from '../program/index.ts';
import type { PaddingFound } from '../padding/index.ts';
import { GpuError } from '../types.ts';
import type { OperatorGroup } from '../operators/index.ts';
import type { CompileFailure, CompileOrder } from './compile-protocol.ts';

const thread = {
  module: compiledModule('./compile-worker.js', import.meta.url),
  name: 'compiler',
  ends: 'at-once',
} as const;

/** A model that cannot be a program, with what is in the way. */
export class CompileError extends GpuError {
  readonly obstacles: readonly Obstacle[];
  constructor(code: 'unsupported' | 'invalid', message: string, obstacles: readonly Obstacle[]) {
    super(code, message);
    this.obstacles = obstacles;
  }
}

type Without<Whole, Key extends PropertyKey> = Whole extends unknown ? Omit<Whole, Key> : never;
type Order = Without<CompileOrder, 'cacheFolder' | 'settings' | 'withoutOperators'>;

export class Compiler {
  readonly #cacheFolder: string;
  /** Groups of operators that are left to the CPU. */
  withoutOperators: readonly OperatorGroup[] = [];
  #thread: CompileThread;

  constructor(cacheFolder: string) {
    this.#cacheFolder = cacheFolder;
    // Reading its code takes it a good part of a second, which it need not begin with when the first function waits for it.
    this.#thread = start();
  }

  /** @throws CompileError */
  async compile(modelPath: string, shapes: InputShapes, settings: ProgramSettings | undefined): Promise<Program> {
    return (await this.#order({ op: 'program', modelPath, shapes }, settings)) as Program;
  }

  /** Whether inputs of these shapes may run in the program of others. @throws CompileError */
  async padding(modelPath: string, shapes: InputShapes, program: InputShapes): Promise<PaddingFound> {
    return (await this.#order({ op: 'padding', modelPath, shapes, program }, undefined)) as PaddingFound;
  }

  /** The inputs whose values a program has to be made for. @throws CompileError */
  async sizing(modelPath: string): Promise<readonly string[]> {
    return (await this.#order({ op: 'sizing', modelPath }, undefined)) as readonly string[];
  }

  /** @throws CompileError */
  async layout(modelPath: string, settings: ProgramSettings | undefined): Promise<WeightLayout> {
    return (await this.#order({ op: 'layout', modelPath }, settings)) as WeightLayout;
  }

  /** @throws CompileError */
  async hybrid(
    given: DraftOrder & { readonly plan: HybridPlan },
    settings: ProgramSettings | undefined,
  ): Promise<HybridProgram> {
    return (await this.#order({ op: 'hybrid', ...given }, settings)) as HybridProgram;
  }

  /** What the operator profile of a function starts from. @throws CompileError */
  async operators(given: DraftOrder, settings: ProgramSettings | undefined): Promise<OperatorDraft> {
    return (await this.#order({ op: 'operators', ...given }, settings)) as OperatorDraft;
  }

  async #order(order: Order, settings: ProgramSettings | undefined): Promise<unknown> {
    if (!this.#thread.isAlive) this.#thread = start();
    const { withoutOperators } = this;
    const cacheFolder = this.#cacheFolder;
    const whole = { ...order, cacheFolder, withoutOperators, ...(settings === undefined ? {} : { settings }) };
    return (await this.#thread.ask(whole satisfies CompileOrder)).answer;
  }

  /** Inputs to check a function with. @throws CompileError for types of which none can be drawn */
  async drawInputs(modelPath: string, shapes: InputShapes): Promise<readonly Tensor[]> {
    return (await this.#order({ op: 'inputs', modelPath, shapes }, undefined)) as readonly Tensor[];
  }

  /** What ONNX Runtime answers on the CPU, beside everything else. @throws CompileError where it does not run */
  async reference(modelPath: string, inputs: readonly Tensor[]): Promise<readonly Tensor[]> {
    return (await this.#order({ op: 'reference', modelPath, inputs }, undefined)) as readonly Tensor[];
  }

  async close(): Promise<void> {
    this.#thread.end('it was closed');
    await this.#thread.exited;
  }
}

type CompileThread = Server<CompileOrder, CompileFailure>;

function start(): CompileThread {
  return new Server((events) => startThread(thread, events), {
    errorOf: ({ failure, ended }) => {
      if (failure === undefined) return new CompileError('invalid', `the compiler died: ${ended.reason}`, []);
      const { code, message, obstacles } = failure;
      return new CompileError(code === 'unsupported' ? 'unsupported' : 'invalid', message, obstacles);
    },
  });
}
