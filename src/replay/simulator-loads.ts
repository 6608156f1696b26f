/** Loads under way in the simulator: the scheduler's orders, as the links carry them. */
import type { LoadOrder, SchedulerGpu, Given, FunctionId, GpuId, InvocationId } from '../schedule/index.ts';
import { PcieLinks } from './simulator-links.ts';

export interface SimulatedLoad {
  readonly functionIndex: Given<FunctionId>;
  readonly gpu: Given<GpuId>;
  /** Transfers under way. */
  left: number;
  /** When an execution behind it can end, as far as that is known. */
  readyMs: number;
  /** Execution time left behind the last byte from the disk, as long as that is still to come. */
  diskTailMs: number | undefined;
  /** That executes behind it. */
  invocation: Given<InvocationId> | undefined;
  /** To a larger plan, while runs go on under the smaller one. */
  readonly isGrowth: boolean;
  /** What other functions share of what it brings. */
  readonly base: string | undefined;
}

interface LoadKind {
  readonly isGrowth?: boolean;
  /** The disk still reads the function: the load ends no sooner than that. */
  readonly isBeingRead?: boolean;
  readonly base?: string | undefined;
}

export class SimulatedLoads {
  readonly #links: PcieLinks<SimulatedLoad>;
  /** By GPU: a few at most. */
  readonly #loads: readonly SimulatedLoad[][];

  /**
   * @param onDue when the transfer on a link ends, as predicted now; the latest call for a link counts. Infinity: none
   * is left.
   */
  constructor(gpus: readonly SchedulerGpu[], onDue: (link: Given<GpuId>, dueMs: number) => void) {
    this.#links = new PcieLinks(gpus, onDue);
    this.#loads = gpus.map(() => []);
  }

  /** The load that an invocation of a function waits for. @param base what the function shares on the GPU */
  of(functionIndex: Given<FunctionId>, gpu: Given<GpuId>, base: string | undefined): SimulatedLoad | undefined {
    const loads = this.#loads[gpu]!;
    let found: SimulatedLoad | undefined;
    for (let index = 0; index < loads.length; index++) {
      const load = loads[index]!;
      if (load.functionIndex === functionIndex && !load.isGrowth) return load;
      // It waits for no more of another function's load than layers that both share.
      if (base !== undefined && load.base === base) found = load;
    }
    return found;
  }

  begin(
    functionIndex: Given<FunctionId>,
    gpu: Given<GpuId>,
    { way, prefix }: LoadOrder,
    { isGrowth = false, isBeingRead = false, base }: LoadKind,
    nowMs: number,
  ): void {
    const readyMs = nowMs + way.coldMs[prefix]!;
    const diskTailMs = isBeingRead ? way.transfers[0].tailMs[prefix]! : undefined;
    const left = isBeingRead ? 1 : 0;
    const load: SimulatedLoad = {
      functionIndex,
      gpu,
      left,
      readyMs,
      diskTailMs,
      invocation: undefined,
      isGrowth,
      base,
    };
    for (const { bytes } of way.transfers) if (bytes[prefix]! > 0) load.left++;
    for (const { link, bytes, ms, tailMs } of way.transfers) {
      if (bytes[prefix]! > 0) this.#links.add(link, load, bytes[prefix]!, ms[prefix]!, tailMs[prefix]!, nowMs);
    }
    this.#loads[gpu]!.push(load);
  }

  /** A link's transfer has ended. Returns the load that it completes, if any. */
  arrive(link: Given<GpuId>, nowMs: number): SimulatedLoad | undefined {
    const { load, tailMs } = this.#links.complete(link, nowMs);
    return this.#ended(load, nowMs + tailMs);
  }

  /** The disk has read the function. Returns the loads that this completes. */
  staged(functionIndex: Given<FunctionId>, nowMs: number): SimulatedLoad[] {
    const waiting = this.#loads.flatMap((loads) =>
      loads.filter((load) => load.functionIndex === functionIndex && load.diskTailMs !== undefined),
    );
    return waiting.flatMap((load) => {
      const readyMs = nowMs + load.diskTailMs!;
      load.diskTailMs = undefined;
      return this.#ended(load, readyMs) ?? [];
    });
  }

  /** One of the parts of a load is there. Returns the load if that was the last. */
  #ended(load: SimulatedLoad, readyMs: number): SimulatedLoad | undefined {
    load.readyMs = Math.max(load.readyMs, readyMs);
    if (--load.left > 0) return undefined;
    const loads = this.#loads[load.gpu]!;
    // In no order: there is at most one of each kind for a function and a GPU.
    const last = loads.pop()!;
    if (last !== load) loads[loads.indexOf(load)] = last;
    return load;
  }

  /** Aborts all loads of a function to a GPU. */
  abandon(functionIndex: Given<FunctionId>, gpu: Given<GpuId>, nowMs: number): void {
    const loads = this.#loads[gpu]!;
    for (let index = loads.length - 1; index >= 0; index--) {
      const load = loads[index]!;
      if (load.functionIndex !== functionIndex) continue;
      this.#links.cancel(load, nowMs);
      loads.splice(index, 1);
    }
  }
}
