/**
 * The live host around the scheduler: every invocation of the host is an event, and the scheduler's actions are
 * carried out at the chosen place. The simulator drives the same scheduler in the same way.
 *
 * Each invocation ends exactly once, and the scheduler knows only the events that it gets.
 */
import type { IdleSession, PoolFacts, RoomWanted } from '../cpu/index.ts';
import {
  named,
  type Action,
  type CpuPlace,
  type Given,
  type GpuId,
  type HostTier,
  type SchedulerEvent,
  type SchedulerGpu,
} from '../schedule/index.ts';
import type { Tensor } from '../tensor/index.ts';
import { beneficiaryOf, Evictions } from './evictions.ts';
import { GpuPlace } from './gpu-place.ts';
import { HostPlace, type Holding, type HostRunner } from './host-place.ts';
import { Invocations } from './invocations.ts';
import { noSession, sheetOf } from './live-function.ts';
import { LiveFunctions } from './live-functions.ts';
import { LiveViews, LiveState, type Scheduled } from './live-views.ts';
import type { GpuRunner, InvocationTerms, LiveSchedulerOptions, Placed, RanElsewhere, RanOnGpu } from './types.ts';

export class LiveScheduler extends LiveViews {
  /** What each function may use. */
  readonly functions: LiveFunctions;
  readonly #invocations: Invocations;
  readonly #evictions: Evictions;

  constructor(options: LiveSchedulerOptions) {
    const state = new LiveState(options, (event) => this.#tell(event));
    super(state);
    this.functions = new LiveFunctions(state);
    this.#invocations = new Invocations(state, this.functions);
    this.#evictions = new Evictions(state);
    for (const place of state.others) place.follow((to) => state.tell({ kind: 'place-changed', place: place.id, to }));
  }

  /**
   * Adds the GPUs once they are known. Before that the host had none.
   *
   * @param host left out: everything is in host memory
   */
  setGpus(gpus: readonly SchedulerGpu[], runner: GpuRunner, host?: HostTier & { readonly runner: HostRunner }): void {
    const { onGpuReport, onDefect, isForCaller = (_error): _error is Error => false } = this.state.options;
    this.state.gpus = gpus;
    this.state.place = new GpuPlace({
      gpuCount: gpus.length,
      runner,
      now: this.state.now,
      tell: (event) => this.state.tell(event),
      onCorrected: (fn) => this.functions.observed(fn),
      onArrived: (fn, gpu) => onGpuReport?.(fn.key, { kind: 'arrived', gpu }),
      makeRoom: (gpu, asking) => this.#evictions.makeRoom(gpu, asking),
      holdInHost: async (fn) => {
        const held = await this.state.host?.place.hold(fn).catch(() => undefined);
        return typeof held === 'object' ? held : undefined;
      },
      isForCaller,
      onDefect: (message) => onDefect?.(message),
    });
    this.state.place.isUp = true;
    if (host !== undefined) this.#setHost(host);
    this.state.scheduler = this.state.newScheduler();
    for (const fn of this.state.functions.values()) {
      fn.sheet = sheetOf(fn, gpus.length);
      this.state.tell({ kind: 'function-added', functionIndex: fn.index, sheet: fn.sheet });
      if (fn.session.bytes > 0) this.state.tell({ kind: 'session', functionIndex: fn.index, ...fn.session });
    }
    for (const pending of this.state.pending) if (pending?.stage === 'waiting') this.#invocations.arrive(pending);
  }

  #setHost({ runner, ...tier }: HostTier & { readonly runner: HostRunner }): void {
    const { onGpuReport, onDefect } = this.state.options;
    const place = new HostPlace({
      runner,
      tell: (event) => this.state.tell(event),
      isHere: (functionIndex) => this.state.scheduler.isInHostMemory(functionIndex),
      fits: (functionIndex) => this.state.scheduler.fitsHostMemory(functionIndex),
      onFailed: (fn, error) => {
        onGpuReport?.(fn.key, { kind: 'run failed', error });
        // Its calls go elsewhere.
        void this.functions.withdraw(fn, 'failed-run');
      },
      onReleased: (fn) => {
        if (fn.isRemoved) this.functions.freeIfOver(fn);
      },
      onDefect: (message) => onDefect?.(message),
    });
    place.isUp = true;
    this.state.host = { tier, place };
  }

