/** The plans over GPU and CPU of the functions that the GPU process serves. */
import type { GraphProfile } from '../../profile/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { given } from '../../tools/index.ts';
import type { Engine } from '../engine/index.ts';
import { shapesKey, shapesOf, sizingOf } from '../program/input-shapes.ts';
import type { InputShapes, ProgramSettings, WeightLayout } from '../program/types.ts';
import { GpuError, type RunOptions, type RunResult } from '../types.ts';
import type { HybridProgram } from './compile.ts';
import { CpuCores } from './cpu-cores.ts';
import { OpenHybrid } from './open.ts';
import type { OperatorDraft } from './operator-draft.ts';
import { profileOperators } from './operator-profile.ts';
import { SharedHybrid } from './shared.ts';
import type { HybridPlan, HybridPromise, MeasureOperatorsOptions } from './types.ts';

/** A function as it was registered. */
export interface HybridSpec {
  /** `name@version`, unique among everything a host serves. */
  readonly key: string;
  /** Absolute path of the ONNX file; external data lies beside it. */
  readonly modelPath: string;
  /** The shapes to compile for at once. Others are compiled when they are first run. */
  readonly shapes: InputShapes;
  readonly settings?: ProgramSettings;
  /**
   * Present for functions that may have plans over GPU and CPU. Then operators that the engine lacks do not keep it
   * from the GPUs.
   */
  readonly hybrid?: {
    /**
     * How many cells the longest recurrent operator is unrolled into; shorter ones into fewer, with as many steps each.
     */
    readonly cells: number;
  };
}

/** What the graph of a function is made for. */
export interface DraftOrder extends Pick<HybridSpec, 'modelPath' | 'shapes'> {
  readonly cells: number;
  readonly layout: WeightLayout;
}

/** The thread that makes programs. */
interface HybridCompiler {
  make(
    order: DraftOrder & { readonly op: 'hybrid'; readonly plan: HybridPlan },
    settings?: ProgramSettings,
  ): Promise<HybridProgram>;
  make(order: DraftOrder & { readonly op: 'operators' }, settings?: ProgramSettings): Promise<OperatorDraft>;
}

interface Variant {
  readonly plan: HybridPlan;
  readonly promise: HybridPromise;
  /** By input shapes, the least recently run first; those of the registration among them. */
  readonly open: Map<string, SharedHybrid>;
}

interface Planned {
  readonly spec: HybridSpec;
  readonly layout: WeightLayout;
  readonly variants: Map<string, Variant>;
}

export interface HybridFunctionsOptions {
  readonly cores: number;
  readonly coreNumbers?: readonly number[];
  readonly shapesMax: number;
}

export class HybridFunctions {
  readonly cores: CpuCores;
  readonly #engine: Engine;
  readonly #compiler: HybridCompiler;
  readonly #shapesMax: number;
  readonly #coreNumbers: readonly number[];
  readonly #functions = new Map<string, Planned>();

  constructor(engine: Engine, compiler: HybridCompiler, { cores, coreNumbers, shapesMax }: HybridFunctionsOptions) {
    this.#engine = engine;
    this.#compiler = compiler;
    this.#shapesMax = shapesMax;
    this.#coreNumbers = coreNumbers ?? [];
    this.cores = new CpuCores({ count: cores, ...given({ cores: coreNumbers }) });
  }

  add(spec: HybridSpec, layout: WeightLayout): void {
    this.#functions.set(spec.key, { spec, layout, variants: new Map() });
  }

  async remove(key: string): Promise<void> {
    const planned = this.#functions.get(key);
    this.#functions.delete(key);
    for (const variant of planned?.variants.values() ?? []) await closeAll(variant);
  }

  /** A plan that is there already under this name is replaced. @throws GpuError 'invalid' */
  async addPlan(key: string, plan: HybridPlan): Promise<HybridPromise> {
    const planned = this.#planned(key);
    const opened = await this.#open(planned, plan, planned.spec.shapes);
    const open = new Map([[shapesKey(planned.spec.shapes), new SharedHybrid(Promise.resolve(opened))]]);
    const { promise } = opened.hybrid;
    const before = planned.variants.get(plan.id);
    planned.variants.set(plan.id, { plan, promise, open });
    if (before !== undefined) await closeAll(before);
    return promise;
  }

  async dropPlan(key: string, id: string): Promise<void> {
    const planned = this.#planned(key);
    const variant = this.#variant(planned, id);
    planned.variants.delete(id);
    await closeAll(variant);
  }

