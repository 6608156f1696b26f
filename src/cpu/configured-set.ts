/**
 * The instances of one configuration, each on cores of its own: how they start, what each runs next, and how they end.
 *
 * Dispatching (Packrat, 3.5): waiting rows are collected until they fill the idle instances, or until the one that has
 * waited longest has done so for the batch timeout; then they are split among the idle instances (split.ts). With every
 * instance idle that is the configuration's whole batch B. An instance never waits for another to finish.
 */
import { currentCore } from './affinity.ts';
import type { CoreAllocator, CoreLease } from './cores.ts';
import { instancesOf, type PlannedInstance } from './configuration.ts';
import type { Instance } from './instance.ts';
import type { LatencyBook } from './latency.ts';
import { LoadTries } from './load-tries.ts';
import type { GiveUpCause } from './pool-machine.ts';
import type { TicketQueue } from './queue.ts';
import { handOverOrder, splitBatch, type Place } from './split.ts';
import { goesAlone, type Ticket } from './ticket.ts';
import { CpuError, type InstanceSpec, type PoolConfiguration, type PoolLimits, type PoolState } from './types.ts';

/** Deaths of one instance without an answer between them after which its restart is put off. */
const quickDeathsMax = 3;
/** Doubled with each further death or failed start, up to the most. */
const restartDelayMs = 1000;
const restartDelayMsMax = 30_000;

/** What a set needs of its pool. */
export interface SetOwner {
  /** As they are now: registering a function again replaces them. */
  readonly pool: { readonly spec: InstanceSpec; readonly limits: PoolLimits };
  readonly queue: TicketQueue;
  readonly latency: LatencyBook;
  readonly cores: CoreAllocator;
  /** Whether an instance has loaded the model. */
  hasLoaded(): boolean;
  /** A process to make an instance of, one that starts now where it is to be `anew`; undefined at the machine's limit. */
  takeInstance(set: ConfiguredSet, anew: boolean): Instance | undefined;
  /** Where the prepared form of the model is, if there is one. */
  sharedModelPath(): Promise<string | undefined>;
  sharedModelRefused(problem: string): void;
  /** Has the tickets run; the outcome comes back through {@link ConfiguredSet.rested}. */
  run(set: ConfiguredSet, instance: Instance, tickets: readonly Ticket[], join: boolean): void;
  /** An instance has become ready; `startMs`: the instant at which it was taken. */
  started(startMs: number): void;
  /** One that was ready is no more. */
  ended(cause: GiveUpCause, ageMs: number, reason: string): void;
  /** No instance of the set can serve, and why. */
  cannotServe(error: CpuError): void;
  /** An instance is gone, or could not be started: there may be room for others. */
  settled(): void;
}

interface Slot {
  readonly threads: number;
  /** Rows of a run, as the configuration in force has it. */
  batch: number;
  readonly lease: CoreLease;
  instance: Instance | undefined;
  /** `leaving`: ends when it has answered; takes nothing more. */
  state: 'starting' | 'ready' | 'down' | 'leaving';
  readySinceMs: number;
  leavingCause: GiveUpCause;
  deathsInRow: number;
  restartTimer: NodeJS.Timeout | undefined;
}

export class ConfiguredSet {
  readonly #owner: SetOwner;
  readonly #slots = new Set<Slot>();
  #configuration: PoolConfiguration;
  #draining = false;
  #batchTimer: NodeJS.Timeout | undefined;
  readonly #drained: (() => void)[] = [];

  /** @param leases one per instance, in the order of `instancesOf(configuration)`; the set gives them back */
  constructor(configuration: PoolConfiguration, leases: readonly CoreLease[], owner: SetOwner) {
    this.#configuration = configuration;
    this.#owner = owner;
    this.#add(instancesOf(configuration), leases);
  }

  get configuration(): PoolConfiguration {
    return this.#configuration;
  }

  /** Processes that hold the model or load it. */
  get instances(): number {
    return [...this.#slots].filter(({ instance }) => instance !== undefined).length;
  }

  /** Whether instances are on their way out. */
  get isLeaving(): boolean {
    return this.#some('leaving');
  }

  get canServe(): boolean {
    return this.#some('ready');
  }

  /** How long every instance has been without work; 0 while one has some, or is on its way. */
  idleForMs(nowMs: number): number {
    let idleMs = Infinity;
    for (const { state, instance } of this.#slots) {
      if (state !== 'ready' || instance?.state !== 'idle') return 0;
      idleMs = Math.min(idleMs, nowMs - instance.idleSinceMs);
    }
    return idleMs;
  }

  state(nowMs: number): PoolState['instances'] {
    return [...this.#slots].flatMap(({ instance, state, threads, lease }) => {
      if (instance === undefined) return [];
      const shown = state === 'starting' ? 'loading' : instance.state === 'busy' ? 'busy' : 'idle';
      const idleForMs = shown === 'idle' ? nowMs - instance.idleSinceMs : 0;
      return [{ pid: instance.pid, state: shown, idleForMs, threads, cores: lease.cores } as const];
    });
  }

