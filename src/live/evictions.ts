/** Evictions from GPUs: those that the scheduler orders, and those for room that it does not know about. */
import { wholeBytes, type Action, type GpuId, type SchedulerEvent } from '../schedule/index.ts';
import { loadedLayers, type LiveFunction } from './live-function.ts';
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
    this.#state.options.onGpuReport?.(fn.key, { kind: 'evicted', eviction });
    if (base === undefined) this.#state.place?.trim(fn, gpu, prefix);
    else this.#state.place?.release(fn, gpu, (fn.sharedLayers.get(base) ?? []).slice(prefix));
  }

  /**
   * Room for a function that is to come without the scheduler's order: what is idle goes until so many bytes are free. First
   * layers that others have there in common with it count as free, and stay if they can.
   */
  async freeBytes(gpu: GpuId, key: string, bytes: number): Promise<void> {
    const { functions } = this.#state;
    const asking = functions.get(key);
    const sharing = [...functions.values()]
      .map((fn) => ({ fn, bytes: fn === asking ? 0 : this.#commonBytes(fn, gpu, asking?.layers) }))
      .filter((each) => each.bytes > 0);
    const missingBytes = bytes - Math.max(0, ...sharing.map((each) => each.bytes));
    const spared = sharing.map(({ fn }) => fn.index);
    this.#free({ gpu, bytes: missingBytes, spared }, 'profiling');
    if (this.#freeBytesOn(gpu) < missingBytes) this.#free({ gpu, bytes, spared: [] }, 'profiling');
    await this.#state.place?.freed();
  }

  /** A function found too little memory, although the scheduler counted enough: others give as much as all of it takes. */
  async makeRoom(gpu: GpuId, asking: LiveFunction): Promise<void> {
    const offer = this.#state.scheduler.residentOffer(asking.index, gpu) ?? asking.offers[gpu];
    const bytes = this.#freeBytesOn(gpu) + (offer ? wholeBytes(offer) : 0);
    this.#free({ gpu, bytes, spared: [] }, 'out-of-memory', asking.key);
    await this.#state.place?.freed();
  }

  #free(
    wanted: Omit<Extract<SchedulerEvent, { kind: 'gpu-room-wanted' }>, 'kind'>,
    cause: OwnCause,
    by?: string,
  ): void {
    this.#ownCause = { cause, by };
    this.#state.tell({ kind: 'gpu-room-wanted', ...wanted });
    this.#ownCause = undefined;
  }

  #freeBytesOn(gpu: GpuId): number {
    return (this.#state.gpus[gpu]?.capacityBytes ?? 0) - this.#state.scheduler.residentBytes(gpu);
  }

  /** Of what a function has on a GPU: the first layers that it has in common with another one. */
  #commonBytes(fn: LiveFunction, gpu: GpuId, others: LiveFunction['layers']): number {
    const { scheduler } = this.#state;
    const prefix = others === undefined ? 0 : scheduler.residentPrefix(fn.index, gpu);
    if (prefix === 0) return 0;
    return loadedLayers(fn, gpu, scheduler.residentOffer(fn.index, gpu)?.plan)
      .slice(0, prefix)
      .reduce((sum, { index, id, bytes }) => sum + (id !== undefined && others![index]?.id === id ? bytes : 0), 0);
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
