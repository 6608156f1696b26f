/** Functions' own instances on the CPU, which take calls in batches. Runs take what is expected of them. */
import {
  BatchList,
  LatencyBook,
  type BatchCall,
  type BatchPlace,
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

export interface ListEvents {
  /** A run on an instance, by its place in the list, begins. */
  readonly began: (invocations: readonly Given<InvocationId>[], runMs: number, instance: number) => void;
  /** {@link SimulatedLists.decide} is to be called then. */
  readonly wake: (atMs: number, functionIndex: Given<FunctionId>) => void;
}

export class SimulatedLists {
  readonly #lists = new Map<Given<FunctionId>, BatchList<BatchPlace, ListCall>>();
  readonly #events: ListEvents;
  /** Rows of every run, where a model has so many. */
  readonly #fixedRows: number | undefined;

  constructor(events: ListEvents, fixedRows?: number) {
    this.#events = events;
    this.#fixedRows = fixedRows;
  }

  add(functionIndex: Given<FunctionId>, configuration: PoolConfiguration, call: ListCall, nowMs: number): void {
    getOrMake(this.#lists, functionIndex, () => this.#listOf(functionIndex, configuration)).add(call);
    this.#events.wake(nowMs + instantMs, functionIndex);
  }

  /** Sends what is to go now. */
  decide(functionIndex: Given<FunctionId>, nowMs: number): void {
    this.#lists.get(functionIndex)!.decide(nowMs);
  }

  /** Its instances one by one: most threads first, then the largest batch first. */
  #listOf(
    functionIndex: Given<FunctionId>,
    { groups, batchTimeoutMs = 0 }: PoolConfiguration,
  ): BatchList<BatchPlace, ListCall> {
    const book = new LatencyBook();
    const sorted = groups.toSorted((a, b) => b.threads - a.threads || b.batch - a.batch);
    const instances = sorted.flatMap(({ instances: count, threads, batch, latencyMs }): BatchPlace[] => {
      if (latencyMs !== undefined) book.expect(threads, batch, latencyMs);
      return Array.from({ length: count }, () => ({ batch, expectedMs: (rows) => book.ms(threads, rows) }));
    });
    const { began, wake } = this.#events;
    return new BatchList({
      instances,
      timeoutMs: batchTimeoutMs,
      fixedRows: this.#fixedRows,
      wake: (atMs) => wake(atMs, functionIndex),
      begin: (instance, calls) => {
        const runMs = instance.expectedMs(this.#fixedRows ?? calls.reduce((sum, { rows }) => sum + rows, 0));
        const invocations = calls.map(({ invocation }) => invocation);
        began(invocations, runMs, instances.indexOf(instance));
        return runMs;
      },
    });
  }
}
