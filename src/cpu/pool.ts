/**
 * The pool of one function: its queue, its instances on demand, and the rule that matches them. While a configuration is in
 * force its set has the queue instead (configured-set.ts), and instances on demand have had their day.
 *
 * On demand, invocations are handed over in order of priority, then arrival,
 *   1. while all that waits is less than `nextInstanceMs` of work, ahead of time to an instance that is busy and
 *      then finds its next work lying ready: waking another would cost more than it brings;
 *   2. else to an idle instance, when the machine's cores allow another run;
 *   3. else, where runs are short, to a busy one all the same.
 * What is handed over together, as one message, is up to `batchMax` rows to be joined into one run of the model; or, for
 * a function that does not batch, as many runs as make up `aheadMs` of work: for a run of some microseconds the way
 * to the instance and back costs more than the run, and sharing it gives twice the throughput.
 *
 * An instance is added when invocations wait, none is idle and none is on its way; so everybody who comes while a
 * function is cold shares one load. An instance that dies gives its invocations back to the front of the queue; one that
 * has seen two instances die, with nothing else in their hands, is not tried a third time: it may be what kills them.
 */
import { answer, survivors } from './answers.ts';
import { instanceLimit, type ConfiguredSet } from './configured-set.ts';
import { HandOverRule, patienceMs } from './hand-over-rule.ts';
import type { Instance } from './instance.ts';
import type { RunOrder, RunOutcome } from './instance-run.ts';
import { LatencyBook } from './latency.ts';
import { OnDemandInstances } from './on-demand.ts';
import type { GiveUpCause, PoolMachine } from './pool-machine.ts';
import { PoolSets, type SetsOwner } from './pool-sets.ts';
import { instanceStates } from './pool-state.ts';
import type { CallHeader, LoadedLate } from './protocol.ts';
import { LoadTries } from './load-tries.ts';
import { handlerSuffices, type LoadWaiter } from './load-waiters.ts';
import { PartedRequests } from './parts.ts';
import { clientGone, deadlinePassed, queueFull, TicketQueue } from './queue.ts';
import { PoolLoad, smoothStart } from './rates.ts';
import { makeTicket, modelRunOf, type Ticket } from './ticket.ts';
import { CpuError } from './types.ts';
import type { InstanceSpec, InvokeOptions, LoadOptions, PoolConfiguration, PoolInput, PoolLimits } from './types.ts';
import type { PoolResult, PoolState, Reconfiguration } from './types.ts';
import type { Tensor } from '../tensor/index.ts';

/** Unexpected deaths in a row, without an answer between them, after which an instance is not replaced until it is needed. */
const deathsInRowMax = 3;

