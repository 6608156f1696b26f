/**
 * The registry's functions on the GPUs: passes events to function-table.ts, and carries the effects out with the GPU
 * process and the scheduler. When a process has ended, all functions are restored in the next one, the latest used
 * first.
 */
import { join } from 'node:path';
import type { GpuClient } from '../../gpu/index.ts';
import { GpuError, sizingOf, type InputShapes } from '../../gpu/index.ts';
import { Semaphore } from '../../tools/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import {
  isOffered,
  isSettled,
  type FailureCause,
  type FunctionEffect,
  type FunctionEvent,
  type GpuFunctionRecord,
  type Stage,
} from './function-state.ts';
import { GpuFunctionTable } from './function-table.ts';
import {
  Preparer,
  StaleError,
  type GpuRuntime,
  type PreparedPlans,
  type PrepareOptions,
  type PreparingClient,
  type Trials,
} from './prepare.ts';
import { CallShapes } from './call-shapes.ts';
import { GpuFunction } from './gpu-function.ts';
import { knownShapesOf } from './known-shapes.ts';
import { forgetPlans, writePlans } from './plans.ts';
import { isOfProcess, isOfRoom, unlessItDied } from './unless-it-died.ts';

export type GpuFunctionsClient = PreparingClient & Pick<GpuClient, 'registerAgain' | 'prepare'>;

export interface GpuFunctionsOptions extends PrepareOptions {
  readonly client: GpuFunctionsClient;
  readonly registry: Registry;
  /** Called for a pinned function that can run. */
  readonly onPinned: (version: FunctionVersion) => void;
  readonly now?: () => number;
}

/**
 * Concurrent registrations. Programs come from one compiler; beside it, programs are bound to each GPU and weights are
 * read.
 */
const registrationsAtOnce = 4;

export class GpuFunctions {
  readonly #options: GpuFunctionsOptions;
  readonly #table = new GpuFunctionTable();
  readonly #functionByKey = new Map<string, GpuFunction>();
  readonly #preparer: Preparer;
  /** Questions about the inputs of calls. */
  readonly calls: CallShapes;
  readonly #registering = new Semaphore(registrationsAtOnce);
  readonly #measuring = new Semaphore(1);
  readonly #now: () => number;
  readonly #running = new Set<Promise<void>>();
  #runtime: GpuRuntime | undefined;
  #isClosed = false;
  #watchers: (() => void)[] = [];

