/** The GPU process's client of the thread that compiles models into programs (`compile-worker.ts`). */
import { join } from 'node:path';
import { compiledModule, GoneError, OnDemand, type Asked } from '../../process/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { given, removeUnused } from '../../tools/index.ts';
import type { DraftOrder, HybridPlan, HybridProgram, OperatorDraft } from '../hybrid/index.ts';
import type { PaddingFound } from '../padding/padding-of.ts';
import type { InputShapes, Obstacle, Program, ProgramSettings, WeightLayout } from '../program/index.ts';
import { GpuError } from '../types.ts';

/** A model cannot become a program. `obstacles`: the operators that the engine does not support. */
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

/** What the thread can make of a model. */
export interface Making {
  /** The program for inputs of these shapes. */
  program(order: OfModel & { readonly shapes: InputShapes }): Program;
  /** Whether these inputs may run, padded, in the program of other shapes. */
  padding(order: OfModel & { readonly shapes: InputShapes; readonly program: InputShapes }): PaddingFound;
  /** Names of the inputs whose values decide the shapes of a program. */
  sizing(order: OfModel): readonly string[];
  /** The weights of a model, also of a model that cannot become a program. */
  layout(order: OfModel): WeightLayout;
  /** An id for each layer, made from its content: models that share a layer have the same id for it. */
  ids(order: { readonly layout: WeightLayout }): readonly string[];
  /** The program for a plan over GPU and CPU. */
  hybrid(order: DraftOrder & { readonly plan: HybridPlan }): HybridProgram;
  /** The operators that a profile times on the GPU and on CPU cores. */
  operators(order: DraftOrder): OperatorDraft;
  /** Inputs of these shapes to check a function with. */
  inputs(order: OfModel & { readonly shapes: InputShapes }): readonly Tensor[];
  /** ONNX Runtime's outputs for these inputs. */
  reference(order: OfModel & { readonly inputs: readonly Tensor[] }): readonly Tensor[];
  /**
   * A program that also outputs the values that jumps read: operators whose result a rounding difference can change,
   * such as ArgMax (jumps.ts). null if one of these outputs is behind no jump.
   */
  opened(
    order: OfModel & { readonly shapes: InputShapes; readonly outputs: readonly string[] },
  ): { readonly program: Program; readonly values: readonly string[] } | null;
  /** ONNX Runtime's outputs when its jumps read these values; and the values that it computes for the jumps itself. */
  openedReference(
    order: OfModel & { readonly inputs: readonly Tensor[]; readonly values: readonly Tensor[] },
  ): readonly Tensor[];
}

/** What the thread needs besides, for each order. */
export interface MakingSettings {
  readonly cacheFolder: string;
  readonly settings?: ProgramSettings;
}

type MakingOrder<Name extends keyof Making> = Parameters<Making[Name]>[0];

/** The methods of {@link Making}, with {@link MakingSettings} in each order. */
export type CompilerApi = {
  readonly [Name in keyof Making]: (order: MakingOrder<Name> & MakingSettings) => ReturnType<Making[Name]>;
};

export class Compiler {
  readonly #cacheFolder: string;
  /**
   * Resolves when entries of models that nobody has used for long are removed from the cache: weights in 16 bits take
   * half of their model's bytes.
   */
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

  /** Has the thread make something, once the cache is tidied. @throws CompileError */
  async make<Name extends keyof Making>(
    what: Name,
    order: MakingOrder<Name>,
    settings?: ProgramSettings,
  ): Promise<ReturnType<Making[Name]>> {
    const orderWithSettings = { ...order, cacheFolder: this.#cacheFolder, ...given({ settings }) };
    await this.#tidied;
    const parameters = [orderWithSettings] as unknown as Asked<CompilerApi[Name]>;
    return (await this.#thread.running.call(what, ...parameters)) as ReturnType<Making[Name]>;
  }

  async close(): Promise<void> {
    await this.#thread.end('it was closed');
  }
}
