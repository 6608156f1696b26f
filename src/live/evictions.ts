/** Evictions from GPUs: those that the scheduler orders, and those for room that it does not know about. */
import type { Action, GpuId } from '../schedule/index.ts';
import type { LiveFunction } from './live-function.ts';
import type { LiveState } from './live-views.ts';
import type { GpuEviction, OwnCause } from './types.ts';

export class Evictions {
  readonly #state: LiveState;
  /** The cause to report for evictions that the scheduler does not know the reason of. */
  #ownCause: { readonly cause: OwnCause; readonly by: string | undefined } | undefined;

  constructor(state: LiveState) {
    this.#state = state;
  }

  evict(action: Extract<Action, { kind: 'evict' }>, by: string | undefined): void {
    const { functionIndex, gpu, prefix, bytes, base } = action;
    const fn = this.#state.byIndex[functionIndex];
    if (fn === undefined) return;
    const nowMs = this.#state.now();
    const cause = this.#ownCause?.cause ?? (action.cause === 'plan-changed' && fn.withdrawal?.cause) ?? action.cause;
    this.#state.tally.evicted(cause || action.cause);
    const eviction: GpuEviction = {
      key: fn.key,
      gpu,
      bytes,
      cause: cause || action.cause,
      by: this.#ownCause?.by ?? (by === fn.key ? undefined : by),
      isWhole: prefix <= (base === undefined ? (fn.offers[gpu]?.shared?.layers ?? 0) : 0),
      ageMs: nowMs - (fn.sinceMs[gpu] ?? nowMs),
    };
    this.#state.options.onGpuNews?.(fn.key, { kind: 'evicted', eviction });
    if (base === undefined) this.#state.place?.trim(fn, gpu, prefix);
    else this.#state.place?.release(fn, gpu, (fn.sharedLayers.get(base) ?? []).slice(prefix));
  }

  /**
   * Makes room for weights that the scheduler does not know about: evicts idle functions until so many bytes are free.
   */
  async freeBytes(gpu: GpuId, bytes: number): Promise<void> {
    const capacityBytes = this.#state.gpus[gpu]?.capacityBytes ?? 0;
    await this.letGo(gpu, 'profiling', () => capacityBytes - this.#state.scheduler.residentBytes(gpu) >= bytes);
  }

  async letGo(gpu: GpuId, cause: OwnCause, isEnough: (gone: number) => boolean, asking?: LiveFunction): Promise<void> {
    const busy = new Set(this.#state.place?.busyFunctions());
    for (const pending of this.#state.pending) if (pending !== undefined) busy.add(pending.fn.index);
    const idle = [...this.#state.functions.values()]
      .filter((fn) => fn !== asking && fn.withdrawal === undefined && !fn.isPinned && !busy.has(fn.index))
      .filter(({ index }) => this.#state.scheduler.residentPrefix(index, gpu) > 0)
      .toSorted((one, other) => (one.lastUseMs ?? 0) - (other.lastUseMs ?? 0));
    for (const [gone, { index, sheet }] of idle.entries()) {
      if (isEnough(gone)) break;
      // Without an offer for this GPU the scheduler drops the function there; nothing else changes.
      const gpus = sheet.gpus.map((offer, each) => (each === gpu ? null : offer));
      this.#ownCause = { cause, by: asking?.key };
      this.#state.tell({ kind: 'sheet-changed', functionIndex: index, sheet: { ...sheet, gpus } });
      this.#ownCause = undefined;
      this.#state.tell({ kind: 'sheet-changed', functionIndex: index, sheet });
    }
    await this.#state.place?.freed();
  }
}

/** The function for whose load an eviction made room: the next load to the same GPU in the list. */
export function beneficiaryOf(actions: readonly Action[], at: number, gpu: GpuId): number | undefined {
  for (const action of actions.slice(at + 1)) {
    const loads = action.kind === 'load' || action.kind === 'grow' || action.kind === 'run';
    if (loads && action.gpu === gpu && action.load !== null) return action.functionIndex;
  }
  return undefined;
}
