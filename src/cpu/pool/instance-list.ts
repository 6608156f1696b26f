/**
 * The instances of a pool: how they start and end. hand-over.ts decides what each runs next, list-swaps.ts which of them
 * serve. They are of one of two kinds:
 *
 *   - configured: as many as the list says, each in its own process on its own cores. One that dies is started again.
 *   - on demand: one group that grows while calls wait and shrinks when they stop. Its instances share the cores
 *     without a lease, and their processes with other functions, unless the function is to be alone (conduct.ts).
 */
import { setTimeout as delay } from 'node:timers/promises';
import { processesShort } from '../../hardware/index.ts';
import { needOfLoad, type Replica, type ReplicaEnd, type Reservation } from '../instance/index.ts';
import { backoffMs } from '../../tools/index.ts';
import { mayGrow } from '../../schedule/index.ts';
import { CpuError, type GiveUpCause, type PoolConfiguration } from '../types.ts';
import type { PlannedInstance } from './configuration.ts';
import type { CoreLease } from './cores.ts';
import { HandOver } from './hand-over.ts';
import type { ListOwner } from './list-owner.ts';
import { LoadTries } from './load-tries.ts';
import type { SwapOwner } from './list-swaps.ts';
import { leavingRank, makeSlot, Slots, type Slot } from './slot.ts';

/** Deaths of one configured instance without an answer between them, after which its restart is delayed. */
const quickDeathsMax = 3;
/** Doubled with each further death or failed start, up to a maximum. */
const restartDelayMs = 1000;
const restartDelayMsMax = 30_000;

export class InstanceList implements SwapOwner<Slot> {
  readonly #pool: ListOwner;
  readonly slots: Slots;
  readonly handOver: HandOver;
  readonly #drained: (() => void)[] = [];
  /** Sessions whose memory is being freed. */
  readonly #releasing = new Set<Promise<void>>();
  readonly leavingRank = leavingRank;
  readonly #pump = (): void => this.#pool.pump();

  constructor(pool: ListOwner) {
    this.#pool = pool;
    this.slots = new Slots(pool.resources.cores, pool.spec.key, this);
    this.handOver = new HandOver(pool, this.slots, this);
  }

  /** Undefined: on demand. */
  get configuration(): PoolConfiguration | undefined {
    return this.slots.configuration;
  }

  /** Starts every one of these. Rejects with the first {@link CpuError}. */
  async start(slots: readonly Slot[], reservation: Reservation): Promise<void> {
    const outcomes = await Promise.allSettled(slots.map((slot) => this.#start(slot, reservation)));
    reservation[Symbol.dispose]();
    const failed = outcomes.find((outcome) => outcome.status === 'rejected');
    if (failed !== undefined) throw failed.reason as CpuError;
  }

  /**
   * On demand: starts one more instance, if there is room and none is starting.
   *
   * @param beyond how many more than the limit are allowed while one replaces another
   */
  grow(beyond = 0): void {
    const { conduct } = this.#pool;
    const instancesMax = this.#pool.limits.instancesMax + beyond;
    if (!mayGrow(this.slots.some('starting'), this.slots.ready, instancesMax)) return;
    if (this.#isStopped) return;
    const waitMs = conduct.waitMs(performance.now());
    if (waitMs > 0) {
      this.handOver.later(waitMs);
      return;
    }
    const slot = this.#addOnDemand();
    this.#start(slot).then(this.#pump, (error: CpuError) => {
      this.slots.remove(slot);
      if (!(error instanceof NoRoom) && slot.state !== 'leaving') this.#pool.cannotServe(error);
      this.#checkDrained();
    });
  }

  /** Releases one instance of several that are ready: an idle one if there is one. The last one stays. */
  giveOne(cause: GiveUpCause): void {
    const ready = this.slots.serving.filter(({ state }) => state === 'ready');
    const [first] = ready.sort((a, b) => leavingRank(b) - leavingRank(a));
    if (first !== undefined && ready.length > 1) this.slots.leave(first, cause);
  }

  /** Resolves when none of those that leave is left. */
  whenDrained(): Promise<void> {
    return new Promise((resolve) => {
      this.#drained.push(resolve);
      this.#checkDrained();
    });
  }

  /** Ends everything now. */
  end(reason: string): void {
    this.handOver.stop();
    for (const slot of this.slots.all) {
      slot.state = 'leaving';
      this.slots.remove(slot);
      // A shared process, with the messages that it has, ends only when all pools stop.
      if (slot.replica?.isAlone === true) slot.replica.instance.kill(reason);
      else void slot.replica?.release(reason);
    }
    this.#checkDrained();
  }

  /** If no instance works or is starting, the waiting calls are worth another try at once. */
  wake(): void {
    if (this.slots.some('ready') || this.slots.some('starting')) return;
    for (const slot of this.slots) if (slot.state === 'down') this.#restart(slot);
  }

  make(planned: PlannedInstance, lease?: CoreLease): Slot {
    this.#expect(planned);
    return makeSlot(planned, lease);
  }

  adopt(slot: Slot, planned: PlannedInstance): void {
    slot.batch = planned.batch;
    this.#expect(planned);
  }

  #expect({ threads, batch, latencyMs }: PlannedInstance): void {
    if (latencyMs !== undefined) this.#pool.latency.expect(threads, batch, latencyMs);
  }

