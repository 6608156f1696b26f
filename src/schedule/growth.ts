import { wholeBytes, wholePrefix, type ColdWay, type GpuOffer } from './offer.ts';
import type { SchedulerState } from './state.ts';

/**
 * Functions on their way to a larger rung of their ladders. Growing is loading that nobody waits for: it takes a link
 * that carries nothing else, and until it is over the function runs under the rung that it has.
 */
export class Growth {
  readonly #state: SchedulerState;

  constructor(state: SchedulerState) {
    this.#state = state;
  }

  /** For a function that has just begun to run under a rung that is not its largest. */
  consider(functionIndex: number, gpu: number, nowMs: number): void {
    const { sheets, links, memories, rungs, growing, gpuCount, actions } = this.#state;
    const slot = functionIndex * gpuCount + gpu;
    const sheet = sheets[functionIndex]!;
    const top = sheet.gpus[gpu]!;
    const memory = memories[gpu]!;
    const resident = memory.offer(functionIndex);
    // What is pinned cannot give room back, so it takes none that others might need.
    if (resident === undefined || growing.has(slot) || sheet.pinned) return;
    if (memory.prefix(functionIndex) !== wholePrefix(resident)) return;
    if (!rungs.mayGrow(slot) && rungs.isAcceptable(functionIndex, resident)) return;
    if (!links.hasRoom(gpu)) return;
    const attainableBytes = memory.attainableBytes(functionIndex);
    const rung = rungs.toGrowTo(functionIndex, top, resident, memory.freeBytes, attainableBytes);
    if (rung?.plan === undefined || !memory.startGrowth(functionIndex, rung)) return;
    const way = wayToGrow(rung, wholeBytes(rung) - wholeBytes(resident));
    const readyMs = links.occupy(way, 0, nowMs);
    growing.set(slot, way);
    actions.push({ kind: 'grow', functionIndex, gpu, plan: rung.plan, load: { way, prefix: 0, readyMs } });
  }

  /** Everything has arrived. Returns the way that it came, or undefined when the function was not growing there. */
  end(functionIndex: number, gpu: number, nowMs: number): ColdWay | undefined {
    const { memories, growing, gpuCount, links, sheets, pinnedOn } = this.#state;
    const slot = functionIndex * gpuCount + gpu;
    const way = growing.get(slot);
    if (way === undefined) return undefined;
    growing.delete(slot);
    links.release(way, nowMs);
    memories[gpu]!.endGrowth(functionIndex);
    if (sheets[functionIndex]?.pinned === true) pinnedOn.push(gpu);
    return way;
  }

  /** What was on its way to a GPU that is gone. */
  lose(gpu: number, nowMs: number): void {
    const { growing, gpuCount, links, actions } = this.#state;
    for (const [slot, way] of growing) {
      if (slot % gpuCount !== gpu) continue;
      growing.delete(slot);
      links.release(way, nowMs);
      actions.push({ kind: 'abandon', functionIndex: Math.floor(slot / gpuCount), gpu });
    }
  }
}

/** Over the GPU's own link alone: others' are for starts that somebody waits for. */
function wayToGrow(rung: GpuOffer, missingBytes: number): ColdWay {
  const { mode, transfers } = rung.ways[rung.ways.length - 1]!;
  const [{ link, bytes, ms, tailMs }] = transfers;
  const missingMs = (ms[0]! * missingBytes) / bytes[0]!;
  return {
    mode,
    coldMs: [missingMs],
    transfers: [{ link, bytes: [missingBytes], ms: [missingMs], tailMs: [tailMs[0]!] }],
  };
}
