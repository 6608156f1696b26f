/** Loads under way in the simulator: what the scheduler ordered, as the links carry it. */
import type { LoadOrder, SchedulerGpu } from '../schedule/index.ts';
import { PcieLinks } from './simulator-links.ts';

export interface SimulatedLoad {
  readonly functionIndex: number;
  readonly gpu: number;
  /** Transfers under way. */
  left: number;
  /** When an execution behind it can end, as far as that is settled. */
  readyMs: number;
  /** An invocation that executes behind it, or -1. */
  invocation: number;
  /** To a larger plan, while runs go on under the smaller one. */
  readonly isGrowth: boolean;
}

const nobody = -1;

export class SimulatedLoads {
  readonly #links: PcieLinks<SimulatedLoad>;
  /** By GPU: a few at the most. */
  readonly #loads: readonly SimulatedLoad[][];

  /** @param onDue when the transfer on a link ends, as things are now; the last word on a link counts. Infinity: none is left. */
  constructor(gpus: readonly SchedulerGpu[], onDue: (link: number, dueMs: number) => void) {
    this.#links = new PcieLinks(gpus, onDue);
    this.#loads = gpus.map(() => []);
  }

  /** Of a function that somebody waits for. */
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

  /** A link's transfer is at its end. Returns the load that is there as a whole with it, if any is. */
  arrive(link: number, nowMs: number): SimulatedLoad | undefined {
    const { load, tailMs } = this.#links.complete(link, nowMs);
    load.readyMs = Math.max(load.readyMs, nowMs + tailMs);
    if (--load.left > 0) return undefined;
    const loads = this.#loads[load.gpu]!;
    // In no order: of a function and a GPU there is one of each kind.
    const last = loads.pop()!;
    if (last !== load) loads[loads.indexOf(load)] = last;
    return load;
  }

  /** Everything of a function that is on its way to a GPU is given up. */
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
