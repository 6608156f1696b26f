/** The GPU process's plans over GPU and CPU, by function. */
import type { GraphProfile } from '../../profile/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { given } from '../../tools/index.ts';
import type { Engine } from '../engine/engine.ts';
import { shapesKey, shapesOf, sizingOf } from '../program/input-shapes.ts';
import type { InputShapes, WeightLayout } from '../program/types.ts';
import { GpuError, type RunOptions, type RunResult, type ProgramSettings } from '../types.ts';
import type { HybridProgram } from './compile.ts';
import { CpuCores } from './cpu-cores.ts';
import { openHybrid, SharedHybrid, type OpenHybrid } from './open.ts';
import type { OperatorDraft } from './operator-draft.ts';
import { profileOperators } from './operator-profile.ts';
import type { HybridPlan, HybridPromise, MeasureOperatorsOptions } from './types.ts';

/** A function to register. */
export interface HybridSpec {
  /** `name@version`, unique on a host. */
  readonly key: string;
  /** Absolute path of the ONNX file, with its external data beside it. */
  readonly modelPath: string;
  /** Input shapes to compile for at once. Others are compiled at their first run. */
  readonly shapes: InputShapes;
  readonly settings?: ProgramSettings;
  /**
   * Present if the function may have plans over GPU and CPU. Then it may use GPUs even if the engine lacks some of its
   * operators.
   */
  readonly hybrid?: {
    /**
     * Number of cells that the longest recurrent operator is unrolled into. Shorter ones have fewer cells, with as many
     * steps each.
     */
    readonly cells: number;
  };
}

/** A request for a function's graph. */
export interface DraftOrder extends Pick<HybridSpec, 'modelPath' | 'shapes'> {
  readonly cells: number;
  readonly layout: WeightLayout;
}

/** The compiler's thread. */
interface HybridCompiler {
  make(
    what: 'hybrid',
    order: DraftOrder & { readonly plan: HybridPlan },
    settings?: ProgramSettings,
  ): Promise<HybridProgram>;
  make(what: 'operators', order: DraftOrder, settings?: ProgramSettings): Promise<OperatorDraft>;
}

interface Variant {
  readonly plan: HybridPlan;
  readonly promise: HybridPromise;
  /** By input shapes, the least recently run first; includes those of the registration. */
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

  /** Replaces the plan of the same id, if there is one. @throws GpuError 'invalid' */
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
   * @throws CompileError if a plan does not fit the graph of these shapes
   */
  async prepare(key: string, shapes: InputShapes): Promise<void> {
    const planned = this.#functions.get(key);
    for (const variant of planned?.variants.values() ?? [])
      await this.#openFor(planned!, variant, shapes).use(() => opened);
  }

  /** Frees the programs for these shapes. */
  drop(key: string, shapes: InputShapes): void {
    for (const { open } of this.#functions.get(key)?.variants.values() ?? []) retire(open, shapesKey(shapes));
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
   * Measures the operators of a function for a planner. Nothing else should run meanwhile.
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
      'operators',
      { modelPath, shapes, cells: hybrid?.cells ?? 1, layout },
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

  /** A plan is made for the registration's shapes. It is used for other shapes too if their graphs are alike. */
  #openFor(planned: Planned, { plan, open }: Variant, shapes: InputShapes): SharedHybrid {
    const key = shapesKey(shapes);
    const own = shapesKey(planned.spec.shapes);
    let found = open.get(key);
    if (found === undefined) {
      const opening = this.#open(planned, plan, shapes);
      const made = new SharedHybrid(opening);
      // By then these shapes may have another program.
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

  async #open(planned: Planned, plan: HybridPlan, shapes: InputShapes): Promise<OpenHybrid> {
    const { spec, layout } = planned;
    const { key, modelPath, hybrid, settings } = spec;
    const program = await this.#compiler.make(
      'hybrid',
      { modelPath, shapes, cells: hybrid?.cells ?? 1, plan, layout },
      settings,
    );
    // Meanwhile it may have been removed, and another model registered under its key.
    if (this.#functions.get(key) !== planned) throw unknownFunction(key);
    return await openHybrid(this.#engine, key, program, this.cores);
  }

  #planned(key: string): Planned {
    const planned = this.#functions.get(key);
    if (planned !== undefined) return planned;
    throw unknownFunction(key);
  }

  #variant({ variants, spec }: Planned, id: string): Variant {
    const variant = variants.get(id);
    if (variant === undefined) throw new GpuError('invalid', `function '${spec.key}' has no plan '${id}'`);
    return variant;
  }
}

const unknownFunction = (key: string): GpuError =>
  new GpuError('unknown-function', `function '${key}' is not registered for plans over GPU and CPU`);

const opened = Promise.resolve();

/** Runs may still use it: it is freed after them, without waiting here. */
function retire(open: Map<string, SharedHybrid>, key: string): void {
  void open.get(key)?.retire();
  open.delete(key);
}

async function closeAll({ open }: Variant): Promise<void> {
  for (const opened of open.values()) await opened.retire();
}
