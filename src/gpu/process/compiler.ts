/** The GPU process's side of the thread that makes programs. */
import { join } from 'node:path';
import { compiledModule, GoneError, OnDemand, type Asked } from '../../process/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { given, removeUnused } from '../../tools/index.ts';
import type { DraftOrder, HybridPlan, HybridProgram, OperatorDraft } from '../hybrid/index.ts';
import type { PaddingFound } from '../padding/padding-of.ts';
import type { InputShapes, Obstacle, Program, ProgramSettings, WeightLayout } from '../program/index.ts';
import { GpuError } from '../types.ts';

/** A model that cannot become a program, with the unsupported operators. */
export class CompileError extends GpuError {
  readonly obstacles: readonly Obstacle[];
  constructor(code: 'unsupported' | 'invalid', message: string, obstacles: readonly Obstacle[] = []) {
    super(code, message);
    this.obstacles = obstacles;
  }
}

interface OfModel {
  readonly modelPath: string;
}

/** What a model is made into. */
export interface Making {
  program(order: OfModel & { readonly shapes: InputShapes }): Program;
  /** Whether these inputs may run, padded, in the program of other shapes. */
  padding(order: OfModel & { readonly shapes: InputShapes; readonly program: InputShapes }): PaddingFound;
  /** The inputs whose values a program has to be made for. */
  sizing(order: OfModel): readonly string[];
  /** The weights of a model, which need not be able to become a program. */
  layout(order: OfModel): WeightLayout;
  /** Names of a model's layers by their content. */
  ids(order: { readonly layout: WeightLayout }): readonly string[];
  hybrid(order: DraftOrder & { readonly plan: HybridPlan }): HybridProgram;
  /** The basis of a function's operator profile. */
  operators(order: DraftOrder): OperatorDraft;
  /** Inputs of these shapes to check a function with. */
  inputs(order: OfModel & { readonly shapes: InputShapes }): readonly Tensor[];
  /** What ONNX Runtime answers. */
  reference(order: OfModel & { readonly inputs: readonly Tensor[] }): readonly Tensor[];
  /** A program that also gives the values that jumps read; null if one of these outputs is behind none. See jumps.ts. */
  opened(
    order: OfModel & { readonly shapes: InputShapes; readonly outputs: readonly string[] },
  ): { readonly program: Program; readonly values: readonly string[] } | null;
  /** What ONNX Runtime answers where jumps read these values, and its own ones. */
  openedReference(
    order: OfModel & { readonly inputs: readonly Tensor[]; readonly values: readonly Tensor[] },
  ): readonly Tensor[];
}

/** How it is made. */
export interface MakingSettings {
  readonly cacheFolder: string;
  readonly settings?: ProgramSettings;
}

type MakingOrder<Name extends keyof Making> = Parameters<Making[Name]>[0];

/** What the thread is asked: each with its settings. */
export type CompilerApi = {
  readonly [Name in keyof Making]: (order: MakingOrder<Name> & MakingSettings) => ReturnType<Making[Name]>;
};

export class Compiler {
  readonly #cacheFolder: string;
  /** Weights in 16 bits take half of their model's bytes: those of models that are long gone are removed. */
  readonly #tidied: Promise<void>;
  readonly #thread = new OnDemand<CompilerApi>({
    what: 'the compiler',
    errors: { CompileError },
    errorOf: (error) => (error instanceof GoneError ? new CompileError('invalid', error.message) : error),
    thread: { module: compiledModule('./compile-worker.js', import.meta.url), name: 'compiler', ends: 'at-once' },
  });

  constructor(cacheFolder: string) {
    this.#cacheFolder = cacheFolder;
    // A cache that cannot be tidied may still be read.
    const isEntry = /^[0-9a-f]{64}$/;
    const folders = ['functions', 'layers', 'coded'].map((folder) =>
      removeUnused(join(cacheFolder, folder), { isEntry }),
    );
    this.#tidied = Promise.all(folders).then(
      () => undefined,
      () => undefined,
    );
    // Started early: loading its code takes a good part of a second, which the first function should not wait for.
    void this.#thread.running;
  }

  /** Asks the thread. @throws CompileError */
  async make<Name extends keyof Making>(
    what: Name,
    order: MakingOrder<Name>,
    settings?: ProgramSettings,
  ): Promise<ReturnType<Making[Name]>> {
    const whole = { ...order, cacheFolder: this.#cacheFolder, ...given({ settings }) };
    await this.#tidied;
    const asked = [whole] as unknown as Asked<CompilerApi[Name]>;
    return (await this.#thread.running.call(what, ...asked)) as ReturnType<Making[Name]>;
  }

  async close(): Promise<void> {
    await this.#thread.end('it was closed');
  }
}
