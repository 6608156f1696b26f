/**
 * Functions' own instances on the CPU, which take calls in batches. When a batch goes, and how it is split, is decided by
 * the code of the live pools (`src/schedule/batches.ts`).
 */
import {
  batchDueMs,
  LatencyBook,
  nextBatch,
  type BatchCall,
  type FunctionId,
  type Given,
  type InvocationId,
  type PoolConfiguration,
} from '../schedule/index.ts';
import { getOrMake } from '../tools/index.ts';

/** Calls of one instant are all there before any of them goes. */
const instantMs = 1e-6;

interface ListCall extends BatchCall {
  readonly invocation: Given<InvocationId>;
}

interface SimulatedInstance {
  readonly batch: number;
  readonly expectedMs: (rows: number) => number;
  freeAtMs: number;
}

interface SimulatedList {
  readonly timeoutMs: number;
  readonly instances: readonly SimulatedInstance[];
  /** In the order in which their runs began. */
  readonly busy: Set<SimulatedInstance>;
  readonly waiting: ListCall[];
}

export interface ListEvents {
  /** A run on an instance, by its place in the list, begins. */
  readonly began: (invocations: readonly Given<InvocationId>[], endMs: number, instance: number) => void;
  /** {@link SimulatedLists.decide} is to be called then. */
  readonly wake: (atMs: number, functionIndex: Given<FunctionId>) => void;
}

export class SimulatedLists {
  readonly #lists = new Map<Given<FunctionId>, SimulatedList>();
  readonly #events: ListEvents;
  /** Rows of every run, where a model has so many. */
  readonly #fixedRows: number | undefined;

  constructor(events: ListEvents, fixedRows?: number) {
    this.#events = events;
    this.#fixedRows = fixedRows;
  }

  add(functionIndex: Given<FunctionId>, configuration: PoolConfiguration, call: ListCall, nowMs: number): void {
    getOrMake(this.#lists, functionIndex, () => listOf(configuration)).waiting.push(call);
    this.#events.wake(nowMs + instantMs, functionIndex);
  }

  /** Sends what is to go now. */
  decide(functionIndex: Given<FunctionId>, nowMs: number): void {
    const { timeoutMs, instances, busy, waiting } = this.#lists.get(functionIndex)!;
    // Answers come to a pool one after the other, each with a look at the calls that wait.
    let freed: SimulatedInstance | undefined;
    for (const each of busy) if (each.freeAtMs < (freed?.freeAtMs ?? Infinity)) freed = each;
    if (freed !== undefined && freed.freeAtMs <= nowMs) busy.delete(freed);
    while (waiting.length > 0) {
      const idle = instances.filter((each) => !busy.has(each));
      const [largest] = idle;
      if (largest === undefined) return;
      const capacity = idle.reduce((sum, { batch }) => sum + batch, 0);
      const runMs = largest.expectedMs(largest.batch);
      const dueMs = this.#fixedRows === undefined ? batchDueMs(waiting, capacity, timeoutMs, runMs) : -Infinity;
      if (dueMs > nowMs) {
        this.#events.wake(dueMs, functionIndex);
        return;
      }
      let taken = 0;
      for (const [at, part] of nextBatch(waiting, idle, this.#fixedRows).entries()) {
        if (part.length === 0) continue;
        const instance = idle[at]!;
        const rows = this.#fixedRows ?? part.reduce((sum, call) => sum + waiting[call]!.rows, 0);
        instance.freeAtMs = nowMs + instance.expectedMs(rows);
        busy.add(instance);
        taken += part.length;
        const invocations = part.map((call) => waiting[call]!.invocation);
        this.#events.began(invocations, instance.freeAtMs, instances.indexOf(instance));
        this.#events.wake(instance.freeAtMs, functionIndex);
      }
      waiting.splice(0, taken);
    }
  }
}

/** The instances one by one: most threads first, then the largest batch first. Runs take what is expected of them. */
function listOf({ groups, batchTimeoutMs = 0 }: PoolConfiguration): SimulatedList {
  const book = new LatencyBook();
  const sorted = groups.toSorted((a, b) => b.threads - a.threads || b.batch - a.batch);
  const instances = sorted.flatMap(({ instances: count, threads, batch, latencyMs }) => {
    if (latencyMs !== undefined) book.expect(threads, batch, latencyMs);
    const expectedMs = (rows: number): number => book.ms(threads, rows);
    return Array.from({ length: count }, () => ({ batch, expectedMs, freeAtMs: 0 }));
  });
  return { timeoutMs: batchTimeoutMs, instances, busy: new Set(), waiting: [] };
}
