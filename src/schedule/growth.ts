import type { Gpu } from './gpu.ts';
import { wholeBytes, wholePrefix, type LoadOption, type GpuOffer } from './offer.ts';
import type { Slot } from './gpu.ts';
import type { SchedulerState } from './state.ts';

/**
 * Functions that are growing to a larger plan variant. No call waits for a growth: it only uses an idle link, and until
 * it ends the function runs under the variant that it has.
 */
export class Growth {
  readonly #state: SchedulerState;

  constructor(state: SchedulerState) {
    this.#state = state;
  }

  /** For a function that has just begun to run under a variant that is not its largest. */
  consider(slot: Slot, nowMs: number): void {
    const { links, variants, growing, orders } = this.#state;
    const { fn, gpu, offer: resident } = slot;
    const { memory } = gpu;
    const top = fn.sheet.gpus[gpu.number]!;
    // What is pinned cannot give room back, so it takes none that others might need.
    if (resident === undefined || slot.growth !== undefined || fn.sheet.pinned) return;
    if (slot.prefix !== wholePrefix(resident)) return;
    if (!variants.mayGrow(slot) && variants.isAcceptable(fn, resident)) return;
    if (!links.hasRoom(gpu.number) || !this.#state.isInHostMemory(fn)) return;
    const variant = variants.toGrowTo(fn, top, resident, memory.freeBytes, memory.attainableBytes(fn));
    if (variant?.plan === undefined || !memory.startGrowth(slot, variant)) return;
    const way = wayToGrow(variant, wholeBytes(variant) - wholeBytes(resident));
    links.occupy(way, 0, nowMs);
    slot.growth = way;
    growing.add(slot);
    const load = { way, prefix: 0 };
    orders.add({ kind: 'grow', functionIndex: fn.number, gpu: gpu.number, plan: variant.plan, load });
  }

  /** Everything has arrived. Returns the way that it came, or undefined when the function was not growing there. */
  end(slot: Slot, nowMs: number): LoadOption | undefined {
    const { fn, gpu } = slot;
    const way = this.#stop(slot, nowMs);
    if (way === undefined) return undefined;
    gpu.memory.endGrowth(slot);
    if (!fn.isRemoved && fn.sheet.pinned) this.#state.pinnedOn.push(gpu);
    return way;
  }

  /** Cancels growths on a GPU that is gone. */
  lose(gpu: Gpu, nowMs: number): void {
    const { growing, orders } = this.#state;
    for (const slot of growing) {
      if (slot.gpu !== gpu) continue;
      this.#stop(slot, nowMs);
      orders.add({ kind: 'abandon', functionIndex: slot.fn.number, gpu: gpu.number });
    }
  }

  #stop(slot: Slot, nowMs: number): LoadOption | undefined {
    const way = slot.growth;
    if (way === undefined) return undefined;
    slot.growth = undefined;
    this.#state.growing.delete(slot);
    this.#state.links.release(way, nowMs);
    return way;
  }
}

/** Over the GPU's own link alone: other links are reserved for starts that a call waits for. */
function wayToGrow(variant: GpuOffer, missingBytes: number): LoadOption {
  const { mode, transfers } = variant.ways[variant.ways.length - 1]!;
  const [{ link, bytes, ms, tailMs }] = transfers;
  const missingMs = (ms[0]! * missingBytes) / bytes[0]!;
  return {
    mode,
    coldMs: [missingMs],
    transfers: [{ link, bytes: [missingBytes], ms: [missingMs], tailMs: [tailMs[0]!] }],
  };
}
