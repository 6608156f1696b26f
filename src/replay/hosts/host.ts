/**
 * One host of a simulated fleet: the simulator of a machine, with functions numbered in the order in which this host
 * got to know them.
 */
import type { Given, FunctionId, GpuId } from '../../schedule/index.ts';
import type { SimulatorOptions } from '../simulator-options.ts';
import { Simulator } from '../simulator.ts';
import type { Outcome, ReplayObserver } from '../types.ts';

/** A call on its way through the fleet. */
export interface FleetCall {
  readonly sequence: number;
  readonly functionIndex: Given<FunctionId>;
  /** Arrival at the fleet, and the time allowed from then. */
  readonly arrivalMs: number;
  readonly sloMs: number;
  /** The SLO is the trace's, not the function's. */
  readonly hasOwnSlo: boolean;
  /** The host where it arrived. */
  readonly entry: number;
  /** From there to the host that runs it; the answer takes as long again. */
  hopMs: number;
  isRerun: boolean;
}

export class SimulatedHost {
  readonly index: number;
  readonly #options: SimulatorOptions;
  readonly #firstGpu: number;
  /** The simulator's number of each function that came here. */
  readonly #local = new Map<number, number>();
  #functions: number[] = [];
  #simulator: Simulator;
  /** By the simulator's sequence. */
  #calls = new Map<number, FleetCall>();
  #given = 0;
  /** Content that it has fetched or been given to keep. */
  readonly #content = new Set<number>();
  #networkFreeMs = 0;
  /** By function whose content is being fetched. */
  readonly #readyMs = new Map<number, number>();
  readonly #ended: (call: FleetCall) => void;
  isUp = true;

  /** @param firstGpu its number in the fleet */
  constructor(index: number, firstGpu: number, options: SimulatorOptions, ended: (call: FleetCall) => void) {
    this.index = index;
    this.#ended = ended;
    this.#firstGpu = firstGpu;
    this.#options = { ...options, observer: this.#observer(options.observer) };
    this.#simulator = this.#newSimulator();
  }

  #newSimulator(): Simulator {
    const { sheetOf, demandOf } = this.#options;
    const functions: number[] = (this.#functions = []);
    this.#local.clear();
    return new Simulator([], {
      ...this.#options,
      sheetOf: (local, name) => sheetOf(functions[local]!, name),
      demandOf: (local) => demandOf?.(functions[local]!),
    });
  }

  advance(toMs: number): void {
    this.#simulator.advance(toMs);
  }

  get underWay(): number {
    return this.#simulator.underWay;
  }

  isResident(functionIndex: Given<FunctionId>): boolean {
    const local = this.#local.get(functionIndex);
    return local !== undefined && this.#simulator.isResident(local);
  }

  hasContent(functionIndex: Given<FunctionId>): boolean {
    return this.#content.has(functionIndex);
  }

  keepContent(functionIndex: Given<FunctionId>): void {
    this.#content.add(functionIndex);
  }

  /** When its content would arrive if it was fetched now, behind current fetches. */
  contentMs(functionIndex: Given<FunctionId>, bytes: number, networkGBps: number, nowMs: number): number {
    if (this.hasContent(functionIndex)) return Math.max(nowMs, this.#readyMs.get(functionIndex) ?? nowMs);
    return Math.max(nowMs, this.#networkFreeMs) + bytes / (networkGBps * 1e6);
  }

  fetch(functionIndex: Given<FunctionId>, readyMs: number): void {
    this.keepContent(functionIndex);
    this.#networkFreeMs = readyMs;
    this.#readyMs.set(functionIndex, readyMs);
  }

  give(call: FleetCall, nowMs: number): void {
    const { functionIndex, arrivalMs, sloMs, hopMs, hasOwnSlo } = call;
    let local = this.#local.get(functionIndex);
    if (local === undefined) {
      local = this.#functions.length;
      this.#functions.push(functionIndex);
      this.#local.set(functionIndex, local);
    }
    this.#calls.set(this.#given++, call);
    // The time of the way here and back is not available to this host.
    const leftMs = Math.max(Number.MIN_VALUE, sloMs - (nowMs - arrivalMs) - hopMs);
    const own = hasOwnSlo || leftMs < sloMs ? { sloMs: leftMs } : undefined;
    this.#simulator.arrive({ arrivalMs: nowMs, functionIndex: local, ...own });
  }

  /** Ends at once. Returns its calls under way. */
  lose(): FleetCall[] {
    const calls = [...this.#calls.values()];
    this.#calls = new Map();
    this.isUp = false;
    return calls;
  }

  /** Starts again with empty GPUs and its old disk. */
  restart(nowMs: number): void {
    this.#given = 0;
    this.#simulator = this.#newSimulator();
    this.#simulator.advance(nowMs);
    this.#readyMs.clear();
    this.#networkFreeMs = nowMs;
    this.isUp = true;
  }

  finish(): void {
    if (this.isUp) this.#simulator.finish();
  }

  /** Reports to the fleet's observer, in the fleet's numbers. */
  #observer(fleet: ReplayObserver): ReplayObserver {
    const gpuOf = (gpu: Given<GpuId>): Given<GpuId> => gpu + this.#firstGpu;
    const functionOf = (local: number): number => this.#functions[local]!;
    return {
      outcome: (outcome: Outcome) => {
        const call = this.#calls.get(outcome.sequence)!;
        this.#calls.delete(outcome.sequence);
        this.#ended(call);
        const { sequence, functionIndex, arrivalMs, sloMs, hopMs } = call;
        const { endMs, queueMs, predictedEndMs, placement } = outcome;
        fleet.outcome({
          sequence,
          functionIndex,
          arrivalMs,
          sloMs,
          endMs: endMs + hopMs,
          queueMs: queueMs + outcome.arrivalMs - arrivalMs,
          predictedEndMs: predictedEndMs === undefined ? undefined : predictedEndMs + hopMs,
          placement: placement.kind === 'gpu' ? { ...placement, gpu: gpuOf(placement.gpu) } : placement,
        });
      },
      eviction: (record) =>
        fleet.eviction({
          ...record,
          from: typeof record.from === 'number' ? gpuOf(record.from) : record.from,
          functionIndex: functionOf(record.functionIndex),
        }),
      planChange: (record) => fleet.planChange?.({ ...record, functionIndex: functionOf(record.functionIndex) }),
      listChange: (record) => fleet.listChange?.({ ...record, functionIndex: functionOf(record.functionIndex) }),
      stage: (record) => fleet.stage?.({ ...record, functionIndex: functionOf(record.functionIndex) }),
      busy: (gpu, fromMs, toMs) => {
        fleet.busy(gpuOf(gpu), fromMs, toMs);
      },
    };
  }
}