  /**
   * Opens every plan of a function for further shapes.
   *
   * @throws CompileError where a plan does not carry over to them
   */
  async prepare(key: string, shapes: InputShapes): Promise<void> {
    const planned = this.#functions.get(key);
    for (const variant of planned?.variants.values() ?? [])
      await this.#openFor(planned!, variant, shapes).use(() => opened);
  }

  /** Gives back what was opened for these shapes. */
  drop(key: string, shapes: InputShapes): void {
    for (const { open } of this.#functions.get(key)?.variants.values() ?? []) retire(open, shapesKey(shapes));
  }

  /** Has the GPU keep nothing but the layers of a plan. Resolves with the bytes that are free now. */
  async keep(key: string, gpu: number, id: string): Promise<number> {
    const { promise } = this.#variant(this.#planned(key), id);
    return await this.#engine.keep(key, gpu, new Set(promise.layers));
  }

  /** @throws GpuError */
  async run(key: string, id: string, inputs: readonly Tensor[], options: RunOptions): Promise<RunResult> {
    const planned = this.#planned(key);
    const variant = this.#variant(planned, id);
    return await this.#openFor(planned, variant, shapesOf(inputs, sizingOf(planned.spec.shapes))).use((open) =>
      open.run(inputs, options),
    );
  }

  /**
   * Measures the operators of a function, for plans to be made from. Nothing else should run meanwhile.
   *
   * @throws GpuError
   */
  async profile(key: string, options: MeasureOperatorsOptions, signal: AbortSignal): Promise<GraphProfile> {
    const { spec, layout } = this.#planned(key);
    const { gpu, cores = this.cores.count, iterations } = options;
    if (cores < 1 || cores > this.cores.count) {
      throw new GpuError(
        'invalid',
        `operators cannot be timed on ${cores} cores: the GPU process has ${this.cores.count} for plans over GPU and CPU`,
      );
    }
    const { modelPath, shapes, hybrid, settings } = spec;
    const draft = await this.#compiler.make(
      { op: 'operators', modelPath, shapes, cells: hybrid?.cells ?? 1, layout },
      settings,
    );
    return await profileOperators({
      engine: this.#engine,
      key,
      gpu,
      draft,
      cpuCores: this.cores,
      cores,
      coreNumbers: this.#coreNumbers,
      signal,
      ...given({ iterations }),
    });
  }

  async close(): Promise<void> {
    await this.cores.close();
  }

  /** A plan is made for the shapes of the registration, and carried over to others as far as their graphs are alike. */
  #openFor(planned: Planned, { plan, open }: Variant, shapes: InputShapes): SharedHybrid {
    const key = shapesKey(shapes);
    const own = shapesKey(planned.spec.shapes);
    let found = open.get(key);
    if (found === undefined) {
      const opening = this.#open(planned, plan, shapes);
      const made = new SharedHybrid(opening);
      // By then another may be there under these shapes.
      opening.catch(() => void (open.get(key) === made && open.delete(key)));
      found = made;
    }
    open.delete(key);
    open.set(key, found);
    for (const oldKey of open.keys()) {
      if (open.size - 1 <= this.#shapesMax) break;
      if (oldKey !== own && oldKey !== key) retire(open, oldKey);
    }
    return found;
  }

  async #open({ spec, layout }: Planned, plan: HybridPlan, shapes: InputShapes): Promise<OpenHybrid> {
    const { modelPath, hybrid, settings } = spec;
    const program = await this.#compiler.make(
      { op: 'hybrid', modelPath, shapes, cells: hybrid?.cells ?? 1, plan, layout },
      settings,
    );
    return await OpenHybrid.open(this.#engine, spec.key, program, this.cores);
  }

  #planned(key: string): Planned {
    const planned = this.#functions.get(key);
    if (planned !== undefined) return planned;
    throw new GpuError('unknown-function', `function '${key}' was not registered for plans over GPU and CPU`);
  }

  #variant({ variants, spec }: Planned, id: string): Variant {
    const variant = variants.get(id);
    if (variant === undefined) throw new GpuError('invalid', `function '${spec.key}' has no plan '${id}'`);
    return variant;
  }
}

const opened = Promise.resolve();

/** Runs may use it still, and nobody need wait for them. */
function retire(open: Map<string, SharedHybrid>, key: string): void {
  void open.get(key)?.retire();
  open.delete(key);
}

async function closeAll({ open }: Variant): Promise<void> {
  for (const opened of open.values()) await opened.retire();
}
