/**
 * The pool of one function: the calls that it was handed, and the list of instances that serves them (instance-list.ts),
 * which another list may replace (list-changes.ts).
 *
 * On demand, an instance is added when calls wait and no instance is idle or starting; so all calls that come while a
 * function is cold share one load. An instance that dies gives its calls back, to the front. A call that
 * has seen two instances die while running alone is not tried a third time: it may be what kills them. If two crash one
 * after the other, all calls are refused (conduct.ts).
 */
import type { Replica, RunOutcome } from '../instance/index.ts';
import {
  CpuError,
  type GiveUpCause,
  type InstanceSpec,
  type InvokeOptions,
  type LoadOptions,
  type PoolFacts,
  type PoolInput,
  type PoolLimits,
  type PoolResult,
  type PoolState,
  type Reconfiguration,
  type Stopped,
  stoppedText,
} from '../types.ts';
import { LatencyBook, Pace, type PoolConfiguration } from '../../schedule/index.ts';
import { Conduct } from './conduct.ts';
import { FunctionFacts, PoolLoad } from './facts.ts';
import { InstanceList } from './instance-list.ts';
import { ListChanges } from './list-changes.ts';
import type { ListOwner } from './list-owner.ts';
import { callsIn, offeredList } from './offer.ts';
import type { PoolResources } from './resources.ts';
import { makeTicket, type Ticket, answer, emptyTensor, endsInstances, survivors, LoadWaiters } from './ticket.ts';
import { WaitingCalls, whyGone } from './waiting-calls.ts';

export class Pool implements ListOwner {
  spec: InstanceSpec;
  #limits: PoolLimits;
  readonly resources: PoolResources;
  readonly waiting = new WaitingCalls((ticket, error) => {
    ticket.reject(error);
    this.#checkQuiet();
  });
  readonly pace = new Pace();
  readonly latency = new LatencyBook();
  readonly conduct = new Conduct();
  readonly facts = new FunctionFacts();
  readonly #load = new PoolLoad(performance.now());
  /** A joined run gave a call a wrong answer; each call runs alone now. */
  #isMixing = false;
  /** A call with an empty tensor ended two instances: ONNX Runtime aborts in an LSTM of no rows. */
  #diesOfEmpty = false;
  readonly #list: InstanceList;
  readonly #changes: ListChanges;
  readonly #loadWaiters = new LoadWaiters();
  #inFlight = 0;
  #pumpIsScheduled = false;
  #stopping: CpuError | undefined;
  #removed: CpuError | undefined;
  #quietWaiters: (() => void)[] = [];

  constructor(spec: InstanceSpec, limits: PoolLimits, resources: PoolResources) {
    this.spec = spec;
    this.#limits = limits;
    this.resources = resources;
    this.#list = new InstanceList(this);
    this.#changes = new ListChanges(this, this.#list);
  }

  get limits(): PoolLimits {
    return this.#limits;
  }

  set limits(limits: PoolLimits) {
    this.#limits = this.#isMixing ? { ...limits, batchMax: 1 } : limits;
  }

  /** Instances in memory: ready, loading, or about to end. */
  get instances(): number {
    return this.#list.slots.all.filter(({ replica }) => replica !== undefined).length;
  }

  /** What its sessions take, without those that will take over from them. */
  get bytes(): number {
    return this.#list.slots.bytes(this.resources.processes);
  }

  get needsFirst(): boolean {
    return this.#list.slots.ready === 0 && (this.waiting.length > 0 || this.#loadWaiters.length > 0);
  }

  state(): PoolState {
    const nowMs = performance.now();
    return {
      key: this.spec.key,
      instances: this.#list.slots.state(this.resources.processes),
      queueLength: this.waiting.length,
      inFlight: this.#inFlight,
      configuration: this.#list.configuration,
      starting: this.#list.slots.swap?.to,
      arrivalsPerSecond: this.#load.perSecond(nowMs),
      queueDepth: this.#load.depth(nowMs),
      startMs: this.facts.startMs,
    };
  }

