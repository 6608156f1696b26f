import { wholeBytes, wholePrefix, type LoadOption, type GpuOffer } from './offer.ts';
import type { Slot } from './slots.ts';
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
    const { sheets, links, memories, variants, growing, gpuCount, shell } = this.#state;
    const { functionIndex, gpu, offer: resident } = slot;
    const sheet = sheets[functionIndex]!;
    const top = sheet.gpus[gpu]!;
    const memory = memories[gpu]!;
    // What is pinned cannot give room back, so it takes none that others might need.
    if (resident === undefined || growing.has(slot) || sheet.pinned) return;
    if (slot.prefix !== wholePrefix(resident)) return;
    if (!variants.mayGrow(functionIndex * gpuCount + gpu) && variants.isAcceptable(functionIndex, resident)) return;
    if (!links.hasRoom(gpu)) return;
    const attainableBytes = memory.attainableBytes(functionIndex);
    const variant = variants.toGrowTo(functionIndex, top, resident, memory.freeBytes, attainableBytes);
    if (variant?.plan === undefined || !memory.startGrowth(slot, variant)) return;
    const way = wayToGrow(variant, wholeBytes(variant) - wholeBytes(resident));
    links.occupy(way, 0, nowMs);
    slot.growth = way;
    growing.add(slot);
    shell.act({ kind: 'grow', functionIndex, gpu, plan: variant.plan, load: { way, prefix: 0 } });
  }

  /** Everything has arrived. Returns the way that it came, or undefined when the function was not growing there. */
  end(slot: Slot, nowMs: number): LoadOption | undefined {
    const { memories, sheets, pinnedOn } = this.#state;
    const { functionIndex, gpu } = slot;
    const way = this.#stop(slot, nowMs);
    if (way === undefined) return undefined;
    memories[gpu]!.endGrowth(slot);
    if (sheets[functionIndex]?.pinned === true) pinnedOn.push(gpu);
    return way;
  }

  /** Cancels growths on a GPU that is gone. */
  lose(gpu: number, nowMs: number): void {
    const { growing, shell } = this.#state;
    for (const slot of growing) {
      if (slot.gpu !== gpu) continue;
      this.#stop(slot, nowMs);
      shell.act({ kind: 'abandon', functionIndex: slot.functionIndex, gpu });
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
