/**
 * The inputs of calls. If there is no program yet for their shapes, the call runs elsewhere, and a program is made and
 * checked in the background.
 */
import { shapesOf, type AnsweredCall, type GpuClient, type InputShapes } from '../../gpu/index.ts';
import type { Join } from '../../schedule/index.ts';
import { keepTensors, type Tensor } from '../../tensor/index.ts';
import { Semaphore } from '../../tools/index.ts';
import { msText, type WhyNot } from '../../live/index.ts';
import { isOffered, type FunctionEvent, type GpuFunctionRecord } from './function-state.ts';
import { variantsOf, subjectOf, type Passed } from './gate.ts';
import { inHostMemory } from './room.ts';
import type { GpuFunction } from './gpu-function.ts';
import { joinedCalls } from './joined-calls.ts';
import type { WantedProgram } from './known-shapes.ts';
import { StaleError, type GpuRuntime, type Preparation, type Preparer } from './prepare.ts';
import { isOfProcess } from './unless-it-died.ts';

export interface CallShapesOptions {
  readonly client: Pick<GpuClient, 'prepare'>;
  readonly preparer: Preparer;
  readonly record: (key: string) => GpuFunctionRecord | undefined;
  readonly functionOf: (key: string) => GpuFunction | undefined;
  readonly runtime: (fn: GpuFunction) => GpuRuntime | undefined;
  readonly isClosed: () => boolean;
  readonly tell: (key: string, event: FunctionEvent) => void;
  readonly stage: (fn: GpuFunction, attempt: number, stop: () => void) => Preparation['stage'];
  /** Called with work to wait for at the end. */
  readonly track: (work: Promise<void>) => void;
}

export class CallShapes {
  readonly #options: CallShapesOptions;
  readonly #shaping = new Semaphore(1);
  readonly #joinOf: ReturnType<typeof joinedCalls>;

