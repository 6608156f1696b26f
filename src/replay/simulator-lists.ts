/**
 * Functions' instances on the CPU that take calls in batches: their own, or on demand. Runs take what is expected of
 * them.
 */
import { instancesOf } from '../cpu/index.ts';
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

/** An instance with cores of its own. */
export interface ListInstance extends BatchPlace {
  /** Milliseconds of a run of so many rows as one of `together`, after so long without one. */
  runMs(rows: number, together: number, idleMs: number): number;
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
  readonly #lists = new Map<Given<FunctionId>, BatchList<ListInstance, ListCall>>();
  readonly #demands = new Map<Given<FunctionId>, SimulatedDemand<ListCall>>();
  #nowMs = 0;
  readonly #events: ListEvents;
  /** Rows of every run, where a model has so many. */
  readonly #fixedRows: number | undefined;

  constructor(events: ListEvents, fixedRows?: number) {
    this.#events = events;
    this.#fixedRows = fixedRows;
  }

  /** For a function with instances of its own: `configuration` says which, unless {@link change} has. */
  add(functionIndex: Given<FunctionId>, configuration: PoolConfiguration, call: ListCall, nowMs: number): void {
    const list = getOrMake(this.#lists, functionIndex, () => {
      const { batchTimeoutMs = 0 } = configuration;
      return this.#listOf(functionIndex, this.#expected(configuration), batchTimeoutMs);
    });
    list.add(call);
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

  /**
   * These instances of a function that was on demand, or had others, take its calls from now on. Runs of those that leave
   * go on.
   *
   * @param instances empty: on demand again
   * @returns for each instance on demand that leaves, when its runs end
   */
  change(
    functionIndex: Given<FunctionId>,
    instances: readonly ListInstance[],
    timeoutMs: number,
    nowMs: number,
  ): readonly number[] {
    const list = this.#lists.get(functionIndex);
    const demand = this.#demands.get(functionIndex);
    this.#events.wake(nowMs + instantMs, functionIndex);
    if (instances.length === 0) {
      this.#lists.delete(functionIndex);
      for (const call of list?.take() ?? []) demand?.add(call, nowMs);
      return [];
    }
    if (list !== undefined) {
      list.become(instances, timeoutMs);
      return [];
    }
    const made = this.#listOf(functionIndex, instances, timeoutMs);
    this.#lists.set(functionIndex, made);
    const { endsMs = [], waiting = [] } = demand?.leave() ?? {};
    for (const call of waiting) made.add(call);
    return endsMs;
  }

  /** When the latest run of an instance ends, or ended; 0: it has had none. */
  endMs(functionIndex: Given<FunctionId>, instance: ListInstance): number {
    return this.#lists.get(functionIndex)?.endMs(instance) ?? 0;
  }

  /** Sends what is to go now. */
  decide(functionIndex: Given<FunctionId>, nowMs: number): void {
    this.#nowMs = nowMs;
    this.#lists.get(functionIndex)?.decide(nowMs);
    this.#demands.get(functionIndex)?.decide(nowMs);
  }

  #expected(configuration: PoolConfiguration): ListInstance[] {
    const book = new LatencyBook();
    return instancesOf(configuration).map(({ threads, batch, latencyMs }) => {
      if (latencyMs !== undefined) book.expect(threads, batch, latencyMs);
      const expectedMs = (rows: number): number => book.ms(threads, rows);
      return { batch, expectedMs, runMs: expectedMs };
    });
  }

  #listOf(
    functionIndex: Given<FunctionId>,
    instances: readonly ListInstance[],
    timeoutMs: number,
  ): BatchList<ListInstance, ListCall> {
    const { began, wake } = this.#events;
    const numbers = new Map(instances.map((each, at) => [each, at]));
    return new BatchList({
      instances,
      timeoutMs,
      fixedRows: this.#fixedRows,
      wake: (atMs) => wake(atMs, functionIndex),
      begin: (instance, calls, together, idleSinceMs) => {
        const rows = this.#fixedRows ?? calls.reduce((sum, each) => sum + each.rows, 0);
        const runMs = instance.runMs(rows, together, this.#nowMs - idleSinceMs);
        const invocations = calls.map(({ invocation }) => invocation);
        const number = getOrMake(numbers, instance, () => numbers.size);
        began(invocations, this.#nowMs, this.#nowMs + runMs, number);
        return runMs;
      },
    });
  }
}
