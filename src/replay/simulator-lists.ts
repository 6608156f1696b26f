/**
 * Functions' instances on the CPU that take calls in batches: their own, or on demand. Runs take what is expected of
 * them.
 */
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
import { instantMs, SimulatedDemand, type DemandOptions } from './simulator-demand.ts';

export interface ListCall extends BatchCall {
  readonly invocation: Given<InvocationId>;
}

export interface ListEvents {
  /** A run on an instance, by its place in the list, is sent: it begins, now or behind another one, and ends. */
  readonly began: (
    invocations: readonly Given<InvocationId>[],
    startMs: number,
    endMs: number,
    instance: number,
  ) => void;
  /** {@link SimulatedLists.decide} is to be called then. */
  readonly wake: (atMs: number, functionIndex: Given<FunctionId>) => void;
  /** Asks for one more instance on demand. Returns when it will be ready; undefined: there is no room for it. */
  readonly grow: (functionIndex: Given<FunctionId>) => number | undefined;
}

export class SimulatedLists {
  readonly #lists = new Map<Given<FunctionId>, BatchList<BatchPlace, ListCall>>();
  readonly #demands = new Map<Given<FunctionId>, SimulatedDemand<ListCall>>();
  #nowMs = 0;
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

  /** The function joins calls on demand. */
  addOnDemand(functionIndex: Given<FunctionId>, options: DemandOptions): void {
    const { began, wake, grow } = this.#events;
    const demand = new SimulatedDemand<ListCall>(options, {
      wake: (atMs) => wake(atMs, functionIndex),
      began: (calls, ...run) => {
        const invocations = calls.map(({ invocation }) => invocation);
        began(invocations, ...run);
      },
      grow: () => grow(functionIndex),
    });
    this.#demands.set(functionIndex, demand);
  }

  /** Undefined: it joins none. */
  onDemand(functionIndex: Given<FunctionId>): SimulatedDemand<ListCall> | undefined {
    return this.#demands.get(functionIndex);
  }

  /** Sends what is to go now. */
  decide(functionIndex: Given<FunctionId>, nowMs: number): void {
    this.#nowMs = nowMs;
    this.#lists.get(functionIndex)?.decide(nowMs);
    this.#demands.get(functionIndex)?.decide(nowMs);
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
        began(invocations, this.#nowMs, this.#nowMs + runMs, instances.indexOf(instance));
        return runMs;
      },
    });
  }
}