  #addOnDemand(): Slot {
    const { spec, limits } = this.#pool;
    const slot = this.make({ threads: spec.threads, batch: limits.batchMax });
    this.slots.add(slot);
    return slot;
  }

  /** Rejects with CpuError; the slot is then `down`. */
  async #start(slot: Slot, reservation?: Reservation): Promise<void> {
    const givenUp = (): boolean => slot.state === 'leaving';
    if (givenUp()) throw new GivenUp();
    slot.state = 'starting';
    const tries = new LoadTries();
    for (;;) {
      slot.lastEnd = undefined;
      try {
        await this.#load(slot, tries.any, reservation);
        return;
      } catch (error) {
        if (givenUp()) throw error;
        const hasLoaded = this.#pool.facts.startMs !== undefined;
        const short = error instanceof CpuError && error.code === 'instance-died' ? processesShort() : undefined;
        const isToTry = error instanceof CpuError && short === undefined;
        const mayGoOn = isToTry && tries.mayGoOn(error, hasLoaded, isBystander(slot.lastEnd));
        if (mayGoOn && !this.#isStopped) {
          if (tries.pauseMs > 0) await delay(tries.pauseMs);
          if (givenUp()) throw error;
          continue;
        }
        slot.state = 'down';
        this.#pool.settled();
        if (short !== undefined) throw new CpuError('model-load-failed', `${(error as CpuError).message}: ${short}`);
        throw error;
      }
    }
  }

  async #load(slot: Slot, anew: boolean, reservation: Reservation | undefined): Promise<void> {
    const { facts, resources, spec, limits } = this.#pool;
    const { processes, cores, loads, weights } = resources;
    const { threads, lease } = slot;
    const isFirst = (): boolean => this.#pool.needsFirst && this.slots.instances === 0;
    let startMs = performance.now();
    const lazily = lease === undefined && this.#pool.handlerSuffices();
    // A model that is loaded a second time is worth preparing; that happens in the background, for later loads. A load
    // of 25 MB then takes 12 ms of the processor instead of 34.
    if (lease === undefined && facts.startMs !== undefined && !lazily) weights?.prepareBehind(spec);
    const isReady = lease !== undefined || weights?.isKnown(spec) === true;
    const shared = isReady ? await weights?.prepared(spec) : undefined;
    const open = (): Replica | undefined => {
      if (slot.state === 'leaving') return undefined;
      const isAlone = lease !== undefined || this.handOver.isToBeAlone(false) || this.handOver.holdsUp;
      slot.replica = processes.open({
        spec,
        isAlone,
        isLeased: lease !== undefined,
        anew,
        bytes: facts.sessionBytes(spec),
        runBytes: facts.runBytes(spec),
        isFirst: isFirst(),
        reservation,
        besides: this.slots.all.flatMap((other) => other.replica?.instance ?? []),
        onWeighed: (runBytes) => {
          facts.weighed(runBytes);
          resources.factsChanged(spec.key);
        },
        onTurn: this.#pump,
        onMove: (isAway) => this.handOver.moved(isAway),
        onEnd: (ended, end) => this.#lost(slot, ended, end),
      });
      return slot.replica;
    };
    using load = await loads.enter({
      need: needOfLoad(lazily ? 0 : (spec.modelBytes ?? 0), shared !== undefined),
      open,
      waits: () => slot.state !== 'leaving' && isFirst(),
    });
    if (load === undefined) {
      processes.forget(spec.key);
      throw new NoRoom();
    }
    const replica = load.opened;
    replica.onEndangered = () => void this.#moveAway(slot);
    if (lease !== undefined) startMs = performance.now();
    const { loadMs, bytes, disk, sharedProblem } = await replica.load(
      limits.loadTimeoutMs,
      {
        threads,
        ...(lease === undefined ? {} : { cores: lease.cores }),
        // A single thread has no other to wait for. With every core leased, spinning would take time from the host
        // itself.
        spinning: lease !== undefined && threads > 1 && lease.exclusive && cores.unleased().length > 0,
        isAlone: replica.isAlone,
        ...(shared === undefined ? {} : { sharedModelPath: shared }),
      },
      lazily,
    );
    if (disk !== undefined) resources.events.onDiskWait?.({ key: spec.key, ...disk });
    if (sharedProblem !== undefined) weights?.refuse(spec, sharedProblem);
    processes.loaded(replica, lazily ? Math.max(bytes, 0) : facts.loaded(spec, loadMs, bytes));
    if (slot.state === 'leaving') {
      this.release(slot, replica);
      throw new GivenUp();
    }
    slot.state = 'ready';
    if (lease === undefined && replica.isAlone && this.handOver.isToBeAlone(false)) this.#leaveShared();
    this.#pool.started(startMs, replica.holdsModel);
  }

  /** The function is to have its own process: its replicas in shared ones are released. */
  #leaveShared(): void {
    for (const slot of this.slots) if (slot.replica?.isAlone === false) this.slots.leave(slot, 'reconfigured');
  }

  /** The process of the slot's replica may soon be ended for another function: one elsewhere takes over. */
  async #moveAway(slot: Slot): Promise<void> {
    const { conduct } = this.#pool;
    if (slot.state !== 'ready' || this.slots.some('starting')) return;
    const process = slot.replica?.instance;
    if (this.slots.count(({ state, replica }) => state === 'ready' && replica?.instance !== process) > 0) {
      this.slots.leave(slot, 'reconfigured');
      return;
    }
    if (this.#isStopped || conduct.waitMs(performance.now()) > 0) return;
    const other = this.#addOnDemand();
    try {
      await this.#start(other);
      this.slots.leave(slot, 'reconfigured');
      this.#pump();
    } catch {
      // It stays where it is; if its process is ended, it is replaced like any other.
      this.slots.remove(other);
      this.#checkDrained();
    }
  }

  get #isStopped(): boolean {
    return this.#pool.conduct.stopped(performance.now()) !== undefined;
  }

  #restart(slot: Slot): void {
    clearTimeout(slot.restartTimer);
    slot.restartTimer = undefined;
    if (this.#isStopped) return;
    this.#start(slot).then(this.#pump, (error: CpuError) => {
      if (slot.state === 'leaving') return;
      slot.deathsInRow++;
      this.#restartLater(slot);
      if (!this.slots.some('ready') && !this.slots.some('starting')) this.#pool.cannotServe(error);
    });
  }

  #restartLater(slot: Slot): void {
    const delayMs = backoffMs(restartDelayMs, slot.deathsInRow - quickDeathsMax - 1, restartDelayMsMax);
    slot.restartTimer = setTimeout(() => this.#restart(slot), delayMs);
    slot.restartTimer.unref();
  }

  /** The replica of a slot is gone; the outcome of its run takes care of its calls. */
  #lost(slot: Slot, replica: Replica, end: ReplicaEnd): void {
    if (slot.replica !== replica) return;
    slot.replica = undefined;
    if (!end.isExpected) slot.lastEnd = end;
    const nowMs = performance.now();
    if (end.isSuspect) {
      this.#pool.conduct.ended(replica.isAlone, nowMs);
      // It could end other shared processes that it is in as well.
      if (!replica.isAlone) this.#leaveShared();
    }
    const { crash } = end;
    const stopped = crash && this.#pool.conduct.crashed(crash, end.reason, replica.isAlone, nowMs);
    const wasReady = replica.readySinceMs > 0;
    const ageMs = nowMs - replica.readySinceMs;
    if (slot.state === 'leaving') {
      this.slots.remove(slot);
      if (wasReady) this.#pool.ended(slot.leavingCause, ageMs, end.reason);
    } else if (slot.state === 'ready') {
      this.#pool.ended('died', ageMs, reasonText(end));
      this.#replace(slot, replica);
    }
    if (stopped !== undefined) this.#pool.stopped(stopped);
    this.#pool.settled();
    this.#checkDrained();
  }

  /** A pool in use keeps its size when an instance dies, so that the next invocation need not wait for a load. */
  #replace(slot: Slot, { holdsModel }: Replica): void {
    slot.state = 'down';
    if (slot.lease !== undefined) {
      if (++slot.deathsInRow <= quickDeathsMax) this.#restart(slot);
      else this.#restartLater(slot);
      return;
    }
    this.slots.remove(slot);
    if (this.#pool.conduct.mayReplace && !this.#isStopped) this.#pool.replace(holdsModel);
  }

  ends(slot: Slot, cause: GiveUpCause): void {
    const { replica } = slot;
    slot.state = 'leaving';
    slot.leavingCause = cause;
    if (replica === undefined) this.slots.remove(slot);
    else if (replica.state !== 'busy') this.release(slot, replica);
  }

  release(slot: Slot, replica: Replica): void {
    const released = replica.release(slot.leavingCause);
    this.#releasing.add(released);
    void this.#afterRelease(released);
  }

  async #afterRelease(released: Promise<void>): Promise<void> {
    await released;
    this.#releasing.delete(released);
    this.#checkDrained();
  }

  #checkDrained(): void {
    if (this.slots.leaving.size > 0 || this.#releasing.size > 0) return;
    for (const resolve of this.#drained.splice(0)) resolve();
  }
}

export const noRoomText = 'there is no room for it in the memory that all functions share (cpu.memory)';

/** Memory is full of busy sessions, or other functions have waited longer. */
class NoRoom extends CpuError {
  constructor() {
    super('model-load-failed', noRoomText);
  }
}

class GivenUp extends CpuError {
  constructor() {
    super('stopping', 'the configuration has been given up');
  }
}

/** Why a process is gone, for the log of a function that was in it. */
function reasonText({ reason, crash, culprit }: ReplicaEnd): string {
  if (crash !== undefined) return `${reason} ${crash.during}`;
  return culprit === undefined || reason.includes(culprit) ? reason : `${reason} while it worked for ${culprit}`;
}

/** Whether a process ended during a load for a reason that has nothing to do with the load. */
function isBystander(end: ReplicaEnd | undefined): boolean {
  return end !== undefined && !end.isSuspect;
}