  constructor(options: CallShapesOptions) {
    this.#options = options;
    this.#joinOf = joinedCalls({
      runtime: options.runtime,
      inTurn: (work) => this.#inTurn(work),
      behindACall: (fn, shapes, work) => this.#behindACall(fn, shapes, work),
      ready: (fn, shapes, inputs, wanted) => this.#ready(fn, shapes, inputs, wanted),
    });
  }

  /** What allows a GPU call to share a run; undefined: it runs alone. */
  joinOf(key: string, inputs: readonly Tensor[]): Join | undefined {
    const record = this.#options.record(key);
    const fn = this.#options.functionOf(key);
    if (record === undefined || fn === undefined || this.#options.isClosed() || !isOffered(record)) return undefined;
    // Its calls are not joined, and no sizes of earlier settings are left to take back.
    if (fn.version.settings.batching.batchMax === 1 && fn.joining.rowsMax === 1) return undefined;
    return this.#joinOf(fn, inputs);
  }

  /**
   * Why this call must not run on a GPU; undefined if it may. For inputs of new shapes a program is made in the
   * background and the call goes elsewhere: no call waits for a compilation. A state that needs a call's inputs is
   * decided with these.
   */
  keepsOff(key: string, inputs: readonly Tensor[]): WhyNot | undefined {
    const record = this.#options.record(key);
    const fn = this.#options.functionOf(key);
    if (record === undefined || fn === undefined || this.#options.isClosed()) return undefined;
    switch (record.state.kind) {
      case 'unsized':
        this.size(fn, shapesOf(inputs, new Set(record.state.inputs)));
        return undefined;
      // No program was made yet: it is made for the sizes of the latest call, if it has not begun.
      case 'absent':
      case 'registering':
      case 'measuring':
      case 'checking':
        fn.called = shapesOf(inputs);
        return undefined;
      case 'planned':
      case 'resident':
      case 'undecided':
      case 'paused':
      case 'disagreed':
      case 'refused':
      case 'lost':
    }
    const shapes = shapesOf(inputs, fn.sizing);
    const isUndecided = record.state.kind === 'undecided';
    if (!isUndecided && !isOffered(record)) return undefined;
    const slower = isUndecided ? undefined : this.#slowerThanPool(fn);
    if (slower !== undefined) return slower;
    const whyNot = fn.shapes.whyNot(shapes);
    fn.shapes.called(shapes);
    const wanted = fn.shapes.wants(shapes);
    if (wanted !== undefined) {
      const decide = (): Promise<void> => this.#decide(fn, record.attempt, inputs);
      const ready = (): Promise<void> => this.#ready(fn, shapes, inputs, wanted);
      fn.shapes.preparing(shapes, wanted);
      keepTensors(inputs);
      this.#behindACall(fn, shapes, isUndecided ? decide : ready);
    }
    return isUndecided ? undefined : whyNot;
  }

  /** Uses the sizes that a function waited for, unless an earlier call with these had no program. */
  size(fn: GpuFunction, shapes: InputShapes): void {
    fn.shapes.called(shapes);
    if (fn.shapes.wants(shapes) === undefined) return;
    fn.called = shapes;
    this.#options.tell(fn.version.key, { kind: 'sized' });
  }

  /** A model larger than a GPU reads host memory in each run; if the CPU pool is faster, it runs there. */
  #slowerThanPool(fn: GpuFunction): WhyNot | undefined {
    const {
      version: { key },
      plans,
    } = fn;
    const runtime = this.#options.runtime(fn);
    if (plans?.isTooLarge !== true || runtime === undefined) return undefined;
    const { cpu, gpu } = runtime.scheduler.runMsOf(key);
    if (cpu !== undefined && gpu <= cpu) return undefined;
    const reason = 'too-large';
    if (cpu === undefined) return { reason, words: 'it is larger than a GPU, and the CPU pool is timed first' };
    const words = `it is larger than a GPU, where a run takes ${msText(gpu)}; the CPU pool takes ${msText(cpu)}`;
    return { reason, words };
  }

  /** Shapes with which it can run on a GPU. */
  shapesOf(key: string): InputShapes | undefined {
    return this.#options.functionOf(key)?.shapes.any;
  }

  /** Compares a GPU's answer with ONNX Runtime's. @throws GpuError */
  async recheck({ key, inputs, outputs }: AnsweredCall): Promise<void> {
    const fn = this.#options.functionOf(key);
    if (fn?.plans === undefined) return;
    const { plans } = fn;
    const passed = await this.#options.preparer.gate.answered(key, plans.planOf(0, plans.mode), inputs, outputs);
    if (passed.kind === 'disagreed' && this.#options.functionOf(key) === fn) await this.#disagreed(fn, passed.reason);
  }

  async #disagreed(fn: GpuFunction, reason: string): Promise<void> {
    const { version } = fn;
    this.#options.tell(version.key, { kind: 'disagreed', reason });
    await this.#options.runtime(fn)?.verdicts.keep(version, 'any', { kind: 'disagreed', reason });
  }

  /** One at a time per function, and in total: a program is compiled for it. */
  #behindACall(fn: GpuFunction, shapes: InputShapes, work: () => Promise<void>): void {
    const known = fn.shapes;
    const { signal } = fn.overtaken;
    this.#inTurn(async () => {
      try {
        if (!signal.aborted) await work();
      } catch (error) {
        if (signal.aborted || error instanceof StaleError || isOfProcess(error)) return;
        known.refused(shapes, error instanceof Error ? error.message : String(error));
      } finally {
        known.dropped();
      }
    });
  }

  /** @param work that does not reject */
  #inTurn(work: () => Promise<void>): void {
    this.#options.track(this.#shaping.use(work));
  }

  async #decide(fn: GpuFunction, attempt: number, inputs: readonly Tensor[]): Promise<void> {
    const { version, plans, shapes: known } = fn;
    const { key } = version;
    const shapes = shapesOf(inputs, fn.sizing);
    const runtime = this.#options.runtime(fn);
    const { signal } = fn.overtaken;
    const stop = (): void => {
      if (signal.aborted || this.#options.isClosed() || this.#options.record(key)?.attempt !== attempt)
        throw new StaleError(`the comparison for ${key} was overtaken`);
    };
    if (runtime === undefined || plans === undefined) return;
    const { gate } = this.#options.preparer;
    const following = { stage: this.#options.stage(fn, attempt, stop) };
    let passed: Passed;
    try {
      passed = await gate.pass(version, runtime, variantsOf(plans), { inputs, shapes }, following);
      stop();
    } catch (error) {
      if (error instanceof StaleError || isOfProcess(error)) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      this.#options.tell(key, { kind: 'undecided', attempt, reason });
      throw error;
    }
    switch (passed.kind) {
      case 'agreed':
        known.ready(shapes, shapes);
        this.#options.tell(key, { kind: 'planned', attempt });
        return;
      case 'undecided':
        known.undecided();
        this.#options.tell(key, { kind: 'undecided', attempt, reason: passed.reason });
        return;
      case 'disagreed':
        await this.#disagreed(fn, passed.reason);
    }
  }

  /** Makes a program for further shapes, and compares its answer, while the function serves others. */
  async #ready(fn: GpuFunction, shapes: InputShapes, inputs: readonly Tensor[], wanted: WantedProgram): Promise<void> {
    const {
      version,
      plans,
      shapes: shaped,
      overtaken: { signal },
    } = fn;
    const { key } = version;
    const runtime = this.#options.runtime(fn);
    if (runtime === undefined || plans === undefined) return;
    const { verdicts, scheduler } = runtime;
    const variants = variantsOf(plans);
    const coverage = await this.#options.client.prepare(key, { shapes, ...wanted });
    if (!coverage.covered)
      return 'isExactOnly' in coverage ? shaped.rowsMeet() : shaped.refused(shapes, coverage.reason);
    const { program } = wanted;
    const isKnown = async (variant: (typeof variants)[number]): Promise<boolean> =>
      (await verdicts.find(version, { ...subjectOf(variant, shapes), program }))?.kind === 'agreed';
    const known = await Promise.all(variants.map(isKnown));
    if (known.includes(false)) {
      // The scheduler gives it room like any call; the smaller variants then read the same layers.
      const placed = await scheduler.runOnGpu(version, inputs);
      if (placed.kind === 'elsewhere')
        return placed.refusal === undefined ? undefined : shaped.refused(shapes, placed.refusal);
      const { gpu, result, variant: ranUnder } = placed;
      using _held = await inHostMemory(scheduler, key);
      const ranAt = variants.findIndex(({ variant }) => variant === ranUnder);
      for (const [index, variant] of variants.entries()) {
        if (known[index]) continue;
        if (index < ranAt) return;
        const plan = plans.planOf(gpu, plans.mode, variant.variant);
        const passed = await (index === ranAt
          ? this.#options.preparer.gate.answered(key, plan, inputs, result.outputs)
          : this.#options.preparer.gate.resident(key, gpu, { ...variant, plan }, inputs));
        if (passed.kind === 'disagreed') return await this.#disagreed(fn, passed.reason);
        if (passed.kind === 'undecided') return shaped.undecided();
        await verdicts.keep(version, { ...subjectOf(variant, shapes), program }, passed);
      }
    }
    // The process with the program may be gone by now.
    if (!signal.aborted) shaped.ready(shapes, program);
  }
}