  /** Pinned host memory has more or less room for weights than before. */
  resizeHost(capacityBytes: number): void {
    const { host } = this.state;
    if (host === undefined || capacityBytes === host.tier.capacityBytes) return;
    host.tier = { ...host.tier, capacityBytes };
    this.state.tell({ kind: 'host-changed', capacityBytes });
  }

  /** Has a function in host memory for work that the scheduler did not order, until the result is disposed of. */
  async holdInHost(key: string): Promise<Holding> {
    const { host, functions } = this.state;
    const fn = functions.get(key);
    if (fn === undefined) return 'gone';
    return host === undefined ? { [Symbol.dispose]: () => undefined } : await host.place.hold(fn);
  }

  /** The GPU process is gone: everything on it is lost, and its runs and loads are placed again. */
  lost(): void {
    const { place, host } = this.state;
    if (place?.isUp !== true) return;
    place.isUp = false;
    host?.place.lost();
    for (const gpu of this.state.gpus.keys()) this.state.tell({ kind: 'gpu-lost', gpu });
    place.lost();
    if (host === undefined) return;
    // They are read again once the next process knows them.
    this.functions.allUnregistered();
    this.state.tell({ kind: 'host-lost' });
  }

  /** A new GPU process is up. */
  back(): void {
    if (this.state.place === undefined || this.state.place.isUp) return;
    this.state.place.isUp = true;
    if (this.state.host !== undefined) this.state.host.place.isUp = true;
    for (const gpu of this.state.gpus.keys()) this.state.tell({ kind: 'gpu-back', gpu });
  }

  setCpu(cpu: CpuPlace): void {
    const { cores, memoryBytes, takenBytes } = this.state.cpu ?? {};
    if (cpu.cores === cores && cpu.memoryBytes === memoryBytes && cpu.takenBytes === takenBytes) return;
    this.state.cpu = cpu;
    this.state.tell({ kind: 'place-changed', place: 'cpu', to: cpu });
  }

  /** What a function has on the CPU, whether or not the scheduler ordered it; 0 bytes: nothing. */
  session(key: string, { bytes, spares }: Pick<PoolFacts, 'bytes' | 'spares'>): void {
    const fn = this.state.functions.get(key);
    if (fn === undefined) return;
    fn.session = { bytes, spares };
    this.state.tell({ kind: 'session', functionIndex: fn.index, bytes, spares });
  }

  /** The CPU pools make a session that the scheduler did not order, and have no room for it. */
  roomWanted({ key, bytes, purpose }: RoomWanted): void {
    const fn = this.state.functions.get(key);
    if (fn !== undefined) this.#tell({ kind: 'room-wanted', functionIndex: fn.index, bytes, purpose }, key);
  }

  /** See `session-idle` of the scheduler's events. */
  sessionIdle({ key, isSpare }: IdleSession): void {
    const fn = this.state.functions.get(key);
    if (fn !== undefined) this.#tell({ kind: 'session-idle', functionIndex: fn.index, isSpare });
  }

  // Functions

  /** Registers a function with the scheduler, with the current offers of all places. */
  know({ key, settings }: Scheduled): void {
    const fn = this.functions.of(key, settings);
    if (this.functions.ask(fn)) this.functions.update(fn);
  }

  // Invocations

  /**
   * Asks for a place. Resolves when the invocation has run on a GPU, or may run elsewhere.
   *
   * @param tensors undefined if the model cannot run before its handler
   * @throws CpuError `cancelled`, `deadline-passed`, `queue-full`
   */
  submit(version: Scheduled, tensors: readonly Tensor[] | undefined, terms?: InvocationTerms): Promise<Placed> {
    return this.#invocations.submit(version, tensors, terms);
  }

  /** Runs it on a GPU even if other places promise more, so that its weights are there afterwards. */
  runOnGpu(version: Scheduled, tensors: readonly Tensor[]): Promise<RanOnGpu | RanElsewhere> {
    return this.#invocations.runOnGpu(version, tensors);
  }

  // The scheduler