  /** Starts every instance. Rejects with the first {@link CpuError} that one could not be started for; all end then. */
  async start(): Promise<void> {
    await this.#startAll([...this.#slots]);
  }

  /** Starts more instances, one for each lease, to get to `configuration`. On failure those end and all stays as it was. */
  async grow(configuration: PoolConfiguration, leases: readonly CoreLease[]): Promise<void> {
    const added = this.#add(missing(configuration, [...this.#slots]), leases);
    await this.#startAll(added);
    this.#assign(configuration);
    this.pump();
  }

  /** Takes on a configuration that has the same instances, or fewer: the rest end once they have answered. */
  shrink(configuration: PoolConfiguration, cause: GiveUpCause = 'reconfigured'): void {
    const wanted = new Map<number, number>();
    for (const { threads } of instancesOf(configuration)) wanted.set(threads, (wanted.get(threads) ?? 0) + 1);
    for (const slot of [...this.#slots]
      .filter(({ state }) => state !== 'leaving')
      .sort((a, b) => leavingRank(a) - leavingRank(b))) {
      const left = wanted.get(slot.threads) ?? 0;
      if (left > 0) wanted.set(slot.threads, left - 1);
      else this.#leave(slot, cause);
    }
    this.#assign(configuration);
    this.pump();
  }

  /** Takes nothing more and ends each instance once it has answered. Resolves when none is left. */
  drain(cause: GiveUpCause): Promise<void> {
    this.#draining = true;
    clearTimeout(this.#batchTimer);
    for (const slot of this.#slots) this.#leave(slot, cause);
    return new Promise((resolve) => {
      this.#drained.push(resolve);
      this.#checkDrained();
    });
  }

  /** Ends everything now. */
  end(reason: string): void {
    this.#draining = true;
    clearTimeout(this.#batchTimer);
    for (const slot of this.#slots) {
      slot.state = 'leaving';
      this.#remove(slot);
      slot.instance?.kill(reason);
    }
    this.#checkDrained();
  }

  /** Hands waiting tickets to idle instances, as the rule above has it. */
  pump(): void {
    const { queue } = this.#owner;
    if (this.#draining) return;
    while (queue.length > 0) {
      const idle = [...this.#slots].filter(
        ({ state, instance }) => state === 'ready' && instance?.hasFreeHand === true,
      );
      if (idle.length === 0) {
        this.#wake();
        return;
      }
      if (this.#waitsForMore(idle)) return;
      if (!this.#dispatch(idle)) return;
    }
  }

  /** An instance of this set has answered a run of `rows` that took it `busyMs`; of a model that ran elsewhere there are none. */
  rested(instance: Instance, rows: number, busyMs: number): void {
    const slot = this.#slotOf(instance);
    if (slot === undefined) return;
    slot.deathsInRow = 0;
    if (rows > 0) this.#owner.latency.observe(slot.threads, rows, busyMs);
    if (slot.state === 'leaving' && instance.state === 'idle') instance.kill(slot.leavingCause);
  }

  #dispatch(idle: readonly Slot[]): boolean {
    const { queue, latency } = this.#owner;
    const { limits } = this.#owner.pool;
    const places = idle.map(({ threads, batch }): Place => ({
      batch,
      expectedMs: (rows) => latency.ms(threads, rows),
    }));
    const waiting: Ticket[] = [];
    let rows = 0;
    const capacity = idle.reduce((sum, { batch }) => sum + batch, 0);
    for (const ticket of queue) {
      // One that has seen an instance die goes alone, so that it cannot take others along a second time.
      if (goesAlone(ticket) && waiting.length > 0) break;
      waiting.push(ticket);
      rows += ticket.rows;
      if (rows >= capacity || goesAlone(ticket)) break;
    }
    const fixed = limits.batchFixed !== undefined;
    // A run of a model with a fixed batch holds one request, which brings all its rows.
    const counted = waiting.map((ticket) => limits.batchFixed ?? ticket.rows);
    const parts = splitBatch(counted, places);
    let started = 0;
    const taken = waiting.slice(
      0,
      parts.reduce((sum, part) => sum + part.length, 0),
    );
    for (let count = 0; count < taken.length; count++) queue.take();
    const used = parts.filter((part) => part.length > 0).length;
    const cores = idle.map(({ lease }) => lease.cores);
    for (const at of handOverOrder(cores, used > 1 ? currentCore() : undefined)) {
      const tickets = (parts[at] ?? []).flatMap((index) => taken[index] ?? []);
      const instance = idle[at]?.instance;
      if (instance === undefined || tickets.length === 0) continue;
      started++;
      this.#owner.run(this, instance, tickets, !fixed);
    }
    return started > 0;
  }

  /** Whether what waits should wait for company; a timer then pumps again. */
  #waitsForMore(idle: readonly Slot[]): boolean {
    const { queue, latency } = this.#owner;
    const { limits } = this.#owner.pool;
    const timeoutMs = this.#configuration.batchTimeoutMs ?? limits.batchDelayMs;
    const { front } = queue;
    if (timeoutMs === 0 || limits.batchFixed !== undefined || front === undefined || goesAlone(front)) return false;
    const capacity = idle.reduce((sum, { batch }) => sum + batch, 0);
    if (queue.rowsUpTo(capacity) >= capacity) return false;
    const [largest] = idle;
    const runMs = largest === undefined ? 0 : latency.ms(largest.threads, largest.batch);
    let untilMs = queue.earliestArrivalMs() + timeoutMs;
    // Nobody waits for company until it is too late to be on time: a tenth is left for a timer that comes late.
    for (const { arrivalMs, deadlineMs } of queue) {
      if (deadlineMs < Infinity) untilMs = Math.min(untilMs, deadlineMs - runMs - (deadlineMs - arrivalMs) / 10);
    }
    const waitMs = untilMs - performance.now();
    if (waitMs <= 0) return false;
    clearTimeout(this.#batchTimer);
    this.#batchTimer = setTimeout(() => this.pump(), Math.ceil(waitMs));
    return true;
  }

  /** With nobody at work or on the way, those who wait are worth another try at once. */
  #wake(): void {
    if (this.#some('ready') || this.#some('starting')) return;
    for (const slot of this.#slots) if (slot.state === 'down') this.#restart(slot);
  }

  #add(planned: readonly PlannedInstance[], leases: readonly CoreLease[]): Slot[] {
    const slots = planned.flatMap(({ threads, batch, latencyMs }, index): Slot[] => {
      const lease = leases[index];
      if (lease === undefined) return [];
      if (latencyMs !== undefined) this.#owner.latency.expect(threads, batch, latencyMs);
      const state = 'starting';
      return [
        {
          threads,
          batch,
          lease,
          instance: undefined,
          state,
          readySinceMs: 0,
          leavingCause: 'reconfigured',
          deathsInRow: 0,
          restartTimer: undefined,
        },
      ];
    });
    for (const slot of slots) this.#slots.add(slot);
    return slots;
  }

  #assign(configuration: PoolConfiguration): void {
    this.#configuration = configuration;
    const planned = instancesOf(configuration);
    for (const slot of this.#slots) {
      if (slot.state === 'leaving') continue;
      const at = planned.findIndex(({ threads }) => threads === slot.threads);
      const [next] = at === -1 ? [] : planned.splice(at, 1);
      if (next === undefined) continue;
      slot.batch = next.batch;
      if (next.latencyMs !== undefined) this.#owner.latency.expect(next.threads, next.batch, next.latencyMs);
    }
  }

  async #startAll(slots: readonly Slot[]): Promise<void> {
    const outcomes = await Promise.allSettled(slots.map((slot) => this.#start(slot)));
    const failed = outcomes.find((outcome) => outcome.status === 'rejected');
    if (failed === undefined) return;
    for (const slot of slots) this.#leave(slot, 'reconfigured');
    throw failed.reason as CpuError;
  }

  /** Rejects with CpuError; the slot is `down` then. */
  async #start(slot: Slot): Promise<void> {
    slot.state = 'starting';
    const givenUp = (): boolean => slot.state === 'leaving';
    const tries = new LoadTries();
    for (;;) {
      try {
        await this.#load(slot, tries.any);
        return;
      } catch (error) {
        if (givenUp()) throw error;
        if (error instanceof CpuError && tries.mayGoOn(error, this.#owner.hasLoaded())) continue;
        slot.state = 'down';
        this.#owner.settled();
        throw error;
      }
    }
  }

  async #load(slot: Slot, anew: boolean): Promise<void> {
    const { cores } = this.#owner;
    const { spec, limits } = this.#owner.pool;
    const givenUp = (): boolean => slot.state === 'leaving';
    const shared = await this.#owner.sharedModelPath();
    if (givenUp()) throw new CpuError('stopping', 'the configuration has been given up');
    const instance = this.#owner.takeInstance(this, anew);
    if (instance === undefined) throw instanceLimit();
    const startMs = performance.now();
    slot.instance = instance;
    instance.onDead((reason) => this.#lost(slot, instance, reason));
    const { threads, lease } = slot;
    const { sharedProblem } = await instance.load(spec, limits.loadTimeoutMs, {
      threads,
      cores: lease.cores,
      // One thread has nobody to wait for. With every core leased, the host itself would be what spinning is taken from.
      spinning: threads > 1 && lease.exclusive && cores.unleased().length > 0,
      ...(shared === undefined ? {} : { sharedModelPath: shared }),
    });
    if (sharedProblem !== undefined) this.#owner.sharedModelRefused(sharedProblem);
    if (instance.state === 'dead') throw new CpuError('instance-died', 'its instance died as soon as it was loaded');
    if (givenUp()) {
      instance.kill(slot.leavingCause);
      throw new CpuError('stopping', 'the configuration has been given up');
    }
    slot.state = 'ready';
    slot.readySinceMs = performance.now();
    this.#owner.started(startMs);
  }

  #restart(slot: Slot): void {
    clearTimeout(slot.restartTimer);
    slot.restartTimer = undefined;
    this.#start(slot).then(
      () => this.pump(),
      (error: CpuError) => {
        if (slot.state === 'leaving') return;
        slot.deathsInRow++;
        this.#restartLater(slot);
        if (!this.#draining && !this.#some('ready') && !this.#some('starting')) this.#owner.cannotServe(error);
      },
    );
  }

  #restartLater(slot: Slot): void {
    const delayMs = Math.min(
      restartDelayMsMax,
      restartDelayMs * 2 ** Math.max(0, slot.deathsInRow - quickDeathsMax - 1),
    );
    slot.restartTimer = setTimeout(() => this.#restart(slot), delayMs);
    slot.restartTimer.unref();
  }

  /** The process of a slot is gone; what it ran is seen to by its run's outcome. */
  #lost(slot: Slot, instance: Instance, reason: string): void {
    if (slot.instance !== instance) return;
    slot.instance = undefined;
    const wasReady = slot.readySinceMs > 0;
    const ageMs = performance.now() - slot.readySinceMs;
    slot.readySinceMs = 0;
    if (slot.state === 'leaving') {
      this.#remove(slot);
      if (wasReady) this.#owner.ended(slot.leavingCause, ageMs, reason);
    } else if (slot.state === 'ready') {
      slot.state = 'down';
      this.#owner.ended('died', ageMs, reason);
      if (++slot.deathsInRow <= quickDeathsMax) this.#restart(slot);
      else this.#restartLater(slot);
    }
    this.#owner.settled();
    this.#checkDrained();
  }

  #leave(slot: Slot, cause: GiveUpCause): void {
    const { state, instance } = slot;
    if (state === 'leaving') return;
    slot.state = 'leaving';
    slot.leavingCause = cause;
    if (instance === undefined) this.#remove(slot);
    else if (instance.state !== 'busy') instance.kill(cause);
  }

  #remove(slot: Slot): void {
    clearTimeout(slot.restartTimer);
    if (this.#slots.delete(slot)) slot.lease[Symbol.dispose]();
  }

  #slotOf(instance: Instance): Slot | undefined {
    for (const slot of this.#slots) if (slot.instance === instance) return slot;
    return undefined;
  }

  #some(state: Slot['state']): boolean {
    for (const slot of this.#slots) if (slot.state === state) return true;
    return false;
  }

  #checkDrained(): void {
    if (!this.#draining || this.#slots.size > 0) return;
    for (const resolve of this.#drained.splice(0)) resolve();
  }
}

export function instanceLimit(): CpuError {
  return new CpuError('model-load-failed', 'the limit of instances of all functions is reached');
}

/** Who goes first where instances are dropped, last first: those that serve stay, and of these the busy ones. */
function leavingRank({ state, instance }: Slot): number {
  if (state !== 'ready') return 2;
  return instance?.state === 'busy' ? 0 : 1;
}

/** The instances of a configuration that these do not make up yet. */
function missing(configuration: PoolConfiguration, slots: readonly Slot[]): PlannedInstance[] {
  const left = slots.filter(({ state }) => state !== 'leaving').map(({ threads }) => threads);
  return instancesOf(configuration).filter(({ threads }) => {
    const at = left.indexOf(threads);
    if (at === -1) return true;
    left.splice(at, 1);
    return false;
  });
}

/** The threads of the instances that {@link ConfiguredSet.grow} would start, in the order of their leases. */
export function threadsToAdd(from: PoolConfiguration, to: PoolConfiguration): number[] {
  const left = instancesOf(from).map(({ threads }) => threads);
  return instancesOf(to).flatMap(({ threads }) => {
    const at = left.indexOf(threads);
    if (at === -1) return [threads];
    left.splice(at, 1);
    return [];
  });
}
