/** Loads under way in the simulator: the scheduler's orders, as the links carry them. */
import type { LoadOrder, SchedulerGpu } from '../schedule/index.ts';
import { PcieLinks } from './simulator-links.ts';

export interface SimulatedLoad {
  readonly functionIndex: number;
  readonly gpu: number;
  /** Transfers under way. */
  left: number;
  /** When an execution behind it can end, as far as that is known. */
  readyMs: number;
  /** An invocation that executes behind it, or -1. */
  invocation: number;
  /** To a larger plan, while runs go on under the smaller one. */
  readonly isGrowth: boolean;
}

const nobody = -1;

export class SimulatedLoads {
  readonly #links: PcieLinks<SimulatedLoad>;
  /** By GPU: a few at most. */
  readonly #loads: readonly SimulatedLoad[][];

  /**
   * @param onDue when the transfer on a link ends, as predicted now; the latest call for a link counts. Infinity: none
   * is left.
   */
  constructor(gpus: readonly SchedulerGpu[], onDue: (link: number, dueMs: number) => void) {
    this.#links = new PcieLinks(gpus, onDue);
    this.#loads = gpus.map(() => []);
  }

  /** The load of a function that an invocation waits for. */
  of(functionIndex: number, gpu: number): SimulatedLoad | undefined {
    const loads = this.#loads[gpu]!;
    for (let index = 0; index < loads.length; index++) {
      const load = loads[index]!;
      if (load.functionIndex === functionIndex && !load.isGrowth) return load;
    }
    return undefined;
  }

  begin(functionIndex: number, gpu: number, { way, prefix }: LoadOrder, isGrowth: boolean, nowMs: number): void {
    const readyMs = nowMs + way.coldMs[prefix]!;
    const load: SimulatedLoad = { functionIndex, gpu, left: 0, readyMs, invocation: nobody, isGrowth };
    for (const { bytes } of way.transfers) if (bytes[prefix]! > 0) load.left++;
    for (const { link, bytes, ms, tailMs } of way.transfers) {
      if (bytes[prefix]! > 0) this.#links.add(link, load, bytes[prefix]!, ms[prefix]!, tailMs[prefix]!, nowMs);
    }
    this.#loads[gpu]!.push(load);
  }

  /** A link's transfer has ended. Returns the load that it completes, if any. */
  arrive(link: number, nowMs: number): SimulatedLoad | undefined {
    const { load, tailMs } = this.#links.complete(link, nowMs);
    load.readyMs = Math.max(load.readyMs, nowMs + tailMs);
    if (--load.left > 0) return undefined;
    const loads = this.#loads[load.gpu]!;
    // In no order: there is at most one of each kind for a function and a GPU.
    const last = loads.pop()!;
    if (last !== load) loads[loads.indexOf(load)] = last;
    return load;
  }

  /** Aborts all loads of a function to a GPU. */
  abandon(functionIndex: number, gpu: number, nowMs: number): void {
    const loads = this.#loads[gpu]!;
    for (let index = loads.length - 1; index >= 0; index--) {
      const load = loads[index]!;
      if (load.functionIndex !== functionIndex) continue;
      this.#links.cancel(load, nowMs);
      loads.splice(index, 1);
    }
  }
}
