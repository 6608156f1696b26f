/**
 * The live shell around the scheduler: events go in with their time, actions are carried out by the GPU process. The simulator is
 * the other shell around the same scheduler.
 *
 * What must hold: each invocation is resolved exactly once; what the scheduler was not told of has not happened.
 */
import {
  checkLadder,
  rungNamed,
  rungsWithin,
  Scheduler,
  type Action,
  type LoadOrder,
  type OfferSheet,
  type SchedulerEvent,
  type Start,
} from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { GpuError } from '../../gpu/index.ts';
import { BusyShare } from './busy.ts';
import { Correction } from './correction.ts';
import { GiveBacks } from './give-backs.ts';
import { Orders, type Order } from './orders.ts';
import type { FunctionPlans } from './plan-book.ts';
import { idleLongestFirst } from './room.ts';
import type { Pending, ShellFunction } from './shell-state.ts';
import {
  arrivalOf,
  toSchedulerPriority,
  type GpuOutcome,
  type GpuWish,
  type OwnCause,
  type ShellCounts,
  type ShellOptions,
  type ShellResident,
} from './shell-types.ts';
import { Wakes } from './wakes.ts';
import { Tally } from './tally.ts';

const cancelled = (): GpuError => new GpuError('cancelled', 'the client is gone');

const isOutOfMemory = (error: unknown): boolean => error instanceof GpuError && error.code === 'out-of-memory';

/** The pool's prediction is told to the scheduler when it has changed by this share. */
const cpuChange = 0.2;

export class GpuShell {
  readonly #options: ShellOptions;
  readonly #scheduler: Scheduler;
  readonly #now: () => number;
  readonly #functions = new Map<string, ShellFunction>();
  readonly #byIndex: (ShellFunction | undefined)[] = [];
  readonly #freeIndices: number[] = [];
  readonly #pending = new Map<number, Pending>();
  readonly #freeIds: number[] = [];
  #nextId = 0;
  readonly #orders = new Orders();
  readonly #giveBacks: GiveBacks;
  readonly #wakes: Wakes;
  #isUp = true;
  #closed = false;
  /** In place of the scheduler's, while the shell has something evicted for a cause of its own. */
  #ownCause: OwnCause | undefined;
  readonly #tally = new Tally();
  readonly #busy: readonly BusyShare[];

  constructor(options: ShellOptions) {
    this.#options = options;
    const { gpus, policy, cpuCores } = options;
    this.#scheduler = new Scheduler({ gpus, policy, cpuCores });
    this.#now = options.now ?? ((): number => performance.now());
    this.#wakes = new Wakes(this.#now, () => this.#tell({ kind: 'wake' }));
    this.#giveBacks = new GiveBacks(gpus.length, (gpu, key, error) => {
      if (this.#isUp) options.onDefect?.(`${key} could not give back bytes of GPU ${gpu}: ${String(error)}`);
    });
    this.#busy = gpus.map(() => new BusyShare());
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  get counts(): ShellCounts {
    return this.#tally.counts();
  }

  /** Share of the latest seconds in which the GPU executed, loads that executions waited for included. */
  utilization(gpu: number): number {
    return this.#busy[gpu]?.share(this.#now()) ?? 0;
  }

  /** Whether the function can run on a GPU. */
  has(key: string): boolean {
    return this.#functions.has(key);
  }

  plansOf(key: string): FunctionPlans | undefined {
    return this.#functions.get(key)?.plans;
  }

  /** What the scheduler goes by now. */
  sheetOf(key: string): OfferSheet | undefined {
    return this.#functions.get(key)?.sheet;
  }

