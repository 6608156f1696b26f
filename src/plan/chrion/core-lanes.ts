import type { Network } from './network.ts';

/** A core for an operator. */
export interface CoreChoice {
  readonly core: number;
  /** Start of the call that the operator is part of. */
  readonly callStartMs: number;
  readonly endMs: number;
}

/**
 * The cores while operators are assigned to them in order. If calls cost nothing, the core that is free first also ends
 * first, since all cores are alike. If they cost something, an operator whose inputs were there when its core's last
 * call started can join that call, so the cores of its inputs are considered too.
 *
 * Outputs of a call's earlier operators are estimated to be there when the operator ends; the timeline of the whole
 * plan corrects this.
 */
export class CoreLanes {
  readonly #network: Network;
  readonly #cpuMs: Float64Array | undefined;
  readonly #devices: Int32Array;
  readonly #endMs: Float64Array;
  /** When core j is free, at index j. */
  readonly #freeMs: Float64Array;
  /** When the last call of core j started, at index j; -1 before its first. */
  readonly #callStartMs: Float64Array;

  /** `devices` and `endMs` hold the operators placed so far, here and on the GPU; this class adds its own. */
  constructor(network: Network, cores: number, devices: Int32Array, endMs: Float64Array) {
    this.#network = network;
    this.#cpuMs = network.cpuMs[cores - 1];
    this.#devices = devices;
    this.#endMs = endMs;
    this.#freeMs = new Float64Array(cores + 1);
    this.#callStartMs = new Float64Array(cores + 1).fill(-1);
  }

  /**
   * The core on which an operator ends first; undefined without cores.
   * @param readyMs when all its inputs are in host memory
   * @param crossedMs when the GPU's tensors that were copied for other operators arrive; -1 for those not copied
   */
  choose(node: number, readyMs: number, crossedMs?: Float64Array): CoreChoice | undefined {
    const first = this.#firstFree();
    if (first === undefined || this.#cpuMs === undefined) return undefined;
    const takesMs = this.#cpuMs[node] ?? 0;
    if (this.#network.callMs === 0) {
      const startMs = Math.max(this.#freeMs[first] ?? 0, readyMs);
      return { core: first, callStartMs: startMs, endMs: startMs + takesMs };
    }
    let best = this.#onCore(node, first, takesMs, crossedMs);
    const seen = new Set([0, first]);
    const { into } = this.#network;
    for (let row = into.startOf[node] as number; row < (into.startOf[node + 1] as number); row++) {
      const core = this.#devices[into.node[row] as number] as number;
      if (seen.has(core)) continue;
      seen.add(core);
      const choice = this.#onCore(node, core, takesMs, crossedMs);
      if (choice.endMs < best.endMs) best = choice;
    }
    return best;
  }

  place(node: number, { core, callStartMs, endMs }: CoreChoice): void {
    this.#devices[node] = core;
    this.#callStartMs[core] = callStartMs;
    this.#freeMs[core] = this.#endMs[node] = endMs;
  }

  #onCore(node: number, core: number, takesMs: number, crossedMs: Float64Array | undefined): CoreChoice {
    let arrivedMs = 0;
    const { into } = this.#network;
    for (let row = into.startOf[node] as number; row < (into.startOf[node + 1] as number); row++) {
      const before = into.node[row] as number;
      const device = this.#devices[before] as number;
      if (device === core) continue;
      const crossed = crossedMs?.[into.tensor[row] as number] ?? -1;
      const doneMs = this.#endMs[before] as number;
      const copiedMs = crossed < 0 ? doneMs + (into.copyMs[row] as number) : crossed;
      arrivedMs = Math.max(arrivedMs, device === 0 ? copiedMs : doneMs);
    }
    const freeMs = this.#freeMs[core] ?? 0;
    const openMs = this.#callStartMs[core] ?? -1;
    if (openMs >= 0 && arrivedMs <= openMs) return { core, callStartMs: openMs, endMs: freeMs + takesMs };
    const callStartMs = Math.max(freeMs, arrivedMs);
    return { core, callStartMs, endMs: callStartMs + this.#network.callMs + takesMs };
  }

  #firstFree(): number | undefined {
    const freeMs = this.#freeMs;
    if (freeMs.length < 2) return undefined;
    let first = 1;
    for (let core = 2; core < freeMs.length; core++) {
      if ((freeMs[core] as number) < (freeMs[first] as number)) first = core;
    }
    return first;
  }
}
