/**
 * What each instance of a list runs next, and what happens to it afterwards. Waiting calls are split among instances
 * (schedule/batches.ts):
 *
 *   - on demand: one that is idle, else ahead of time one that is busy; or another is started (schedule/on-demand.ts).
 *   - configured: all that are idle.
 */
import {
  currentCore,
  handOverOrder,
  heldUpMs,
  type Joining,
  type Replica,
  type RunOrder,
  type RunOutcome,
} from '../instance/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import {
  batchDueMs,
  goesAtOnce,
  idleOnDemand,
  nextBatch,
  nextOnDemand,
  type DemandList,
  type PoolConfiguration,
} from '../../schedule/index.ts';
import type { ListOwner } from './list-owner.ts';
import type { Slot, Slots } from './slot.ts';
import { expectModelRun, type Ticket } from './ticket.ts';

/** A socket read takes 64 KiB; a smaller message is not split and reassembled. */
const togetherBytesMax = 56 * 1024;

/** The list that owns the instances. */
export interface HandOverList {
  /** Undefined: on demand. */
  readonly configuration: PoolConfiguration | undefined;
  /** On demand: starts one more, if allowed. @param beyond how many more than the limit are allowed */
  grow(beyond?: number): void;
  release(slot: Slot, replica: Replica): void;
  /** Calls wait although no instance works. */
  wake(): void;
}

/** A loop, because V8 builds flatMap's array element by element in its runtime. */
function tensorsOf(tickets: readonly Ticket[]): Tensor[] {
  const all: Tensor[] = [];
  for (const { tensors } of tickets) for (const tensor of tensors) all.push(tensor);
  return all;
}

export class HandOver {
  readonly #pool: ListOwner;
  readonly #slots: Slots;
  readonly #list: HandOverList;
  #batchTimer: NodeJS.Timeout | undefined;
  #patienceTimer: NodeJS.Timeout | undefined;
  readonly #pump = (): void => this.#pool.pump();
  readonly #demand: DemandList<Slot>;

