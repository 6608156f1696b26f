/**
 * A list of instances on a virtual clock, for replays and for predictions of a pool: the calls that wait go when, and to
 * the instances to which, the pool's own would (`batches.ts`).
 */
import { batchDueMs, nextBatch, type BatchCall, type BatchPlace } from './batches.ts';

export interface BatchListOptions<Instance extends BatchPlace, Call extends BatchCall> {
  /** Most threads first. */
  instances: readonly Instance[];
  /** Longest that a call waits for a batch to fill. */
  timeoutMs: number;
  /** Rows of every run, where a model has so many. */
  readonly fixedRows?: number | undefined;
  /** {@link BatchList.decide} is to be called then, too. */
  readonly wake: (atMs: number) => void;
  /** A run of an instance, which has been idle since then, begins beside all that run then. Returns how long it takes. */
  readonly begin: (instance: Instance, calls: readonly Call[], together: number, idleSinceMs: number) => number;
}

export class BatchList<Instance extends BatchPlace, Call extends BatchCall> {
  readonly #options: BatchListOptions<Instance, Call>;
  /** By instance: when its latest run ends. */
  readonly #endsMs = new Map<Instance, number>();
  /** In the order in which their runs began. */
  readonly #busy = new Set<Instance>();
  readonly #waiting: Call[] = [];
  /** When the calls go that wait for a batch to fill. */
  #dueMs = -Infinity;

  constructor(options: BatchListOptions<Instance, Call>) {
    this.#options = { ...options };
  }

  /**
   * Other instances serve from now on, or other ones as well. Runs of those that leave go on. A {@link decide} is to
   * follow.
   */
  become(instances: readonly Instance[], timeoutMs: number): void {
    this.#options.instances = instances;
    this.#options.timeoutMs = timeoutMs;
    this.#dueMs = -Infinity;
    for (const each of this.#endsMs.keys()) {
      if (instances.includes(each)) continue;
      this.#endsMs.delete(each);
      this.#busy.delete(each);
    }
  }

  /** When the run of an instance ends, or its latest one ended; 0: it has had none. */
  endMs(instance: Instance): number {
    return this.#endsMs.get(instance) ?? 0;
  }

  /** The calls that wait, which another list takes instead. */
  take(): Call[] {
    return this.#waiting.splice(0);
  }

  /** A {@link decide} is to follow, once all calls of the instant are there. */
  add(call: Call): void {
    this.#waiting.push(call);
  }

  /** Begins the runs that are to begin now. */
  decide(nowMs: number): void {
    const { instances, timeoutMs, fixedRows, wake } = this.#options;
    this.#freeOne(nowMs);
    while (this.#waiting.length > 0) {
      const idle = instances.filter((each) => !this.#busy.has(each));
      const [largest] = idle;
      if (largest === undefined) return;
      const capacity = idle.reduce((sum, { batch }) => sum + batch, 0);
      const runMs = largest.expectedMs(largest.batch);
      const dueMs = fixedRows === undefined ? batchDueMs(this.#waiting, capacity, timeoutMs, runMs) : -Infinity;
      if (dueMs > nowMs) {
        if (dueMs !== this.#dueMs) wake(dueMs);
        this.#dueMs = dueMs;
        return;
      }
      this.#begin(idle, nextBatch(this.#waiting, idle, fixedRows), nowMs);
    }
  }

  /** Answers come to a pool one after the other, each with a look at the calls that wait. */
  #freeOne(nowMs: number): void {
    let freed: Instance | undefined;
    let freedMs = Infinity;
    for (const each of this.#busy) {
      const endMs = this.#endsMs.get(each)!;
      if (endMs < freedMs) [freed, freedMs] = [each, endMs];
    }
    if (freed !== undefined && freedMs <= nowMs) this.#busy.delete(freed);
  }

  #begin(idle: readonly Instance[], parts: readonly (readonly number[])[], nowMs: number): void {
    const used = idle.flatMap((instance, at) => (parts[at]!.length > 0 ? { instance, part: parts[at]! } : []));
    for (const { instance } of used) this.#busy.add(instance);
    let taken = 0;
    for (const { instance, part } of used) {
      const calls = part.map((call) => this.#waiting[call]!);
      const idleSinceMs = this.#endsMs.get(instance) ?? 0;
      const endMs = nowMs + this.#options.begin(instance, calls, this.#busy.size, idleSinceMs);
      this.#endsMs.set(instance, endMs);
      this.#options.wake(endMs);
      taken += part.length;
    }
    this.#waiting.splice(0, taken);
  }
}