  figures(): PoolFacts {
    const { slots, handOver } = this.#list;
    const isAlone = handOver.isToBeAlone(false);
    const ready = [...slots].filter(({ state }) => state === 'ready');
    return {
      key: this.spec.key,
      bytes: this.bytes,
      spares: Math.max(0, slots.instances - Math.max(1, this.limits.instancesMin)),
      sessionBytes: this.#expectedBytes(isAlone),
      loadMs: this.facts.loadMs,
      list: offeredList(this.#list.configuration, ready, this.limits),
      callsPerRun: callsIn(Infinity, this.limits),
      isPinned: this.limits.instancesMin > 0,
    };
  }

  /** What its runs keep may be an estimate, for which nothing is refused. */
  #expectedBytes(isAlone: boolean): number {
    const { processes } = this.resources;
    const [bytes, runBytes] = [this.facts.sessionBytes(this.spec), this.facts.runBytes(this.spec)];
    const leastBytes = processes.bytesOf({ bytes, runBytes: 0, isAlone });
    return Math.min(processes.bytesOf({ bytes, runBytes, isAlone }), Math.max(leastBytes, processes.memoryBytes));
  }

  invoke(input: PoolInput, options: InvokeOptions): Promise<PoolResult> {
    return new Promise((resolve, reject) => {
      // A model with a fixed batch runs request by request, so its load is counted in requests.
      const isFixed = this.limits.batchFixed !== undefined;
      const ticket = makeTicket(
        input,
        options,
        (result) => resolve(this.#left(isFixed ? 1 : ticket.rows, result)),
        (error) => reject(this.#left(isFixed ? 1 : ticket.rows, error)),
      );
      this.#load.arrived(isFixed ? 1 : ticket.rows, ticket.arrivalMs);
      const stopped = this.conduct.stopped(ticket.arrivalMs);
      if (stopped !== undefined) {
        ticket.reject(this.#stoppedError(stopped));
        return;
      }
      const gone = whyGone(ticket, ticket.arrivalMs);
      if (gone !== undefined) {
        ticket.reject(gone);
        return;
      }
      const empty = this.#diesOfEmpty ? emptyTensor(ticket) : undefined;
      if (empty !== undefined) {
        ticket.reject(endsInstances(this.spec.key, empty));
        return;
      }
      const { slots, handOver, configuration } = this.#list;
      if (this.waiting.length === 0 && configuration === undefined) {
        // One that joins no batch waits for none.
        const slot = handOver.takeIdle(ticket.alone ? Infinity : ticket.rows);
        if (slot !== undefined) {
          handOver.run(slot, [ticket]);
          return;
        }
      }
      ticket.cold = slots.ready === 0;
      ticket.stages?.enter(ticket.cold ? 'load' : 'turn');
      this.waiting.add(ticket);
      this.#pumpSoon();
    });
  }

  /** Resolves once an instance is ready. */
  load({ handlerOnly = false }: LoadOptions = {}): Promise<void> {
    if (this.#list.slots.ready > 0) return Promise.resolve();
    const stopped = this.conduct.stopped(performance.now());
    if (stopped !== undefined) return Promise.reject(this.#stoppedError(stopped));
    const loaded = this.#loadWaiters.add(handlerOnly);
    this.pump();
    return loaded;
  }

  /** Runs the function on this list of instances; see {@link ListChanges}. */
  configure(configuration: PoolConfiguration, cause: string): Promise<Reconfiguration> {
    return this.#changes.configure(configuration, cause);
  }

  /** Whether requests have come recently: such a function has a claim on its share of the cores. */
  isActive(nowMs: number): boolean {
    return this.#load.perSecond(nowMs) > 0 || this.#list.configuration !== undefined;
  }

  coresUsed(nowMs: number): number {
    return this.#load.coresUsed(nowMs, this.pace.callMs);
  }

  /** Releases every instance: idle ones now, the others when they are done. Resolves when none is left. */
  async unload(): Promise<void> {
    // Otherwise the chooser of configurations would start it again for calls that came before.
    this.#load.forgetArrivals(performance.now());
    this.#loadWaiters.reject(new CpuError('cancelled', `${this.spec.key} was unloaded meanwhile`));
    await this.#changes.drop('unload');
  }

  /** Frees its memory as an unload does. `isSpare`: only that of one instance, which it can do without. */
  async evict(isSpare: boolean, cause: 'room' | 'idle'): Promise<void> {
    if (isSpare) this.#changes.giveOne(cause);
    else if (this.instances > 0) {
      // Earlier arrivals would have it configured again.
      if (cause === 'idle') this.#load.forgetArrivals(performance.now());
      await this.#changes.drop(cause);
    }
  }

  /**
   * The function is no longer registered, and its model file may be gone: callers that cannot be served get an error.
   */
  removed(): void {
    this.#removed = new CpuError('unknown-function', `function '${this.spec.key}' was removed`);
  }

  /** Resolves when nothing waits or runs. */
  quiet(): Promise<void> {
    if (this.waiting.length === 0 && this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#quietWaiters.push(resolve);
    });
  }

  /** Ends everything now; waiting and running calls fail with `stopping`. */
  stop(): void {
    const stopping = new CpuError('stopping', 'the host is stopping');
    for (const ticket of this.waiting.take()) ticket.reject(stopping);
    this.#stopping = stopping;
    this.#list.end('the host is stopping');
    this.resources.processes.forget(this.spec.key);
  }

  /** What nothing has used for as long as its limits say: all that it has, or one of several instances. */
  idle(nowMs: number): 'all' | 'spare' | 'none' {
    const { configuration, slots } = this.#list;
    const { idleMs, instancesMin } = this.limits;
    const isUsed = this.waiting.length > 0 || slots.serving.length === 0;
    if (!isUsed && instancesMin === 0 && slots.idleForMs(nowMs) >= idleMs) return 'all';
    if (configuration !== undefined || slots.ready <= Math.max(1, instancesMin)) return 'none';
    return slots.some('ready', ({ replica }) => replica!.idleForMs(nowMs) >= idleMs) ? 'spare' : 'none';
  }

  /** Sends as many calls as possible, and asks for more instances where that would help. */
  pump(): void {
    const list = this.#list;
    if (this.#stopping !== undefined) return;
    const stopped = this.conduct.stopped(performance.now());
    if (stopped !== undefined) {
      this.#refuseAll(this.#stoppedError(stopped));
      return;
    }
    if (list.slots.ready > 0) this.#loadWaiters.resolve();
    else if (this.#loadWaiters.length > 0 && list.configuration === undefined) list.grow();
    list.handOver.pump();
  }

  #left<T>(rows: number, outcome: T): T {
    this.#load.left(rows, performance.now());
    return outcome;
  }

  /** Pumps once all requests that arrived together are in the queue, so that they can share a message. */
  #pumpSoon(): void {
    if (this.#list.slots.ready === 0) {
      this.pump();
      return;
    }
    if (this.#pumpIsScheduled) return;
    this.#pumpIsScheduled = true;
    setImmediate(() => {
      this.#pumpIsScheduled = false;
      this.pump();
    });
  }

  finished(replica: Replica, tickets: readonly Ticket[], outcome: RunOutcome): void {
    this.#inFlight -= tickets.length;
    if (outcome.kind === 'ran') {
      const { loaded, mixing, disk } = outcome.result;
      if (mixing !== undefined) this.#rowsMix(mixing);
      if (loaded?.sharedProblem !== undefined) this.resources.weights?.refuse(this.spec, loaded.sharedProblem);
      if (loaded !== undefined) this.resources.events.onLoaded?.({ key: this.spec.key, loadMs: loaded.loadMs });
      if (disk !== undefined) this.resources.events.onDiskWait?.({ key: this.spec.key, ...disk });
      answer(this.spec.key, replica.instance.pid, tickets, outcome);
    } else {
      this.#recover(tickets, outcome);
    }
    this.pump();
    this.#checkQuiet();
  }

  /** From now on each call runs alone. */
  #rowsMix(reason: string): void {
    if (this.#isMixing) return;
    this.#isMixing = true;
    this.limits = this.#limits;
    this.resources.events.onRowsMix?.({ key: this.spec.key, reason });
  }

  /** Handles the calls of a dead instance. */
  #recover(tickets: readonly Ticket[], outcome: RunOutcome & { kind: 'died' | 'timeout' }): void {
    if (this.#stopping !== undefined) {
      for (const ticket of tickets) ticket.reject(this.#stopping);
      return;
    }
    for (const ticket of survivors(this.spec.key, tickets, outcome)) {
      const isWithoutInstance = this.#list.slots.ready === 0;
      ticket.cold ||= isWithoutInstance;
      ticket.stages?.enter(isWithoutInstance ? 'load' : 'turn');
      this.waiting.putBack(ticket);
    }
    this.#diesOfEmpty ||= tickets.some((ticket) => ticket.deaths > 1 && emptyTensor(ticket) !== undefined);
  }

  handlerSuffices(): boolean {
    if (this.spec.handlerPath === undefined || this.waiting.length + this.#loadWaiters.length === 0) return false;
    if (!this.#loadWaiters.handlerSuffices) return false;
    for (const { runModel } of this.waiting) if (runModel === undefined) return false;
    return true;
  }

  started(startMs: number, holdsModel: boolean): void {
    const nowMs = performance.now();
    for (const ticket of this.waiting) {
      if (ticket.cold) ticket.loadMs += nowMs - Math.max(startMs, ticket.arrivalMs);
      ticket.stages?.enter('turn');
    }
    if (!holdsModel) return;
    this.facts.started(nowMs - startMs);
    this.resources.events.onLoaded?.({ key: this.spec.key, loadMs: nowMs - startMs });
    this.resources.factsChanged(this.spec.key);
  }

  cannotServe(error: CpuError): void {
    const failure =
      this.#stopping ??
      this.#removed ??
      new CpuError('model-load-failed', `the model of ${this.spec.key} could not be loaded: ${error.message}`);
    this.#loadWaiters.reject(failure);
    // With another instance working the queue still moves; without one no call would ever be answered.
    if (this.#list.slots.ready === 0) for (const ticket of this.waiting.take()) ticket.reject(failure);
    this.#checkQuiet();
  }

  stopped(stopped: Stopped): void {
    if (this.#stopping !== undefined) return;
    this.resources.events.onStopped?.(this.spec.key, stopped);
    this.#refuseAll(this.#stoppedError(stopped));
    // Instances that are left would be idle. A call that one of them still answers ends the stop.
    void this.#changes.drop('unload');
  }

  #stoppedError(stopped: Stopped): CpuError {
    return new CpuError('instance-died', `${this.spec.key} is not run: ${stoppedText(stopped, performance.now())}`);
  }

  #refuseAll(error: CpuError): void {
    this.#loadWaiters.reject(error);
    for (const ticket of this.waiting.take()) ticket.reject(error);
    this.#checkQuiet();
  }

  handedOver(calls: number): void {
    this.#inFlight += calls;
  }

  ended(cause: GiveUpCause, ageMs: number, reason: string): void {
    if (this.#stopping === undefined) this.resources.events.onGivenUp?.({ key: this.spec.key, cause, ageMs, reason });
  }

  replace(holdsModel: boolean): void {
    if (this.#list.slots.instances === 0) this.load({ handlerOnly: !holdsModel }).catch(() => undefined);
    else this.#list.grow();
  }

  settled(): void {
    this.resources.processes.settled();
    this.resources.factsChanged(this.spec.key);
  }

  #checkQuiet(): void {
    if (this.waiting.length > 0 || this.#inFlight > 0) return;
    for (const resolve of this.#quietWaiters.splice(0)) resolve();
  }
}