  /** @param by the function that evictions on the CPU make room for, where no run begins with them */
  #tell(event: SchedulerEvent, by?: string): void {
    // Each event has its own list: carrying out an action may send the scheduler another event.
    const actions = this.state.scheduler.handle(event, this.state.now());
    for (let at = 0; at < actions.length; at++) this.#carryOut(actions[at]!, actions, at, by);
    this.state.host?.place.settle();
  }

  #carryOut(action: Action, actions: readonly Action[], at: number, by: string | undefined): void {
    switch (action.kind) {
      case 'run':
        this.#invocations.startOnGpu(action);
        return;
      case 'load':
      case 'grow': {
        const fn = this.state.byIndex[action.functionIndex];
        if (fn === undefined) return;
        if (action.kind === 'grow') {
          this.state.tally.growths++;
          fn.growths++;
        }
        void this.state.place?.load(action, fn);
        return;
      }
      case 'shrink': {
        const fn = this.state.byIndex[action.functionIndex];
        if (fn === undefined) return;
        this.state.tally.shrinks++;
        fn.shrinks++;
        this.state.place?.shrink(fn, action.gpu, action.plan);
        return;
      }
      case 'evict':
        this.#evictions.evict(action, this.state.byIndex[beneficiaryOf(actions, at, action.gpu)!]?.key);
        return;
      case 'abandon':
        this.state.place?.abandon(action.functionIndex, action.gpu);
        return;
      case 'run-beside':
        this.#invocations.lease(action);
        return;
      case 'make-session': {
        const key = this.state.byIndex[action.functionIndex]?.key;
        if (key !== undefined) void this.state.options.makeSession?.(key).then((made) => this.session(key, made));
        return;
      }
      case 'evict-cpu': {
        const fn = this.state.byIndex[action.functionIndex];
        if (fn === undefined) return;
        const isSpare = action.isSpare === true;
        if (!isSpare) fn.session = noSession;
        const isIdle = action.cause === 'idle';
        const beneficiary = isIdle ? undefined : (by ?? this.#loadsNext(actions, at));
        this.state.options.evictCpu?.({ key: fn.key, isSpare, isIdle, by: beneficiary });
        return;
      }
      case 'stage': {
        const fn = this.state.byIndex[action.functionIndex];
        if (fn !== undefined) void this.state.host?.place.stage(action, fn);
        return;
      }
      case 'evict-host': {
        // What a removed function had goes when the process forgets it.
        const fn = this.state.byIndex[action.functionIndex];
        if (fn !== undefined) this.state.host?.place.drop(action, fn);
        return;
      }
      case 'wait':
        this.#invocations.wait(action.invocation);
        return;
      case 'wake':
        this.#wakeAt(action.atMs);
        return;
      case 'shed':
        this.#invocations.shed(action);
        return;
      case 'fail':
        this.#invocations.fail(action.invocation, action.reason);
        return;
    }
  }

  /** The function that loads a session on the CPU after an eviction there. */
  #loadsNext(actions: readonly Action[], at: number): string | undefined {
    for (const action of actions.slice(at + 1))
      if (action.kind === 'run-beside' && action.place === 'cpu') return this.state.pending[action.invocation]?.fn.key;
    return undefined;
  }

  /** GPUs ask for instants independently. A timer may fire a little early, when none is due yet. */
  #wakeAt(atMs: number): void {
    const wake = (): void => {
      if (this.#invocations.isClosed) return;
      if (this.state.now() < atMs) this.#wakeAt(atMs);
      else this.#tell({ kind: 'wake' });
    };
    setTimeout(wake, Math.max(0, Math.ceil(atMs - this.state.now()))).unref();
  }

  /** Resolves when nothing runs, loads or waits on a GPU. */
  async gpusIdle(): Promise<void> {
    await this.state.place?.idle();
  }

  /** Room for a function that is to come without the scheduler's order: idle ones go until so many bytes are free. */
  freeBytes(gpu: Given<GpuId>, key: string, bytes: number): Promise<void> {
    return this.#evictions.freeBytes(named(gpu), key, bytes);
  }

  /** Takes nothing more. */
  close(): void {
    this.#invocations.isClosed = true;
    this.lost();
  }
}