  constructor(pool: ListOwner, slots: Slots, list: HandOverList) {
    this.#pool = pool;
    this.#slots = slots;
    this.#list = list;
    this.#demand = {
      pace: pool.pace,
      get limits() {
        return pool.limits;
      },
      instances: slots,
      stateOf: ({ state, replica }) => {
        const { state: does = 'gone' } = replica ?? {};
        return state === 'ready' && (does === 'idle' || does === 'busy') ? does : 'away';
      },
      queuedOf: ({ replica }) => replica?.queued ?? 0,
      takes: (slot) => this.#takes(slot.replica!),
      later: (ms) => this.later(ms),
      fillsUntil: (dueMs) => this.#fillsUntil(dueMs - performance.now()),
      grow: () => this.#grow(),
    };
  }

  /** Sends as many waiting calls as possible. */
  pump(): void {
    const { configuration } = this.#list;
    if (configuration === undefined) this.#pumpOnDemand();
    else this.#pumpConfigured(configuration);
  }

  stop(): void {
    clearTimeout(this.#batchTimer);
    clearTimeout(this.#patienceTimer);
  }

  /** An idle instance whose process has a turn, for a call of so many rows that finds the queue empty. */
  takeIdle(rows: number): Slot | undefined {
    return goesAtOnce(this.#demand, rows) ? idleOnDemand(this.#demand) : undefined;
  }

  /** Whether a process takes a message of the replica now. One that works for another function too long is replaced. */
  #takes(replica: Replica): boolean {
    const isIdle = replica.state === 'idle';
    // An instance that is to be released gets nothing queued: it would never become idle.
    if (!isIdle && this.#isMisplaced(replica)) return false;
    replica.isShort = this.#pool.pace.isShort;
    if (replica.takes()) return true;
    if (!isIdle) return false;
    if (replica.stuckOn(performance.now(), heldUpMs) === 'other') this.#list.grow(1);
    else this.later(heldUpMs);
    return false;
  }

  /** Runs the tickets on the instance; their outcome goes to {@link ListOwner.finished}. */
  run(slot: Slot, tickets: readonly Ticket[]): void {
    const { replica } = slot;
    if (replica === undefined) return;
    for (const ticket of tickets) {
      expectModelRun(ticket);
      ticket.stages?.enter(ticket.call.kind === 'request' ? 'handler' : 'model');
    }
    const order: RunOrder = {
      join: this.#joining(tickets),
      calls: tickets,
      tensors: tickets.length === 1 ? tickets[0]!.tensors : tensorsOf(tickets),
      limits: this.#pool.limits,
    };
    this.#pool.handedOver(tickets.length);
    // Its calls are those that it was handed.
    replica.run(order, (outcome, calls) => this.#ran(slot, replica, calls as readonly Ticket[], outcome));
  }

  /** A run is compared now and then, while nothing waits. A single call may come back for its model together with others. */
  #joining([first, second]: readonly Ticket[]): Joining {
    const { limits, waiting, resources } = this.#pool;
    const isSingle = second === undefined && (first?.runModel === undefined || first.isSuspect);
    if (limits.batchMax <= 1 || limits.batchFixed !== undefined || isSingle) return 'no';
    return waiting.length === 0 && Math.random() < resources.comparedShare ? 'compared' : 'joined';
  }

  /** A run of the instance has left its process for a while, or is back. */
  moved(isAway: boolean): void {
    if (isAway) this.#pump();
  }

  #ran(slot: Slot, replica: Replica, tickets: readonly Ticket[], outcome: RunOutcome): void {
    const { pace, latency, conduct } = this.#pool;
    if (outcome.kind === 'ran') {
      const { busyMs, loaded, results } = outcome.result;
      this.#pool.resources.processes.ran(replica);
      slot.deathsInRow = 0;
      conduct.answered(
        replica.isAlone,
        results.some(({ header }) => header.kind !== 'error'),
      );
      const ownMs = busyMs - (loaded?.loadMs ?? 0);
      if (slot.lease === undefined || tickets.some(({ modelRun }) => modelRun?.ran === true)) {
        pace.ran(tickets.length, ownMs);
      } else {
        const rows = tickets.reduce((sum, ticket) => sum + ticket.rows, 0);
        if (rows > 0) latency.observe(slot.threads, rows, busyMs);
      }
      if (replica.state === 'idle') this.#rested(slot, replica);
    }
    this.#pool.finished(replica, tickets, outcome);
  }

  /** An instance has no more work. */
  #rested(slot: Slot, replica: Replica): void {
    const { waiting } = this.#pool;
    if (slot.state === 'leaving') this.#list.release(slot, replica);
    else if (slot.lease !== undefined) return;
    else if (this.#isMisplaced(replica)) this.#moveOut(slot);
    else if (replica.isAlone && waiting.length === 0 && !this.isToBeAlone(true))
      this.#slots.leave(slot, 'reconfigured');
  }

  /** It is in a shared process although the function should be alone by now. */
  #isMisplaced({ isAlone }: Replica): boolean {
    return !isAlone && this.isToBeAlone(false);
  }

  /**
   * Starts one more instance for the calls that wait. A function holds at most one shared process while nobody knows
   * whether its calls hold a process up: if its first calls never end, other functions still have the other processes.
   */
  #grow(): void {
    const { callMs = Infinity } = this.#pool.pace;
    const sharedBusy = this.#slots.count(({ replica }) => replica?.isAlone === false && replica.state === 'busy');
    const mayHoldUp = callMs >= heldUpMs && sharedBusy > 0;
    if (!mayHoldUp || this.holdsUp || this.isToBeAlone(false)) this.#list.grow();
    else this.later(heldUpMs);
  }

  /** Whether it holds up a shared process now. Until that ends, further instances get processes of their own. */
  get holdsUp(): boolean {
    const nowMs = performance.now();
    const holds = (replica: Replica): boolean => !replica.isAlone && replica.stuckOn(nowMs, heldUpMs) === 'this';
    return this.#slots.count(({ replica }) => replica !== undefined && holds(replica)) > 0;
  }

  isToBeAlone(isNow: boolean): boolean {
    const { conduct, facts, pace, spec } = this.#pool;
    // What holds up a process has a process of its own before its pace is steady, and is not to start anew each time.
    const callMs = isNow ? pace.callMs : pace.steadyCallMs;
    return conduct.isAlone(spec.isolation, facts.sessionBytes(spec) + facts.runBytes(spec), callMs, isNow);
  }

  /** Starts an instance in a process of its own, which takes over when it is ready. */
  #moveOut(slot: Slot): void {
    if (this.#slots.count(({ replica }) => replica?.isAlone === true) > 0) this.#slots.leave(slot, 'reconfigured');
    else this.#list.grow(1);
  }

  #pumpOnDemand(): void {
    const { waiting, limits } = this.#pool;
    while (waiting.length > 0) {
      const slot = nextOnDemand(waiting, this.#demand, performance.now());
      if (slot === undefined) return;
      if (!this.#send([slot], limits.batchMax, limits.batchMax > 1)) return;
    }
  }

  #pumpConfigured({ batchTimeoutMs }: PoolConfiguration): void {
    const { waiting, latency, limits } = this.#pool;
    while (waiting.length > 0) {
      const idle = this.#slots.serving.filter(
        ({ state, replica }) => state === 'ready' && replica?.startsAtOnce === true,
      );
      const [largest] = idle;
      if (largest === undefined) {
        this.#list.wake();
        return;
      }
      const capacity = idle.reduce((sum, { batch }) => sum + batch, 0);
      const timeoutMs = limits.batchFixed === undefined ? (batchTimeoutMs ?? limits.batchDelayMs) : 0;
      if (this.#waitsForMore(capacity, timeoutMs, latency.ms(largest.threads, largest.batch))) return;
      if (!this.#send(idle, capacity, true)) return;
    }
  }

  /** @param capacity rows that these idle instances take @param inBatches calls share runs of the model, where they can */
  #send(slots: readonly Slot[], capacity: number, inBatches: boolean): boolean {
    const { first } = this.#pool.waiting;
    return inBatches && first?.runModel === undefined ? this.#split(slots, capacity) : this.#sendTogether(slots[0]!);
  }

  /** Sends the first waiting calls to these instances, which have room for so many rows. */
  #split(slots: readonly Slot[], capacity: number): boolean {
    const { waiting, latency, limits } = this.#pool;
    waiting.dropGone(performance.now(), capacity);
    const places = slots.map(({ lease, threads, batch }) => ({
      // Limits may have changed since an instance on demand was started.
      batch: lease === undefined ? capacity : batch,
      expectedMs: (rows: number) => latency.ms(threads, rows),
    }));
    const parts = nextBatch(waiting, places, limits.batchFixed);
    const used = parts.filter((part) => part.length > 0).length;
    const tickets = waiting.take(parts.reduce((sum, part) => sum + part.length, 0));
    const cores = slots.map(({ lease }) => lease?.cores ?? []);
    for (const at of handOverOrder(cores, used > 1 ? currentCore() : undefined)) {
      const part = parts[at]!.map((index) => tickets[index]!);
      if (part.length > 0) this.run(slots[at]!, part);
    }
    return used > 0;
  }

  /** Sends the first waiting calls as one message, in which each has a run of its own, all here or all elsewhere. */
  #sendTogether(slot: Slot): boolean {
    const { waiting, pace } = this.#pool;
    const most = pace.callsPerMessage;
    let count = 0;
    let bytes = 0;
    waiting.dropGone(performance.now(), most);
    const isElsewhere = waiting.first?.runModel !== undefined;
    for (const { bytes: own, isSuspect, runModel } of waiting) {
      bytes += own;
      const isOther = isSuspect || (runModel !== undefined) !== isElsewhere;
      if (count > 0 && (count === most || bytes > togetherBytesMax || isOther)) break;
      count++;
      if (isSuspect) break;
    }
    if (count > 0) this.run(slot, waiting.take(count));
    return count > 0;
  }

  /** Whether the waiting calls wait for more, as {@link batchDueMs} says; a timer then pumps again. */
  #waitsForMore(capacity: number, timeoutMs: number, runMs: number): boolean {
    const waitMs = batchDueMs(this.#pool.waiting, capacity, timeoutMs, runMs) - performance.now();
    if (waitMs > 0) this.#fillsUntil(waitMs);
    return waitMs > 0;
  }

  #fillsUntil(waitMs: number): void {
    clearTimeout(this.#batchTimer);
    this.#batchTimer = setTimeout(this.#pump, Math.ceil(waitMs));
  }

  /** Pumps again after so long. */
  later(ms: number): void {
    this.#patienceTimer ??= setTimeout(() => {
      this.#patienceTimer = undefined;
      this.#pump();
    }, ms);
  }
}
