/**
 * What each instance of a list runs next, and what happens to it afterwards.
 *
 *   - on demand: calls go to an idle instance, ahead of time to a busy one, or start another (queue.ts).
 *   - configured: waiting calls are split among all idle instances (split.ts).
 */
import {
  currentCore,
  heldUpMs,
  type Joining,
  type Replica,
  type RunOrder,
  type RunOutcome,
} from '../instance/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { GiveUpCause, InvokeOthers, PoolConfiguration } from '../types.ts';
import type { ListOwner } from './list-owner.ts';
import { patienceMs } from './queue.ts';
import type { Slot, Slots } from './slot.ts';
import { handOverOrder, splitBatch, type Place } from './split.ts';
import { goesAlone, modelRunOf, type Ticket } from './ticket.ts';

/** Messages that an instance has of one function: the current one and a queued one. */
const messagesMax = 2;

/** The list that owns the instances. */
export interface HandOverList {
  /** Undefined: on demand. */
  readonly configuration: PoolConfiguration | undefined;
  /** On demand: starts one more, if allowed. @param beyond how many more than the limit are allowed */
  grow(beyond?: number): void;
  leave(slot: Slot, cause: GiveUpCause): void;
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

  constructor(pool: ListOwner, slots: Slots, list: HandOverList) {
    this.#pool = pool;
    this.#slots = slots;
    this.#list = list;
  }

  /** How many instances have work. */
  get busy(): number {
    return this.#slots.count(({ replica }) => (replica?.queued ?? 0) > 0);
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

  /** An idle instance whose process has a turn, for a call that finds the queue empty. */
  takeIdle(): Slot | undefined {
    for (const slot of this.#slots.newestFirst()) {
      const { replica, state } = slot;
      if (state !== 'ready' || replica?.state !== 'idle') continue;
      replica.isShort = this.#pool.rule.callsPerMessage() > 1;
      if (replica.takeTurn()) return slot;
      if (replica.isHeldUp(performance.now(), heldUpMs)) this.#list.grow(1);
      else this.later(heldUpMs);
    }
    return undefined;
  }

  /** Runs the tickets on the instance; their outcome goes to {@link ListOwner.finished}. */
  run(slot: Slot, tickets: readonly Ticket[]): void {
    const { replica } = slot;
    if (replica === undefined) return;
    const [first] = tickets;
    const order: RunOrder = {
      join: this.#joining(tickets),
      calls: tickets.map(({ call }) => call),
      tensors: tickets.length === 1 ? first!.tensors : tensorsOf(tickets),
      limits: this.#pool.limits,
      runModel: first && modelRunOf(first),
      invokeOthers: (call) => this.#invokeOthers(tickets, call),
      onStage: (call, stage) => {
        for (const each of stage === 'handler' ? tickets.slice(call, call + 1) : tickets) each.stages?.enter(stage);
      },
    };
    for (const { stages, call } of tickets) stages?.enter(call.kind === 'request' ? 'handler' : 'model');
    this.#pool.handedOver(tickets.length);
    replica.run(order, (outcome) => this.#ran(slot, replica, tickets, outcome));
  }

  /** A run is compared now and then, while nothing waits. */
  #joining({ length }: readonly Ticket[]): Joining {
    const { limits, queue, resources } = this.#pool;
    if (limits.batchMax <= 1 || limits.batchFixed !== undefined || length <= 1) return 'no';
    return queue.length === 0 && Math.random() < resources.comparedShare ? 'compared' : 'joined';
  }

  /** A run of the instance has left its process for a while, or is back. */
  moved(isAway: boolean): void {
    if (isAway) this.#pump();
  }

  /** The other calls of the message wait with the one that calls other functions. */
  #invokeOthers(tickets: readonly Ticket[], call: number): InvokeOthers | undefined {
    this.#pool.rule.invokesOthers = true;
    for (const [index, ticket] of tickets.entries()) if (index !== call) ticket.onBehindOthers?.();
    return tickets[call]?.invokeOthers;
  }