  /** A function's number with the scheduler, and the time since its latest invocation; undefined before the first. */
  placeOf(key: string): { readonly index: number; readonly idleMs: number | undefined } | undefined {
    const fn = this.#functions.get(key);
    return fn && { index: fn.index, idleMs: fn.lastUseMs === 0 ? undefined : this.#now() - fn.lastUseMs };
  }

  /** Makes a function known, or gives it new plans, another SLO, a pin. @throws RangeError where its plans are no ladder */
  offer(key: string, plans: FunctionPlans, settings: Pick<OfferSheet, 'sloMs' | 'priority' | 'pinned'>): void {
    const { sloMs, pinned } = settings;
    const priority = toSchedulerPriority(settings.priority);
    for (const offer of plans.offers) checkLadder(key, offer);
    const cpu = this.#options.cpuOffer(key);
    const sheet: OfferSheet = { gpus: plans.offers, cpu, sloMs, priority, pinned };
    const known = this.#functions.get(key);
    if (known !== undefined) {
      // Other plans have another profile; what was observed of the old one says nothing of it.
      if (known.plans !== plans) known.correction = new Correction();
      known.plans = plans;
      known.sheet = { ...sheet, gpus: known.correction.offers(plans.offers) };
      if (known.withdrawal === undefined)
        this.#tell({ kind: 'sheet-changed', functionIndex: known.index, sheet: known.sheet });
      return;
    }
    const index = this.#freeIndices.pop() ?? this.#byIndex.length;
    const fn: ShellFunction = {
      index,
      key,
      plans,
      sheet,
      correction: new Correction(),
      lastUseMs: 0,
      shrinks: 0,
      growths: 0,
      sinceMs: [],
      loadOrderedMs: [],
      withdrawal: undefined,
    };
    this.#functions.set(key, fn);
    this.#byIndex[index] = fn;
    this.#tell({ kind: 'function-added', functionIndex: index, sheet });
  }

  /** Forgets a function; what waits for it is run by the CPU pool, what it has on GPUs is given back. */
  async remove(key: string): Promise<void> {
    const fn = this.#functions.get(key);
    if (fn === undefined) return;
    this.#functions.delete(key);
    // Who runs still reads its weights; they are given back behind it.
    await this.#withdraw(fn);
    this.#byIndex[fn.index] = undefined;
    this.#freeIndices.push(fn.index);
  }

  /**
   * Gives back what the function has on GPUs; it stays known. What runs is finished, what waits is run by the CPU pool.
   * Resolves when the bytes are free.
   */
  async unload(key: string): Promise<void> {
    const fn = this.#functions.get(key);
    if (fn !== undefined) await this.#withdraw(fn);
  }

  /** Has an invocation run on a GPU whatever the CPU pool promises, so that the function's weights are there afterwards. */
  async preload(key: string, inputs: readonly Tensor[]): Promise<GpuOutcome> {
    const fn = this.#functions.get(key);
    await fn?.withdrawal;
    if (fn === undefined || this.#functions.get(key) !== fn) return this.invoke(key, inputs);
    const { sheet } = fn;
    // Without a bound on time every plan would do; it is to be there under one that meets its SLO.
    const gpus = sheet.gpus.map((offer) => offer && rungsWithin(offer, sheet.sloMs));
    const gpusOnly: OfferSheet = { ...sheet, gpus, cpu: null, sloMs: Infinity };
    this.#tell({ kind: 'sheet-changed', functionIndex: fn.index, sheet: gpusOnly });
    const outcome = this.#arrive(fn, inputs, undefined);
    this.#tell({ kind: 'sheet-changed', functionIndex: fn.index, sheet });
    return outcome;
  }

  /**
   * Shows an invocation to the scheduler. Resolves when it has run, or is to run elsewhere.
   *
   * @throws GpuError where the run failed for a reason that no other processor would mend, or the caller is gone
   */
  invoke(key: string, inputs: readonly Tensor[], signal?: AbortSignal, wish: GpuWish = {}): Promise<GpuOutcome> {
    const fn = this.#functions.get(key);
    if (fn === undefined || this.#closed || fn.withdrawal !== undefined) {
      const reason =
        fn?.withdrawal === undefined ? 'the function is not on the GPUs' : 'the function is being unloaded';
      return Promise.resolve({ kind: 'offload', reason, done: () => undefined });
    }
    if (signal?.aborted === true) return Promise.reject(cancelled());
    this.#refreshCpu(fn);
    return this.#arrive(fn, inputs, signal, wish);
  }

  #arrive(
    fn: ShellFunction,
    inputs: readonly Tensor[],
    signal: AbortSignal | undefined,
    wish: GpuWish = {},
  ): Promise<GpuOutcome> {
    fn.lastUseMs = this.#now();
    return new Promise((resolve, reject) => {
      const id = this.#freeIds.pop() ?? this.#nextId++;
      const leave = (): void => this.#depart(pending);
      const pending: Pending = {
        id,
        fn,
        inputs,
        arrivalMs: this.#now(),
        signal,
        wish,
        resolve: (outcome) => {
          signal?.removeEventListener('abort', leave);
          resolve(outcome);
        },
        reject: (error) => {
          signal?.removeEventListener('abort', leave);
          reject(error instanceof Error ? error : new Error(String(error)));
        },
        stage: 'waiting',
      };
      this.#pending.set(id, pending);
      signal?.addEventListener('abort', leave, { once: true });
      this.#tell(arrivalOf(id, fn.index, wish));
    });
  }

  /** The GPU process is gone: everything on it is lost, and what it had in hand is placed anew. */
  lost(): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    for (const gpu of this.#options.gpus.keys()) this.#tell({ kind: 'gpu-lost', gpu });
    this.#orders.lost();
    this.#giveBacks.lost();
  }

  /** A new GPU process has all functions again, cold. */
  back(): void {
    if (this.#isUp) return;
    this.#isUp = true;
    for (const gpu of this.#options.gpus.keys()) this.#tell({ kind: 'gpu-back', gpu });
  }

  residentBytes(gpu: number): number {
    return this.#scheduler.residentBytes(gpu);
  }

  /** Invocations that wait for a GPU. */
  get waitingCount(): number {
    return this.#options.gpus.reduce((sum, _, gpu) => sum + this.#scheduler.waitingCount(gpu), 0);
  }

  /** What a GPU has of a function. */
  resident(key: string, gpu: number): ShellResident {
    const fn = this.#functions.get(key);
    const resident = fn && this.#scheduler.residentOffer(fn.index, gpu);
    const offer = resident ?? fn?.sheet.gpus[gpu];
    if (fn === undefined || !offer) return { prefix: 0, whole: 0, bytes: 0, rung: undefined };
    const prefix = this.#scheduler.residentPrefix(fn.index, gpu);
    return {
      prefix,
      whole: offer.prefixBytes.length - 1,
      bytes: offer.prefixBytes[prefix] ?? 0,
      rung: resident?.plan,
    };
  }

  /** How often a function went to a smaller plan for room, and to a larger one again. */
  planChanges(key: string): { readonly shrinks: number; readonly growths: number } {
    return this.#functions.get(key) ?? { shrinks: 0, growths: 0 };
  }

  /** Whether something of the function is on its way to the GPU. */
  isLoading(key: string, gpu: number): boolean {
    const index = this.#functions.get(key)?.index;
    return index !== undefined && this.#orders.has(index, gpu);
  }

  keys(): IterableIterator<string> {
    return this.#functions.keys();
  }

  /** Takes nothing more; what waits is run by the CPU pool. */
  close(): void {
    this.#closed = true;
    this.#wakes.close();
    this.lost();
  }

  #tell(event: SchedulerEvent): void {
    // A copy: carrying an action out may tell the scheduler something while the list is being gone through.
    const actions = [...this.#scheduler.handle(event, this.#now())];
    for (const action of actions) this.#carryOut(action);
  }

  #carryOut(action: Action): void {
    switch (action.kind) {
      case 'run':
        void this.#run(action);
        return;
      case 'load':
        void this.#load(action);
        return;
      case 'grow':
        void this.#grow(action);
        return;
      case 'shrink':
        this.#shrink(action);
        return;
      case 'evict':
        this.#evict(action);
        return;
      case 'abandon':
        this.#orders.abandon(action.functionIndex, action.gpu);
        return;
      case 'offload': {
        const pending = this.#pending.get(action.invocation);
        if (pending !== undefined) this.#offloaded(pending, this.#whyOffloaded(pending));
        return;
      }
      case 'wait': {
        const pending = this.#pending.get(action.invocation);
        if (pending !== undefined) pending.stage = 'waiting';
        return;
      }
      case 'wake':
        this.#wakes.at(action.atMs);
        return;
      case 'shed': {
        this.#tally.shed++;
        const pending = this.#end(action.invocation);
        this.#freeIds.push(action.invocation);
        pending?.resolve({ kind: 'shed', reason: 'no GPU would finish within the SLO' });
        return;
      }
      case 'fail': {
        const pending = this.#end(action.invocation);
        this.#freeIds.push(action.invocation);
        const reason = action.reason === 'removed' ? 'the function was changed' : 'no GPU is up that can hold it';
        pending?.resolve({ kind: 'offload', reason, done: () => undefined });
        return;
      }
    }
  }

  async #run(action: Extract<Action, { kind: 'run' }>): Promise<void> {
    const { invocation, functionIndex, gpu, load } = action;
    const pending = this.#pending.get(invocation);
    const fn = this.#byIndex[functionIndex];
    if (pending === undefined || fn === undefined) {
      this.#options.onDefect?.(`the scheduler runs invocation ${invocation}, which nobody waits for`);
      return;
    }
    pending.stage = 'running';
    this.#tally.starts[action.start]++;
    const order = this.#orders.open(functionIndex, gpu);
    let outcome: GpuOutcome | undefined;
    let failure: unknown;
    for (let attempt = 0; attempt < 2 && outcome === undefined && !order.abandoned; attempt++) {
      try {
        outcome = await this.#attempt(pending, fn, action, order);
      } catch (error) {
        failure = error;
        // Fragments, another program on the GPU: more room than the scheduler thought necessary helps once, or not at all.
        if (!isOutOfMemory(error) || attempt > 0 || order.abandoned) break;
        await this.#makeRoom(fn, gpu);
      }
    }
    this.#orders.close(order);
    // The scheduler has placed the invocation anew; this run has never been.
    if (order.abandoned) return;
    if (load !== null) this.#tell({ kind: 'loaded', gpu, functionIndex });
    this.#end(invocation);
    if (outcome !== undefined) pending.resolve(outcome);
    else if (failure instanceof GpuError && (failure.code === 'cancelled' || failure.code === 'invalid')) {
      pending.reject(failure);
    } else {
      const reason = failure instanceof Error ? failure.message : String(failure);
      pending.resolve({ kind: 'offload', reason: `gpu${gpu} failed: ${reason}`, done: () => undefined });
    }
    this.#finished(invocation);
    // What has arrived of it is not known any more; who waits for it would meet the same.
    const isOfInput = failure instanceof GpuError && failure.code === 'invalid' && load === null;
    if (outcome === undefined && !isOfInput) await this.#withdraw(fn);
  }

  async #attempt(
    pending: Pending,
    fn: ShellFunction,
    { gpu, start, load, predictedEndMs, plan: rung }: Extract<Action, { kind: 'run' }>,
    order: Order,
  ): Promise<GpuOutcome> {
    const mode = load?.way.mode ?? fn.plans.mode;
    if (load !== null) fn.loadOrderedMs[gpu] = this.#now();
    fn.sinceMs[gpu] ??= this.#now();
    await this.#giveBacks.over(gpu);
    if (order.abandoned) throw cancelled();
    const startedMs = this.#now();
    const result = await this.#options.runner.run(fn.key, pending.inputs, {
      gpu,
      plan: fn.plans.planOf(gpu, mode, rung),
      ...(rung === undefined ? {} : { rung }),
      // What a cold start did, layer by layer, is kept for who asks later.
      trace: start !== 'warm',
      signal: order.abort.signal,
    });
    const { waitMs, gpuMs } = result.timings;
    this.#busy[gpu]?.add(this.#now(), gpuMs);
    this.#correct(fn, gpu, rung, result.start, load, gpuMs);
    const offer = fn.sheet.gpus[gpu];
    const warmMs = Math.min(offer ? rungNamed(offer, rung).warmMs : gpuMs, gpuMs);
    // Of a load that was ordered while the invocation waited for the GPU it has waited from then on.
    const orderedMs = start === 'warm' ? startedMs : Math.max(pending.arrivalMs, fn.loadOrderedMs[gpu] ?? startedMs);
    const loadMs = startedMs - orderedMs + (start === 'warm' && result.start === 'warm' ? 0 : gpuMs - warmMs);
    return {
      kind: 'ran',
      result,
      gpu,
      start,
      mode,
      rung,
      queueMs: orderedMs - pending.arrivalMs + waitMs,
      loadMs,
      inferMs: start === 'warm' && result.start === 'warm' ? gpuMs : warmMs,
      predictedMs: predictedEndMs - pending.arrivalMs,
    };
  }

  /** A start whose load began before it, or that found a part, says nothing of a cold one. */
  #correct(
    fn: ShellFunction,
    gpu: number,
    rung: string | undefined,
    found: Start,
    load: LoadOrder | null,
    gpuMs: number,
  ): void {
    const top = fn.plans.offers[gpu];
    const offer = top && rungNamed(top, rung);
    if (offer === undefined || found === 'partial' || (found === 'cold' && load === null)) return;
    const way = offer.ways.find(({ mode }) => mode === load?.way.mode) ?? offer.ways[0];
    const profiledMs = found === 'warm' ? offer.warmMs : (way.coldMs[0] ?? 0);
    if (!fn.correction.observe(found, gpuMs, profiledMs)) return;
    fn.sheet = { ...fn.sheet, gpus: fn.correction.offers(fn.plans.offers) };
    if (fn.withdrawal === undefined && this.#functions.get(fn.key) === fn) {
      this.#tell({ kind: 'sheet-changed', functionIndex: fn.index, sheet: fn.sheet });
    }
  }

  /** For an invocation that waits, or for a larger rung: then what runs meanwhile needs none of it. */
  async #load(action: Extract<Action, { kind: 'load' | 'grow' }>): Promise<void> {
    const { kind, functionIndex, gpu, load, plan: rung } = action;
    const fn = this.#byIndex[functionIndex];
    if (fn === undefined) return;
    const order = this.#orders.open(functionIndex, gpu);
    if (kind === 'load') fn.loadOrderedMs[gpu] = this.#now();
    try {
      await this.#giveBacks.over(gpu);
      if (order.abandoned) throw cancelled();
      fn.sinceMs[gpu] ??= this.#now();
      const plan = fn.plans.planOf(gpu, load.way.mode, rung);
      const { signal } = order.abort;
      await this.#options.runner.load(fn.key, { gpu, plan, signal, ...(rung === undefined ? {} : { rung }) });
    } catch {
      // The run behind it finds what is missing, and its own error if there is one.
    }
    this.#orders.close(order);
    if (!order.abandoned) this.#tell({ kind: 'loaded', gpu, functionIndex });
  }

  async #grow(action: Extract<Action, { kind: 'grow' }>): Promise<void> {
    const fn = this.#byIndex[action.functionIndex];
    if (fn === undefined) return;
    this.#tally.growths++;
    fn.growths++;
    await this.#load(action);
  }

  #evict({ functionIndex, gpu, prefix, bytes, cause: schedulersCause }: Extract<Action, { kind: 'evict' }>): void {
    const fn = this.#byIndex[functionIndex];
    if (fn === undefined) return;
    const nowMs = this.#now();
    const cause = this.#ownCause ?? schedulersCause;
    this.#tally.evicted(cause);
    this.#options.onEvicted?.({ key: fn.key, gpu, bytes, cause, ageMs: nowMs - (fn.sinceMs[gpu] ?? nowMs) });
    if (prefix === 0) fn.sinceMs[gpu] = undefined;
    // With the process everything has gone already.
    if (!this.#isUp) return;
    this.#giveBacks.order(gpu, fn.key, () => this.#options.runner.trim(fn.key, gpu, prefix));
  }

  #shrink({ functionIndex, gpu, plan }: Extract<Action, { kind: 'shrink' }>): void {
    const fn = this.#byIndex[functionIndex];
    if (fn === undefined) return;
    this.#tally.shrinks++;
    fn.shrinks++;
    this.#giveBacks.order(gpu, fn.key, () => this.#options.runner.keep(fn.key, gpu, plan));
  }

  /** Room for weights that the scheduler does not know of: idle functions go until so many bytes are free, or none is left to go. */
  async freeBytes(gpu: number, bytes: number): Promise<void> {
    const capacityBytes = this.#options.gpus[gpu]?.capacityBytes ?? 0;
    await this.#letGo(gpu, 'profiling', () => capacityBytes - this.#scheduler.residentBytes(gpu) >= bytes);
  }

  /** More than the scheduler thought necessary: two functions. */
  async #makeRoom(asking: ShellFunction, gpu: number): Promise<void> {
    await this.#letGo(gpu, 'out-of-memory', (gone) => gone === 2, asking);
  }

  async #letGo(
    gpu: number,
    cause: OwnCause,
    isEnough: (gone: number) => boolean,
    asking?: ShellFunction,
  ): Promise<void> {
    const busy = new Set([...this.#pending.values()].map(({ fn }) => fn.index));
    for (const functionIndex of this.#orders.functionIndices()) busy.add(functionIndex);
    const isIdleThere = (index: number): boolean => !busy.has(index) && this.#scheduler.residentPrefix(index, gpu) > 0;
    for (const [gone, { index, sheet }] of idleLongestFirst(this.#functions.values(), isIdleThere, asking).entries()) {
      if (isEnough(gone)) break;
      // Without an offer for this GPU the scheduler lets go of what is there; nothing else of the function changes.
      const gpus = sheet.gpus.map((offer, each) => (each === gpu ? null : offer));
      this.#ownCause = cause;
      this.#tell({ kind: 'sheet-changed', functionIndex: index, sheet: { ...sheet, gpus } });
      this.#ownCause = undefined;
      this.#tell({ kind: 'sheet-changed', functionIndex: index, sheet });
    }
    await this.#giveBacks.over(gpu);
  }

  /** Takes everything of the function from the GPUs; afterwards the scheduler has it again, cold, unless it was removed. */
  #withdraw(fn: ShellFunction): Promise<void> {
    fn.withdrawal ??= this.#takeOut(fn);
    return fn.withdrawal;
  }

  async #takeOut(fn: ShellFunction): Promise<void> {
    this.#tell({ kind: 'function-removed', functionIndex: fn.index });
    await this.#orders.over(fn.index);
    await this.#giveBacks.allOver();
    fn.withdrawal = undefined;
    if (this.#functions.get(fn.key) !== fn) return;
    this.#tell({ kind: 'function-added', functionIndex: fn.index, sheet: fn.sheet });
  }

  #offloaded(pending: Pending, reason: string): void {
    const { id } = pending;
    this.#end(id);
    this.#tally.offloaded++;
    let isDone = false;
    pending.resolve({
      kind: 'offload',
      reason,
      done: () => {
        if (isDone) return;
        isDone = true;
        this.#finished(id);
      },
    });
  }

  #whyOffloaded({ fn, wish }: Pending): string {
    if (!this.#isUp) return 'the GPU process is down';
    const waiting = this.waitingCount;
    return waiting === 0
      ? `gpu would finish after the SLO of ${Math.round(wish.sloMs ?? fn.sheet.sloMs)} ms`
      : `gpu would finish after the SLO, ${waiting} wait`;
  }

  /**
   * The caller is gone: who waits leaves. What runs is finished: a run takes milliseconds, and the weights that it brings
   * are where the scheduler believes them to be.
   */
  #depart(pending: Pending): void {
    if (pending.stage === 'waiting' && this.#pending.has(pending.id)) {
      this.#end(pending.id);
      this.#tell({ kind: 'departed', invocation: pending.id });
      this.#freeIds.push(pending.id);
      pending.reject(cancelled());
    }
  }

  #end(invocation: number): Pending | undefined {
    const pending = this.#pending.get(invocation);
    this.#pending.delete(invocation);
    if (pending !== undefined) pending.stage = 'over';
    return pending;
  }

  #finished(invocation: number): void {
    this.#tell({ kind: 'finished', invocation });
    this.#freeIds.push(invocation);
  }

  /** The scheduler's picture of the pool follows the prediction, not every flicker of it. */
  #refreshCpu(fn: ShellFunction): void {
    const cpu = this.#options.cpuOffer(fn.key);
    const before = fn.sheet.cpu;
    const isClose =
      before !== null &&
      before.cores === cpu.cores &&
      Math.abs(cpu.latencyMs - before.latencyMs) <= cpuChange * before.latencyMs;
    if (isClose) return;
    fn.sheet = { ...fn.sheet, cpu };
    this.#tell({ kind: 'sheet-changed', functionIndex: fn.index, sheet: fn.sheet });
  }
}
