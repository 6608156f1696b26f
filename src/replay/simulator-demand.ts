/**
 * A function's instances on demand on a virtual clock: they take the calls that wait when, and in the batches in which,
 * those of a pool do (`schedule/on-demand.ts`). Each has a process of its own, as a function with longer runs gets it.
 */
import type { PoolTables } from '../cpu/index.ts';
import {
  goesAtOnce,
  idleOnDemand,
  mayGrow,
  nextBatch,
  nextOnDemand,
  Pace,
  type BatchCall,
  type DemandList,
} from '../schedule/index.ts';

/** Calls of one instant are all there before any of them goes, but for one that goes at once. */
export const instantMs = 1e-6;

/** How a function's list of instances follows its load. */
export interface SwapOptions {
  readonly tables: PoolTables;
  readonly sloMs: number;
  /** Rows that each call brings: more than one where a model has so many. */
  readonly rowsPerCall: number;
}

/** What a function runs on demand. */
export interface DemandOptions {
  readonly limits: DemandList<never>['limits'];
  /** Milliseconds of a run of so many rows, as one of `together` (default 1); never falls with more of either. */
  readonly msOf: (rows: number, together?: number) => number;
  /** Its list of instances follows its load; undefined: it stays on demand. */
  readonly swaps?: SwapOptions | undefined;
}

export interface DemandEvents<Call> {
  /** {@link SimulatedDemand.decide} is to be called then. */
  readonly wake: (atMs: number) => void;
  /** A run is sent to the instance with this number, counted as they came; it begins, now or later, and ends. */
  readonly began: (calls: readonly Call[], startMs: number, endMs: number, instance: number) => void;
  /** Asks for one more instance. Returns when it will be ready; undefined: there is no room for it. */
  readonly grow: () => number | undefined;
}

interface Message {
  readonly calls: number;
  readonly ms: number;
  readonly endMs: number;
  readonly isLong: boolean;
  /** Counts them: of two that end at once, the one that was sent first is answered first. */
  readonly sequence: number;
}

interface DemandInstance {
  readonly number: number;
  readonly readyMs: number;
  /** The one that runs, and those queued behind it. */
  readonly messages: Message[];
  isReady: boolean;
}

export class SimulatedDemand<Call extends BatchCall> {
  readonly #options: DemandOptions;
  readonly #events: DemandEvents<Call>;
  readonly #waiting: Call[] = [];
  readonly #pace = new Pace();
  readonly #instances = new Set<DemandInstance>();
  readonly #list: DemandList<DemandInstance>;
  #started = 0;
  #sent = 0;
  #nowMs = 0;
  /** When the waiting calls are to be looked at: some have come, little waited, a batch is to go. */
  #newMs = Infinity;
  #laterMs = Infinity;
  #dueMs = Infinity;