  #ran(slot: Slot, replica: Replica, tickets: readonly Ticket[], outcome: RunOutcome): void {
    const { rule, latency, conduct } = this.#pool;
    if (outcome.kind === 'ran') {
      const { busyMs, loaded, results, takenBytes = 0 } = outcome.result;
      if (takenBytes > 0) this.#took(replica, takenBytes);
      slot.deathsInRow = 0;
      conduct.answered(
        replica.isAlone,
        results.some(({ header }) => header.kind !== 'error'),
      );
      const ownMs = busyMs - (loaded?.loadMs ?? 0);
      if (slot.lease === undefined) rule.ran(tickets.length, ownMs);
      else if (tickets.every(({ modelRun }) => modelRun?.ran !== true)) {
        const rows = tickets.reduce((sum, ticket) => sum + ticket.rows, 0);
        if (rows > 0) latency.observe(slot.threads, rows, busyMs);
      }
      if (replica.state === 'idle') this.#rested(slot, replica);
    }
    this.#pool.finished(replica, tickets, outcome);
  }

  /** A run was given so much memory. */
  #took(replica: Replica, bytes: number): void {
    const { facts, resources, spec } = this.#pool;
    facts.took(bytes);
    // In a process of its own its arena keeps that.
    if (!replica.isAlone) return;
    resources.residency.loaded(replica, Math.max(replica.bytes, facts.expectedBytes(spec) + facts.runBytes));
    resources.factsChanged(spec.key);
  }

  /** An instance has no more work. */
  #rested(slot: Slot, replica: Replica): void {
    const { resources, queue } = this.#pool;
    if (slot.state === 'leaving') this.#list.release(slot, replica);
    else if (slot.lease !== undefined) return;
    else if (this.#isMisplaced(replica)) this.#moveOut(slot);
    else if (replica.isAlone && queue.length === 0 && !this.isToBeAlone(true)) this.#list.leave(slot, 'reconfigured');
    else resources.residency.schedulePump();
  }

  /** It is in a shared process although the function should be alone by now. */
  #isMisplaced({ isAlone }: Replica): boolean {
    return !isAlone && this.isToBeAlone(false);
  }

  isToBeAlone(isNow: boolean): boolean {
    const { conduct, facts, rule, spec } = this.#pool;
    return conduct.isAlone(spec.isolation, facts.expectedBytes(spec) + facts.runBytes, rule.steadyCallMs, isNow);
  }

  /** Starts an instance in a process of its own, which takes over when it is ready. */
  #moveOut(slot: Slot): void {
    const { resources } = this.#pool;
    resources.residency.schedulePump();
    if (this.#slots.count(({ replica }) => replica?.isAlone === true) > 0) this.#list.leave(slot, 'reconfigured');
    else this.#list.grow(1);
  }

  #pumpOnDemand(): void {
    const { queue, rule } = this.#pool;
    while (queue.length > 0) {
      const hasIdle = this.#slots.count(({ state, replica }) => state === 'ready' && replica?.state === 'idle') > 0;
      if (hasIdle && this.#waitsForMore(this.#pool.limits.batchMax, this.#pool.limits.batchDelayMs, undefined)) return;
      const littleWaits = this.busy > 0 && rule.littleWaits(queue, performance.now());
      if (littleWaits) this.later(patienceMs);
      const slot = (littleWaits ? undefined : this.takeIdle()) ?? this.#takeAhead();
      if (slot === undefined) {
        if (!hasIdle && !littleWaits) this.#list.grow();
        return;
      }
      this.run(slot, rule.takeTogether(queue, this.#pool.limits.batchMax));
    }
  }

  /** A busy instance that may get more work queued, or that only waits for models that run elsewhere. */
  #takeAhead(): Slot | undefined {
    let least: Slot | undefined;
    for (const slot of this.#slots) {
      if (slot.state !== 'ready' || slot.replica?.state !== 'busy') continue;
      if (least === undefined || slot.replica.queued < (least.replica?.queued ?? 0)) least = slot;
    }
    const replica = least?.replica;
    // An instance that is to be released gets nothing queued: it would never become idle.
    if (replica === undefined || this.#isMisplaced(replica)) return undefined;
    if (replica.queued >= messagesMax) return undefined;
    replica.isShort = this.#pool.rule.callsPerMessage() > 1;
    return replica.takeTurn() ? least : undefined;
  }

  #pumpConfigured(configuration: PoolConfiguration): void {
    const { queue, latency } = this.#pool;
    while (queue.length > 0) {
      const idle = this.#slots.filter(({ state, replica }) => state === 'ready' && replica?.hasFreeHand === true);
      if (idle.length === 0) {
        this.#list.wake();
        return;
      }
      const capacity = idle.reduce((sum, { batch }) => sum + batch, 0);
      const [largest] = idle;
      const runMs = largest === undefined ? 0 : latency.ms(largest.threads, largest.batch);
      const timeoutMs = configuration.batchTimeoutMs ?? this.#pool.limits.batchDelayMs;
      if (this.#pool.limits.batchFixed === undefined && this.#waitsForMore(capacity, timeoutMs, runMs)) return;
      if (!this.#split(idle, capacity)) return;
    }
  }

  #split(idle: readonly Slot[], capacity: number): boolean {
    const { queue, latency, limits } = this.#pool;
    const places = idle.map(({ threads, batch }): Place => ({
      batch,
      expectedMs: (rows) => latency.ms(threads, rows),
    }));
    const waiting: Ticket[] = [];
    let rows = 0;
    for (const ticket of queue) {
      // A call that has seen an instance die goes alone, so that it cannot fail others a second time.
      if (goesAlone(ticket) && waiting.length > 0) break;
      waiting.push(ticket);
      rows += ticket.rows;
      if (rows >= capacity || goesAlone(ticket)) break;
    }
    // With a fixed batch, a run holds one request, which brings all its rows.
    const parts = splitBatch(
      waiting.map((ticket) => limits.batchFixed ?? ticket.rows),
      places,
    );
    const used = parts.filter((part) => part.length > 0).length;
    for (let count = parts.reduce((sum, part) => sum + part.length, 0); count > 0; count--) queue.take();
    const cores = idle.map(({ lease }) => lease?.cores ?? []);
    for (const at of handOverOrder(cores, used > 1 ? currentCore() : undefined)) {
      const tickets = (parts[at] ?? []).flatMap((index) => waiting[index] ?? []);
      const slot = idle[at];
      if (slot?.replica === undefined || tickets.length === 0) continue;
      slot.replica.takeTurn();
      this.run(slot, tickets);
    }
    return used > 0;
  }

  /**
   * Whether the waiting calls should wait for more, up to `capacity` rows; a timer then pumps again.
   *
   * @param runMs expected time of a run; undefined if deadlines do not matter
   */
  #waitsForMore(capacity: number, timeoutMs: number, runMs: number | undefined): boolean {
    const { queue } = this.#pool;
    const { front } = queue;
    if (timeoutMs === 0 || capacity <= 1 || front === undefined || goesAlone(front)) return false;
    if (queue.rowsUpTo(capacity) >= capacity) return false;
    let untilMs = queue.earliestArrivalMs() + timeoutMs;
    // No call waits so long that it would miss its deadline: a tenth is left for a late timer.
    if (runMs !== undefined) {
      for (const { arrivalMs, deadlineMs } of queue) {
        if (deadlineMs < Infinity) untilMs = Math.min(untilMs, deadlineMs - runMs - (deadlineMs - arrivalMs) / 10);
      }
    }
    const waitMs = untilMs - performance.now();
    if (waitMs <= 0) return false;
    clearTimeout(this.#batchTimer);
    this.#batchTimer = setTimeout(this.#pump, Math.ceil(waitMs));
    return true;
  }

  /** Pumps again after so long. */
  later(ms: number): void {
    this.#patienceTimer ??= setTimeout(() => {
      this.#patienceTimer = undefined;
      this.#pump();
    }, ms);
  }
}