  constructor(options: GpuFunctionsOptions) {
    this.#options = options;
    this.#now = options.now ?? ((): number => performance.now());
    this.#preparer = new Preparer(options);
    this.calls = new CallShapes({
      client: options.client,
      preparer: this.#preparer,
      record: (key) => this.#table.records.get(key),
      functionOf: (key) => this.#functionByKey.get(key),
      runtime: (fn) => this.#runtimeOf(fn),
      isClosed: () => this.#isClosed,
      tell: (key, event) => this.tell(key, event),
      stage: (fn, attempt, stop) => this.#stage(fn, attempt, stop),
      track: (work) => this.#track(work),
    });
    options.registry.onChange(({ before, after }) => this.#changed(before, after));
  }

  record(key: string): GpuFunctionRecord | undefined {
    return this.#table.records.get(key);
  }

  /** What a function is computed in, and how far that was from ONNX Runtime's answers when it was checked. */
  precision(key: string): Pick<GpuFunction, 'precision' | 'difference'> | undefined {
    return this.#functionByKey.get(key);
  }

  version(key: string): FunctionVersion | undefined {
    return this.#functionByKey.get(key)?.version;
  }

  records(): Iterable<GpuFunctionRecord> {
    return this.#table.records.values();
  }

  /** Resolves when all functions that were ready so far are planned or refused, with no work under way. */
  async settled(): Promise<void> {
    await this.#until(() => this.#running.size === 0 && [...this.#table.records.values()].every(isSettled));
  }

  /** Resolves when this function can be invoked or is refused; at once if it is. */
  async planned(key: string): Promise<void> {
    await this.#until(() => {
      const record = this.#table.records.get(key);
      return record === undefined || isOffered(record) || isSettled(record);
    });
  }

  /** An operator asks for a function: what was refused, or waits for a call, is tried again. */
  askFor(key: string): void {
    const kind = this.#table.records.get(key)?.state.kind;
    if (kind !== 'refused' && kind !== 'unsized') return;
    this.#functionByKey.get(key)?.shapes.lost();
    this.tell(key, { kind: 'asked for' });
  }

  /** Reports runs, and layers that came to a GPU or left it. */
  tell(key: string, event: FunctionEvent): void {
    this.#apply(this.#table.apply(key, event, this.#now()));
  }

  /** The process is up; the first time with the rest of the runtime. */
  up(runtime: GpuRuntime): void {
    this.#runtime = runtime;
    if (this.#isClosed) return;
    const idleMs = (key: string): number => runtime.scheduler.placeOf(key)?.idleMs ?? Infinity;
    const idle = [...this.#functionByKey.keys()].map((key) => [key, idleMs(key)] as const);
    // Infinities cannot be subtracted.
    const latestFirst = idle.toSorted(([, one], [, other]) => (one === other ? 0 : one < other ? -1 : 1));
    this.#apply(this.#table.processUp(latestFirst.map(([key]) => key)));
  }

  down(reason: string): void {
    for (const { overtaken } of this.#functionByKey.values()) overtaken.abort();
    this.#apply(this.#table.processEnded(reason));
  }

  /** There will be no further process. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { overtaken } of this.#functionByKey.values()) overtaken.abort();
    this.#wake();
    await Promise.all(this.#running);
  }

  #runtimeOf({ precision }: Pick<GpuFunction, 'precision'>): GpuRuntime | undefined {
    return this.#runtime?.inPrecision(precision);
  }

  #changed(before: FunctionVersion | undefined, after: FunctionVersion | undefined): void {
    if (this.#isClosed) return;
    const isReady = after?.state.status === 'ready';
    if (before !== undefined && !isReady) this.#forget(before.key);
    if (isReady) this.#take(after);
    // Another version may serve now, and the pin moves with it.
    const changed = after ?? before;
    for (const { key } of changed === undefined ? [] : this.#options.registry.versions(changed.name)) {
      const other = this.#functionByKey.get(key)?.version;
      if (key === changed?.key || other?.settings.pinned !== true) continue;
      this.tell(key, { kind: 'pinned', isPinned: this.#isPinned(other) });
    }
  }

  #take(version: FunctionVersion): void {
    const { key } = version;
    const fn = this.#functionByKey.get(key);
    const precision = version.settings.gpu?.precision ?? this.#options.settings.precision;
    const isSame =
      fn?.version.modelSha256 === version.modelSha256 &&
      fn.version.modelPath === version.modelPath &&
      fn.precision === precision;
    const isPinned = this.#isPinned(version);
    if (fn !== undefined && isSame) {
      fn.version = version;
      this.tell(key, { kind: 'pinned', isPinned });
      return;
    }
    fn?.overtaken.abort();
    this.#functionByKey.set(key, new GpuFunction(version, precision, fn));
    this.#apply(this.#table.want(key, isPinned));
  }

  #forget(key: string): void {
    this.#functionByKey.get(key)?.overtaken.abort();
    this.#apply(this.#table.forget(key));
    const fn = this.#functionByKey.get(key);
    this.#functionByKey.delete(key);
    const forgetFiles = (): Promise<void> => forgetPlans(join(this.#options.dataDir, 'plans'), key);
    if (fn !== undefined) this.#track(fn.work.then(forgetFiles));
  }

  /** A pin keeps the serving version; replaced versions stay only until their room is needed. */
  #isPinned({ name, key, settings }: FunctionVersion): boolean {
    return settings.pinned && this.#options.registry.find(name)?.key === key;
  }

  #apply(effects: readonly FunctionEffect[]): void {
    for (const effect of effects) this.#carryOut(effect);
    this.#wake();
  }

  #carryOut(effect: FunctionEffect): void {
    const fn = this.#functionByKey.get(effect.key);
    if (fn === undefined || this.#isClosed) return;
    const { key } = effect;
    switch (effect.kind) {
      case 'prepare':
      case 'bring back':
        fn.overtaken.abort();
        fn.overtaken = new AbortController();
        this.#enqueue(fn, () => this.#work(effect, fn));
        return;
      case 'offer': {
        const isPinned = this.#table.records.get(key)?.isPinned === true;
        if (fn.plans === undefined) return;
        this.#runtime?.scheduler.functions.offer(fn.version, fn.plans, isPinned);
        return;
      }
      case 'retract':
        fn.retracted = this.#runtime?.scheduler.functions.retract(key) ?? Promise.resolve();
        this.#enqueue(fn, () => fn.retracted);
        return;
      case 'discard':
        if (effect.reason !== undefined)
          this.#options.logger.info({ function: key, reason: effect.reason }, 'stays on the CPU pool');
        this.#enqueue(fn, async () => {
          const wasRegistered = fn.isRegistered;
          fn.isRegistered = false;
          this.#runtime?.scheduler.functions.unregistered(key);
          if (wasRegistered) await unlessItDied(this.#options.client.unregister(key), 'unknown-function');
        });
        return;
      case 'preload':
        this.#options.onPinned(fn.version);
        return;
      case 'retry at': {
        const waitMs = Math.max(0, Math.ceil(effect.atMs - this.#now()));
        setTimeout(() => this.tell(key, { kind: 'pause over' }), waitMs).unref();
        return;
      }
    }
  }

  async #work(effect: Extract<FunctionEffect, { attempt: number }>, fn: GpuFunction): Promise<void> {
    const { key, attempt, isAlone } = effect;
    const { signal } = fn.overtaken;
    const isStale = (): boolean =>
      signal.aborted || this.#isClosed || this.#table.records.get(key)?.attempt !== attempt;
    const tell = (event: FunctionEvent): void => this.tell(key, event);
    const work = async (): Promise<void> => {
      const runtime = this.#runtimeOf(fn);
      if (isStale() || runtime === undefined) return;
      let called: InputShapes | undefined;
      try {
        if (effect.kind === 'bring back') return await this.#bringBack(fn, attempt);
        const trials = await this.#preparer.trialsOf(fn, runtime);
        called = trials[0] === fn.called ? fn.called : undefined;
        await this.#prepare(fn, { attempt, trials, called }, runtime, isStale);
      } catch (error) {
        if (isStale() || error instanceof StaleError) return;
        const reason = error instanceof Error ? error.message : String(error);
        const cause = causeOf(error);
        // The sizes may be the cause.
        if (cause !== 'process' && isOpen(fn))
          this.#sizeless(fn, { attempt, called }, { reason, inputs: [], isOfRoom: cause === 'room' });
        else tell({ kind: 'failed', attempt, cause, reason });
      }
    };
    await this.#registering.use(work, isAlone);
  }

  async #bringBack({ version, shapes, joining }: GpuFunction, attempt: number): Promise<void> {
    const { key } = version;
    this.tell(key, { kind: 'stage', attempt, stage: 'registering', isInHand: true });
    await this.#options.client.registerAgain(key);
    this.#runtime?.scheduler.functions.registered(version);
    shapes.lost();
    joining.timings = 0;
    this.tell(key, { kind: 'brought back', attempt });
  }

  async #prepare(
    fn: GpuFunction,
    { attempt, trials, called }: Attempt & { readonly trials: Trials },
    runtime: GpuRuntime,
    isStale: () => boolean,
  ): Promise<void> {
    const { version } = fn;
    const { key } = version;
    const stop = (): void => {
      if (isStale()) throw new StaleError(`the preparation of ${key} was overtaken`);
    };
    const keep = async ({ plans, shapes }: PreparedPlans, known?: InputShapes): Promise<void> => {
      await writePlans(join(this.#options.dataDir, 'plans'), key, plans);
      stop();
      fn.plans = plans;
      fn.sizing = sizingOf(shapes);
      if (known !== undefined) fn.shapes = knownShapesOf(version, shapes);
    };
    const { signal } = fn.overtaken;
    const prepared = await this.#preparer.prepare(version, runtime, trials, {
      stage: this.#stage(fn, attempt, stop),
      registered: (layers) => {
        stop();
        runtime.scheduler.functions.registered(version, layers);
      },
      unregistered: () => {
        stop();
        runtime.scheduler.functions.unregistered(key);
      },
      estimated: async (estimate, source) => {
        stop();
        await keep(estimate, estimate.shapes);
        this.tell(key, { kind: 'planned', attempt, estimated: source });
        this.#options.logger.info({ function: key, plan: source }, 'planned until it is measured');
      },
      measuring: async (work) => {
        stop();
        this.tell(key, { kind: 'stage', attempt, stage: 'measuring', isInHand: false });
        return await Promise.race([overtaken(signal), this.#measuring.use(async () => (stop(), await work()))]);
      },
    });
    stop();
    switch (prepared.kind) {
      case 'planned':
        await keep(prepared, prepared.shapes);
        fn.difference = prepared.difference;
        this.tell(key, { kind: 'planned', attempt });
        return;
      case 'undecided':
        await keep(prepared);
        this.tell(key, { kind: 'undecided', attempt, reason: prepared.reason });
        return;
      case 'unsized':
        if (isOpen(fn) || prepared.inputs.length > 0) this.#sizeless(fn, { attempt, called }, prepared);
        else this.tell(key, { kind: 'unfit', attempt, reason: prepared.reason });
        return;
      case 'disagreed':
        this.tell(key, prepared);
        return;
      case 'unfit':
        this.tell(key, { kind: 'unfit', attempt, reason: prepared.reason });
    }
  }

  /**
   * There was no program for guessed sizes, or for those of a call: the next call with other sizes decides. After each
   * call in vain twice as many calls pass.
   */
  #sizeless(fn: GpuFunction, { attempt, called }: Attempt, { reason, inputs, isOfRoom = false }: Failure): void {
    const { version } = fn;
    const values = called === undefined ? [] : [...sizingOf(called)];
    // Without the values that decide about them, no sizes were tried.
    const isTried = inputs.length === 0 || values.length > 0;
    // An estimated plan made some ready, which the process no longer has.
    if (fn.shapes.any !== undefined) fn.shapes = knownShapesOf(version);
    if (called === undefined) fn.isGuessInVain = true;
    else if (isTried) {
      if (!isOfRoom) fn.shapes.refused(called, reason);
      fn.shapes.undecided();
    }
    const next = fn.called;
    fn.called = undefined;
    const tried = isTried ? { reason: called === undefined ? `${reason} (the sizes were guessed)` : reason } : {};
    const ofRoom = isOfRoom ? { isOfRoom: true as const } : {};
    const waitsFor = inputs.length === 0 ? values : inputs;
    this.tell(version.key, { kind: 'unsized', attempt, inputs: waitsFor, ...tried, ...ofRoom });
    // A call came meanwhile.
    if (next !== undefined && next !== called && waitsFor.length === 0) this.calls.size(fn, next);
  }

  #stage(fn: GpuFunction, attempt: number, stop: () => void) {
    return async (stage: Stage, isInHand: boolean): Promise<void> => {
      stop();
      fn.isRegistered = true;
      this.tell(fn.version.key, { kind: 'stage', attempt, stage, isInHand });
      // Layers loaded under an estimated plan are evicted before the layers are measured.
      await fn.retracted;
      stop();
    };
  }

  /** After all earlier work for this function. */
  #enqueue(fn: GpuFunction, work: () => Promise<void>): void {
    fn.work = fn.work.then(work).catch((error: unknown) => {
      if (this.#isClosed) return;
      const { key } = fn.version;
      this.#options.logger.warn({ err: error, function: key }, 'background work for the GPUs failed');
    });
    this.#track(fn.work);
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => {
      this.#running.delete(tracked);
      this.#wake();
    });
    this.#running.add(tracked);
  }

  async #until(isSo: () => boolean): Promise<void> {
    while (!this.#isClosed && !isSo()) await new Promise<void>((resolve) => this.#watchers.push(resolve));
  }

  #wake(): void {
    for (const watcher of this.#watchers.splice(0)) watcher();
  }
}

function overtaken(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = (): void => reject(new StaleError('the measurement was overtaken'));
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
  });
}

/** The preparation of a function. */
interface Attempt {
  readonly attempt: number;
  /** The sizes that it is prepared for, if they are a call's. */
  readonly called: InputShapes | undefined;
}

interface Failure {
  readonly reason: string;
  /** Inputs whose values decide about sizes. */
  readonly inputs: readonly string[];
  readonly isOfRoom?: boolean;
}

/** Whether its calls may have different sizes. */
const isOpen = ({ version: { metadata }, sizing }: GpuFunction): boolean =>
  sizing.size > 0 || metadata?.inputs.some(({ shape }) => shape.includes(-1)) === true;

function causeOf(error: unknown): FailureCause {
  if (isOfProcess(error)) return 'process';
  return error instanceof GpuError && isOfRoom(error) ? 'room' : 'function';
}