export class Pool {
  spec: InstanceSpec;
  limits: PoolLimits;
  readonly #machine: PoolMachine;
  readonly #queue = new TicketQueue((ticket, error) => {
    ticket.reject(error);
    this.#checkQuiet();
  });
  readonly #onDemand: OnDemandInstances;
  #loading: { readonly instance: Instance; readonly startMs: number } | undefined;
  readonly #loadWaiters: LoadWaiter[] = [];
  #inFlight = 0;
  readonly #rule = new HandOverRule();
  #pumpScheduled = false;
  #deathsInRow = 0;
  readonly #loadTries = new LoadTries();
  #unloading = false;
  #stopping: CpuError | undefined;
  #removed: CpuError | undefined;
  /** Instances on their way out by our own will: their end is no death. */
  readonly #retiring = new Map<Instance, GiveUpCause>();
  readonly #drained: (() => void)[] = [];
  readonly #quietWaiters: (() => void)[] = [];
  #batchTimer: NodeJS.Timeout | undefined;
  #patienceTimer: NodeJS.Timeout | undefined;
  readonly #load = new PoolLoad(performance.now());
  #startMs: number | undefined;
  readonly #latency = new LatencyBook();
  readonly #parted = new PartedRequests();
  readonly #sets: PoolSets;
  /** While a configuration gives way to instances on demand: one of those is being made ready beside it. */
  #returning = false;

  constructor(spec: InstanceSpec, limits: PoolLimits, machine: PoolMachine) {
    this.spec = spec;
    this.limits = limits;
    this.#machine = machine;
    this.#onDemand = new OnDemandInstances(this, machine);
    this.#sets = new PoolSets(this.#setsOwner());
  }

  get busy(): number {
    return this.#onDemand.busy;
  }

  /** Whether invocations wait. */
  get hasWaiting(): boolean {
    return this.#queue.length > 0;
  }

  /** Instances that count against the machine's limit: ready or loading. */
  get instances(): number {
    return this.#onDemand.size + (this.#loading === undefined ? 0 : 1) + this.#sets.instances;
  }

  /** The instance that has been idle for longest and could be given up, keeping `keep` ready ones. */
  longestIdle(keep: number): Instance | undefined {
    return this.#onDemand.longestIdle(keep);
  }

  state(): PoolState {
    const nowMs = performance.now();
    const onDemand = instanceStates(this.#onDemand, this.#loading?.instance, this.spec.threads, nowMs);
    return {
      key: this.spec.key,
      instances: [...onDemand, ...this.#sets.state(nowMs)],
      queueLength: this.#queue.length,
      inFlight: this.#inFlight,
      configuration: this.#sets.active?.configuration,
      starting: this.#sets.starting,
      coresHeld: this.#machine.cores.held(this.spec.key),
      arrivalsPerSecond: this.#load.perSecond(nowMs),
      queueDepth: this.#load.depth(nowMs),
      startMs: this.#startMs,
    };
  }

  invoke(input: PoolInput, options: InvokeOptions): Promise<PoolResult> {
    const { active } = this.#sets;
    if (active === undefined || this.limits.batchFixed !== undefined) return this.#invokeWhole(input, options);
    const room = this.limits.queueMax - this.#queue.length;
    const whole = this.#invokeWhole.bind(this);
    return (
      this.#parted.invoke(input, options, active.configuration, this.#latency, room, whole) ?? whole(input, options)
    );
  }

  #invokeWhole(input: PoolInput, options: InvokeOptions): Promise<PoolResult> {
    return new Promise((resolve, reject) => {
      if (options.signal?.aborted) {
        reject(clientGone());
        return;
      }
      // A model that fixes its rows runs request by request, and that is what its load is counted in.
      const isFixed = this.limits.batchFixed !== undefined;
      const ticket = makeTicket(
        input,
        options,
        (result) => resolve(this.#left(isFixed ? 1 : ticket.rows, result)),
        (error) => reject(this.#left(isFixed ? 1 : ticket.rows, error)),
      );
      this.#load.arrived(isFixed ? 1 : ticket.rows, ticket.arrivalMs);
      if (ticket.deadlineMs <= ticket.arrivalMs) {
        ticket.reject(deadlinePassed());
        return;
      }
      if (this.#queue.length === 0 && this.#mayStartNow(ticket)) {
        const instance = this.#onDemand.takeIdle();
        if (instance !== undefined) {
          this.#start(instance, [ticket]);
          return;
        }
      }
      if (this.#queue.length >= this.limits.queueMax) {
        ticket.reject(queueFull(this.spec.key, this.limits.queueMax));
        return;
      }
      this.#enqueue(ticket);
      this.#pumpSoon();
    });
  }

  /** Resolves once an instance is ready. */
  load({ handlerOnly = false }: LoadOptions = {}): Promise<void> {
    if (this.#canServe()) return Promise.resolve();
    this.#unloading = false;
    return new Promise((resolve, reject) => {
      this.#loadWaiters.push({ resolve, reject, handlerOnly });
      this.#grow();
    });
  }

  /** Runs the function on this list of instances, or on demand; see {@link PoolSets}. */
  configure(configuration: PoolConfiguration | undefined, cause: string): Promise<Reconfiguration> {
    this.#unloading = false;
    return this.#sets.configure(configuration, cause);
  }

  /** Whether requests have come of late: such a function has a claim on its share of the cores. */
  isActive(nowMs: number): boolean {
    return this.#load.perSecond(nowMs) > 0 || this.#sets.active !== undefined;
  }

  /** Moves the instances on demand to the cores that are not leased. */
  pinOnDemand(): void {
    for (const instance of this.#onDemand) this.#machine.pinOnDemand(instance);
    if (this.#loading !== undefined) this.#machine.pinOnDemand(this.#loading.instance);
  }

  /** Gives every instance back: the idle ones now, the others when they are done. Resolves when none is left. */
  unload(): Promise<void> {
    this.#unloading = true;
    // Whoever chooses configurations by the load must not have it started again for calls that came before.
    this.#load.forgetArrivals(performance.now());
    this.#sets.drop('unload', 'unload');
    for (const instance of this.#onDemand.takeAllIdle()) this.#retire(instance, 'unload');
    return new Promise((resolve) => {
      this.#drained.push(resolve);
      this.#checkDrained();
    });
  }

  /** The function is no longer registered, and its model file may be gone: who cannot be served any more is told so. */
  removed(): void {
    this.#removed = new CpuError('unknown-function', `function '${this.spec.key}' was removed`);
  }

  /** Resolves when nothing waits or runs. */
  quiet(): Promise<void> {
    if (this.#queue.length === 0 && this.#inFlight === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#quietWaiters.push(resolve);
    });
  }

  /** Ends everything now; what waits or runs fails with `stopping`. */
  stop(): void {
    this.#unloading = true;
    clearTimeout(this.#batchTimer);
    clearTimeout(this.#patienceTimer);
    const stopping = new CpuError('stopping', 'the host is stopping');
    for (const ticket of this.#queue.takeAll()) ticket.reject(stopping);
    this.#stopping = stopping;
    this.#sets.end('the host is stopping');
    this.#loading?.instance.kill('the host is stopping');
    for (const instance of this.#onDemand) instance.kill('the host is stopping');
  }

  /** Gives back the instances that have been idle for too long. Called now and then by the machine. */
  retireIdle(nowMs: number): void {
    const { active } = this.#sets;
    if (this.limits.instancesMin === 0 && active !== undefined && this.#queue.length === 0) {
      if (active.idleForMs(nowMs) >= this.limits.idleMs) {
        this.#load.forgetArrivals(nowMs);
        this.#sets.drop('idle', 'idle');
      }
    }
    for (;;) {
      const oldest = this.longestIdle(this.limits.instancesMin);
      if (oldest === undefined || nowMs - oldest.idleSinceMs < this.limits.idleMs) return;
      if (this.instances === 1) this.#load.forgetArrivals(nowMs);
      this.give(oldest, 'idle');
    }
  }

  /** Gives one idle instance up. */
  give(instance: Instance, cause: GiveUpCause): void {
    this.#onDemand.takeOut(instance);
    this.#retire(instance, cause);
  }

  /** Whether somebody waits and there is no instance, nor one on its way. */
  get needsFirst(): boolean {
    return this.instances === 0 && (this.#queue.length > 0 || this.#loadWaiters.length > 0);
  }

  /** Whether it will have an instance to spare sooner or later, so that others need only wait for it. */
  get mayRest(): boolean {
    const onDemand = this.#onDemand.size + (this.#loading === undefined ? 0 : 1);
    return onDemand > this.limits.instancesMin || this.#sets.isChanging;
  }

  /** Instances of its configuration that it could do without, and for how long all of them have been idle. */
  configured(nowMs: number): { readonly spare: number; readonly idleForMs: number } {
    const { active } = this.#sets;
    const spare = Math.max(0, (active?.instances ?? 0) - this.limits.instancesMin);
    return { spare, idleForMs: active?.idleForMs(nowMs) ?? 0 };
  }

  /** Gives one instance of its configuration up. */
  giveConfigured(): void {
    this.#sets.giveOne();
  }

  /** Hands over as much as can be, and asks for more instances where that would help. */
  pump(): void {
    const { active } = this.#sets;
    if (active !== undefined) {
      if (this.#returning) this.#grow();
      active.pump();
      return;
    }
    if (this.#loadWaiters.length > 0) this.#grow();
    while (this.#queue.length > 0) {
      if (this.#onDemand.idle > 0 && this.#waitForBatch()) return;
      const instance = this.#takeInstance();
      if (instance === undefined) {
        if (this.#onDemand.idle === 0 && !this.#littleWaits()) this.#grow();
        return;
      }
      this.#start(instance, this.#rule.takeTogether(this.#queue, this.limits.batchMax));
    }
  }

  #left<T>(rows: number, outcome: T): T {
    this.#load.left(rows, performance.now());
    return outcome;
  }

  #mayStartNow(ticket: Ticket): boolean {
    if (this.#sets.active !== undefined || (this.busy > 0 && this.#rule.callsPerMessage() > 1)) return false;
    return this.limits.batchDelayMs === 0 || ticket.rows >= this.limits.batchMax || ticket.runModel !== undefined;
  }

  /** The instance for what goes next, by the rule above. */
  #takeInstance(): Instance | undefined {
    if (this.#littleWaits()) {
      this.#patienceTimer ??= setTimeout(() => {
        this.#patienceTimer = undefined;
        this.pump();
      }, patienceMs);
      return this.#takeAhead();
    }
    return this.#onDemand.takeIdle() ?? this.#takeAhead();
  }

  /** Nothing lies ready for an instance that is to be given up: it would never rest. */
  #takeAhead(): Instance | undefined {
    const instance = this.#onDemand.takeAhead(this.#rule.callsPerMessage());
    return instance === undefined || this.#isWantedBack(instance) ? undefined : instance;
  }

  /**
   * Whether another function that has no instance is to have this one's place. As long as there is work it stays for the
   * time that a start takes: with every place fought over, half of the time at least goes into answers.
   */
  #isWantedBack(instance: Instance): boolean {
    if (!this.#machine.wantsBack(this)) return false;
    return this.#queue.length === 0 || this.#onDemand.ageMs(instance, performance.now()) >= (this.#startMs ?? 0);
  }

  #littleWaits(): boolean {
    return this.busy > 0 && this.#rule.littleWaits(this.#queue, performance.now());
  }

  /** Pumps once all requests that arrived together are in the queue, so that they can share a message. */
  #pumpSoon(): void {
    if (!this.#canServe()) {
      this.pump();
      return;
    }
    if (this.#pumpScheduled) return;
    this.#pumpScheduled = true;
    setImmediate(() => {
      this.#pumpScheduled = false;
      this.pump();
    });
  }

  #enqueue(ticket: Ticket): void {
    // Whoever comes after an unload wants the function back.
    if (this.#unloading) {
      this.#unloading = false;
      for (const resolve of this.#drained.splice(0)) resolve();
    }
    ticket.cold = !this.#canServe();
    this.#queue.add(ticket);
  }

  /** True when it is better to wait for more calls to share the run; a timer then pumps again. */
  #waitForBatch(): boolean {
    const waitMs = this.#rule.batchWaitMs(this.#queue, this.limits, performance.now());
    if (waitMs <= 0) return false;
    this.#batchTimer ??= setTimeout(() => {
      this.#batchTimer = undefined;
      this.pump();
    }, Math.ceil(waitMs));
    return true;
  }

  #start(instance: Instance, tickets: readonly Ticket[], set?: ConfiguredSet, join = this.limits.batchMax > 1): void {
    const calls: CallHeader[] = [];
    const tensors: Tensor[] = [];
    for (const ticket of tickets) {
      calls.push(ticket.call);
      tensors.push(...ticket.tensors);
    }
    this.#inFlight += tickets.length;
    this.#onDemand.atWork(instance);
    const [first] = tickets;
    const order: RunOrder = {
      join,
      calls,
      tensors,
      limits: this.limits,
      runModel: first && modelRunOf(first),
      onAway: () => {
        this.#onDemand.waits(instance);
        this.pump();
      },
      onBack: () => this.#onDemand.atWork(instance),
    };
    instance.run(order, (outcome) => this.#finished(instance, tickets, outcome, set));
  }

  #finished(instance: Instance, tickets: readonly Ticket[], outcome: RunOutcome, set: ConfiguredSet | undefined): void {
    this.#inFlight -= tickets.length;
    if (outcome.kind === 'ran') {
      this.#deathsInRow = 0;
      const { busyMs, loaded } = outcome.result;
      if (loaded !== undefined) this.#modelLoaded(loaded);
      if (set === undefined) {
        this.#rule.ran(tickets.length, busyMs - (loaded?.loadMs ?? 0));
        if (instance.state === 'idle') this.#rested(instance);
        else this.#onDemand.waits(instance);
      } else {
        const isOwn = tickets.every(({ modelRun }) => modelRun?.ran !== true);
        set.rested(instance, isOwn ? tickets.reduce((sum, ticket) => sum + ticket.rows, 0) : 0, busyMs);
      }
      answer(this.spec.key, instance, tickets, outcome);
    } else {
      this.#recover(tickets, outcome);
    }
    this.pump();
    this.#checkQuiet();
  }

  /** An instance has nothing more to do. */
  #rested(instance: Instance): void {
    this.#onDemand.rested();
    if (this.#unloading && this.#queue.length === 0) this.#retire(instance, 'unload');
    else if (this.#isReplaced()) this.#retire(instance, 'reconfigured');
    else if (this.#isWantedBack(instance)) this.#retire(instance, 'room');
    else this.#onDemand.keep(instance);
  }

  /** Sees to what a dead instance held. */
  #recover(tickets: readonly Ticket[], outcome: RunOutcome & { kind: 'died' | 'timeout' }): void {
    if (this.#stopping !== undefined) {
      for (const ticket of tickets) ticket.reject(this.#stopping);
      return;
    }
    for (const ticket of survivors(this.spec.key, tickets, outcome)) {
      ticket.cold ||= !this.#canServe();
      this.#queue.putBack(ticket);
    }
  }

  #grow(): void {
    if (this.#loading !== undefined || this.#stopping !== undefined || this.#isReplaced()) return;
    const { size } = this.#onDemand;
    if (size >= this.limits.instancesMax) return;
    if (this.#queue.length === 0 && this.#loadWaiters.length === 0 && size >= this.limits.instancesMin) return;
    const instance = this.#machine.takeInstance(this, {
      anew: this.#loadTries.any,
      replaced: Math.min(this.#sets.active?.instances ?? 0, size + 1),
    });
    if (instance === undefined) return;
    if (size === 0) for (const ticket of this.#queue) ticket.cold = true;
    const loading = { instance, startMs: performance.now() };
    this.#loading = loading;
    instance.onDead((reason) => this.#lost(instance, reason));
    this.#loadInto(instance).then(
      () => this.#loaded(loading),
      (error: CpuError) => this.#loadFailed(error),
    );
    // Where there are two, their weights are worth sharing; it is prepared in the background for those to come.
    if (size > 0 && !handlerSuffices(this.spec, this.#queue, this.#loadWaiters))
      void this.#machine.sharedModelPath(this);
  }

  async #loadInto(instance: Instance): Promise<void> {
    const { spec, limits } = this;
    const lazily = handlerSuffices(this.spec, this.#queue, this.#loadWaiters);
    this.#machine.pinOnDemand(instance);
    const atHand = this.#machine.sharedModelAtHand(this);
    const sharedModelPath = atHand === undefined ? undefined : await atHand;
    // Instances on demand share their cores, so their threads do not spin.
    const session = { threads: spec.threads, spinning: false };
    const settings = sharedModelPath === undefined ? session : { ...session, sharedModelPath };
    const { sharedProblem } = await instance.load(spec, limits.loadTimeoutMs, settings, lazily);
    if (sharedProblem !== undefined) this.#machine.sharedModelRefused(this, sharedProblem);
  }

  /** An instance has loaded the model because it was to run it after all. */
  #modelLoaded({ loadMs, sharedProblem }: LoadedLate): void {
    if (sharedProblem !== undefined) this.#machine.sharedModelRefused(this, sharedProblem);
    this.#machine.loaded(this, loadMs);
  }

  #loaded(loading: { readonly instance: Instance; readonly startMs: number }): void {
    if (loading.instance.state === 'dead') {
      this.#loadFailed(new CpuError('instance-died', 'its instance died as soon as it was loaded'));
      return;
    }
    this.#loading = undefined;
    this.#loadTries.end();
    this.#onDemand.add(loading.instance);
    this.#started(loading.startMs, loading.instance.holdsModel);
    this.#resolveLoads();
    this.pump();
    if (this.#unloading) for (const instance of this.#onDemand.takeAllIdle()) this.#retire(instance, 'unload');
    this.#retireReplaced();
    this.#machine.instanceSettled();
  }

  #resolveLoads(): void {
    for (const waiter of this.#loadWaiters.splice(0)) waiter.resolve();
  }

  #loadFailed(error: CpuError): void {
    this.#loading = undefined;
    // Where the model has not been refused, only its process has failed, whoever waits gets another, within reason.
    if (this.#stopping === undefined && this.#loadTries.mayGoOn(error, this.#startMs !== undefined)) {
      this.#grow();
      this.#machine.instanceSettled();
      return;
    }
    this.#loadTries.end();
    this.#cannotServe(error);
    this.#machine.instanceSettled();
  }

  /** Tells whoever waits that there will be no instance. */
  #cannotServe(error: CpuError): void {
    const failure =
      this.#stopping ??
      this.#removed ??
      new CpuError('model-load-failed', `the model of ${this.spec.key} could not be loaded: ${error.message}`);
    for (const waiter of this.#loadWaiters.splice(0)) waiter.reject(failure);
    // With another instance at work the queue still moves; without one nobody would ever answer.
    if (!this.#canServe()) {
      for (const ticket of this.#queue.takeAll()) ticket.reject(failure);
    }
    this.#checkQuiet();
  }

  /** An instance that was taken at `startMs` has become ready: for those who wait this was a load. */
  #started(startMs: number, withModel = true): void {
    const nowMs = performance.now();
    for (const ticket of this.#queue) {
      if (ticket.cold) ticket.loadMs += nowMs - Math.max(startMs, ticket.arrivalMs);
    }
    if (!withModel) return;
    this.#startMs = smoothStart(this.#startMs, nowMs - startMs);
    this.#machine.loaded(this, nowMs - startMs);
  }

  /** A ready instance is gone, given back or dead; what it ran is seen to by its run's outcome. */
  #lost(instance: Instance, reason: string): void {
    const cause = this.#retiring.get(instance);
    this.#retiring.delete(instance);
    const readySinceMs = this.#onDemand.lost(instance, cause !== undefined);
    if (readySinceMs === undefined) return;
    if (this.#stopping === undefined) {
      this.#machine.givenUp(this, cause ?? 'died', performance.now() - readySinceMs, reason);
      if (cause === undefined) {
        this.#deathsInRow++;
        if (this.#deathsInRow <= deathsInRowMax && !this.#unloading) this.#replace(instance);
      }
    }
    this.#checkDrained();
    this.#machine.instanceSettled();
  }

  /** A pool that was in use keeps its size when an instance dies, so that the next invocation need not wait for a load. */
  #replace({ holdsModel }: Instance): void {
    if (this.#isReplaced()) return;
    if (this.#onDemand.size === 0) this.load({ handlerOnly: !holdsModel }).catch(() => undefined);
    else this.#grow();
  }

  #retire(instance: Instance, cause: GiveUpCause): void {
    this.#retiring.set(instance, cause);
    instance.kill(cause);
  }

  /** Whether a configuration serves, so that instances on demand have had their day. */
  #isReplaced(): boolean {
    return this.#sets.active !== undefined && !this.#returning;
  }

  #retireReplaced(): void {
    if (!this.#isReplaced()) return;
    for (const instance of this.#onDemand.takeAllIdle()) this.#retire(instance, 'reconfigured');
  }

  /** Whether an instance is ready for what comes. */
  #canServe(): boolean {
    return this.#sets.active?.canServe ?? this.#onDemand.size > 0;
  }

  #setsOwner(): SetsOwner {
    return {
      pool: this,
      queue: this.#queue,
      latency: this.#latency,
      cores: this.#machine.cores,
      hasLoaded: () => this.#startMs !== undefined,
      takeInstance: (set, anew) => this.#machine.takeInstance(this, { anew, replaced: this.#replacedBy(set) }),
      sharedModelPath: () => this.#machine.sharedModelPath(this),
      sharedModelRefused: (problem) => this.#machine.sharedModelRefused(this, problem),
      run: (set, instance, tickets, join) => this.#start(instance, tickets, set, join),
      started: (startMs) => {
        this.#started(startMs);
        if (!this.#returning) this.#resolveLoads();
        this.#machine.instanceSettled();
      },
      ended: (cause, ageMs, reason) => {
        if (this.#stopping === undefined) this.#machine.givenUp(this, cause, ageMs, reason);
      },
      cannotServe: (error) => this.#cannotServe(error),
      settled: () => {
        this.#checkDrained();
        this.#machine.instanceSettled();
      },
      readyOnDemand: () => this.#readyOnDemand(),
      activated: () => {
        this.#returning = false;
        this.#retireReplaced();
        if (this.#canServe()) this.#resolveLoads();
        this.pump();
      },
      reconfigured: (outcome) => this.#machine.reconfigured(outcome),
    };
  }

  /** How many instances end once this set has taken over: of those, as many as it has with one more. */
  #replacedBy(set: ConfiguredSet): number {
    if (!this.#sets.isStarting(set)) return 0;
    const { active } = this.#sets;
    const inForce = this.#onDemand.size + (this.#loading === undefined ? 0 : 1) + (active?.instances ?? 0);
    return Math.min(inForce, set.instances + 1);
  }

  /** Where nobody calls the function, the next to call may as well wait for its load. */
  async #readyOnDemand(): Promise<void> {
    if (this.#load.perSecond(performance.now()) === 0 && this.limits.instancesMin === 0) return;
    this.#returning = true;
    try {
      if (this.#onDemand.size > 0) return;
      await new Promise<void>((resolve, reject) => {
        this.#loadWaiters.push({ resolve, reject, handlerOnly: false });
        this.#grow();
        if (this.#loading === undefined) this.#cannotServe(instanceLimit());
      });
    } catch (error) {
      this.#returning = false;
      this.#retireReplaced();
      throw error;
    }
  }

  #checkDrained(): void {
    if (this.instances > 0) return;
    for (const resolve of this.#drained.splice(0)) resolve();
  }

  #checkQuiet(): void {
    if (this.#queue.length > 0 || this.#inFlight > 0) return;
    for (const resolve of this.#quietWaiters.splice(0)) resolve();
  }
}