  constructor(options: DemandOptions, events: DemandEvents<Call>) {
    this.#options = options;
    this.#events = events;
    this.#list = {
      pace: this.#pace,
      limits: options.limits,
      instances: this.#instances,
      stateOf: ({ isReady, messages }) => (!isReady ? 'away' : messages.length > 0 ? 'busy' : 'idle'),
      queuedOf: ({ messages }) => messages.length,
      takes: ({ messages }) => messages.length === 0 || (this.#pace.isShort && !messages.some(({ isLong }) => isLong)),
      later: (ms) => {
        if (this.#laterMs === Infinity) this.#laterMs = this.#wake(this.#nowMs + ms);
      },
      fillsUntil: (dueMs) => {
        if (dueMs !== this.#dueMs) this.#dueMs = this.#wake(dueMs);
      },
      grow: () => this.#grow(),
    };
  }

  get size(): number {
    return this.#instances.size;
  }

  /** What a call takes of an instance; undefined before the first. */
  get callMs(): number | undefined {
    return this.#pace.callMs;
  }

  /** All instances go. Returns when the runs of each end, and the calls that wait, which others take. */
  leave(): { readonly endsMs: readonly number[]; readonly waiting: readonly Call[] } {
    const endsMs = Array.from(this.#instances, ({ messages }) => messages.at(-1)?.endMs ?? 0);
    this.give('all');
    return { endsMs, waiting: this.#waiting.splice(0) };
  }

  /** One more instance is there, or will be at that instant. */
  start(readyMs: number): void {
    this.#instances.add({ number: this.#started++, readyMs, messages: [], isReady: false });
    this.#wake(readyMs);
  }

  /** Instances have gone: all, or one that it can do without. What runs in them ends as it would have. */
  give(what: 'one' | 'all'): void {
    if (what === 'all') {
      this.#instances.clear();
      return;
    }
    const idleFirst = [...this.#instances].sort((a, b) => a.messages.length - b.messages.length);
    const given = idleFirst.find(({ isReady }) => isReady === this.#ready > 1);
    if (given !== undefined) this.#instances.delete(given);
  }

  add(call: Call, nowMs: number): void {
    this.#nowMs = nowMs;
    const isFirst = this.#waiting.length === 0 && goesAtOnce(this.#list, call.rows);
    const idle = isFirst ? idleOnDemand(this.#list) : undefined;
    if (idle !== undefined) this.#send(idle, [call]);
    else {
      this.#waiting.push(call);
      this.#newMs = this.#wake(nowMs + instantMs);
    }
  }

  /** Sends what is to go now; does nothing where nothing has changed since. */
  decide(nowMs: number): void {
    this.#nowMs = nowMs;
    // Answers come one after the other, each with a look at the calls that wait.
    while (this.#endOne()) this.#pump();
    let isToLook = false;
    for (const instance of this.#instances) {
      isToLook ||= !instance.isReady && instance.readyMs <= nowMs;
      instance.isReady ||= instance.readyMs <= nowMs;
    }
    if (nowMs < Math.min(this.#newMs, this.#laterMs, this.#dueMs) && !isToLook) return;
    if (nowMs >= this.#newMs) this.#newMs = Infinity;
    if (nowMs >= this.#laterMs) this.#laterMs = Infinity;
    if (nowMs >= this.#dueMs) this.#dueMs = Infinity;
    this.#pump();
  }

  get #ready(): number {
    let ready = 0;
    for (const { isReady } of this.#instances) if (isReady) ready++;
    return ready;
  }

  #endOne(): boolean {
    let first: DemandInstance | undefined;
    let message: Message | undefined;
    for (const each of this.#instances) {
      const [next] = each.messages;
      if (next === undefined || next.endMs > this.#nowMs) continue;
      if (message !== undefined && (next.endMs - message.endMs || next.sequence - message.sequence) > 0) continue;
      [first, message] = [each, next];
    }
    if (first === undefined || message === undefined) return false;
    first.messages.shift();
    this.#pace.ran(message.calls, message.ms);
    return true;
  }

  #pump(): void {
    const waiting = this.#waiting;
    const { limits, msOf } = this.#options;
    while (waiting.length > 0) {
      const instance = nextOnDemand(waiting, this.#list, this.#nowMs);
      if (instance === undefined) return;
      const [part = []] = nextBatch(waiting, [{ batch: limits.batchMax, expectedMs: msOf }], undefined);
      if (part.length === 0) return;
      this.#send(instance, waiting.splice(0, part.length));
    }
  }

  #send(instance: DemandInstance, calls: readonly Call[]): void {
    const { messages, number } = instance;
    const startMs = messages.at(-1)?.endMs ?? this.#nowMs;
    let rows = 0;
    for (const call of calls) rows += call.rows;
    let together = 1;
    for (const each of this.#instances) if (each !== instance && each.messages.length > 0) together++;
    const ms = this.#options.msOf(rows, together);
    messages.push({
      calls: calls.length,
      ms,
      endMs: startMs + ms,
      isLong: !this.#pace.isShort,
      sequence: this.#sent++,
    });
    this.#events.began(calls, startMs, startMs + ms, number);
    this.#wake(startMs + ms);
  }

  #grow(): void {
    const isStarting = this.#ready < this.size;
    if (!mayGrow(isStarting, this.#ready, this.#options.limits.instancesMax)) return;
    const readyMs = this.#events.grow();
    if (readyMs !== undefined) this.start(readyMs);
  }

  #wake(atMs: number): number {
    this.#events.wake(atMs);
    return atMs;
  }
}
