/** What of host memory is in use: by loads, by runs that execute from it, and by what waits for it. */
import type { Bases } from './bases.ts';
import type { Block, Copy } from './host-blocks.ts';
import type { ServedFunction } from './function.ts';
import type { Invocation } from './invocation.ts';
import type { Policy } from './policy.ts';
import type { Slots } from './slots.ts';

export interface HostUseFacts {
  readonly policy: Policy;
  readonly slots: Slots;
  readonly bases: Bases;
  readonly gpus: readonly {
    readonly running: Invocation | undefined;
    readonly line: { next(): Invocation | undefined };
  }[];
}

export class HostUses {
  readonly #facts: HostUseFacts;

  /** @param facts its GPUs are made later */
  constructor(facts: HostUseFacts) {
    this.#facts = facts;
  }

  /**
   * Whether it must stay: something reads from it, or what waits for its function is about to.
   *
   * @param isForced only what a machine reads from stays, and what a claim will use at once since all of it is here: two
   *   claims that each lack something could wait for each other for ever
   */
  isInUse(block: Block, isForced: boolean): boolean {
    for (const copy of block.users) {
      const { fn } = copy;
      if (copy.read !== undefined || this.isCopied(fn)) return true;
      if (block.isExecuted && (this.#isOnGpus(fn) || (copy.isExecutedWhole && this.#isRunning(fn)))) return true;
      if ((!isForced || copy.missing === 0) && this.#isClaimedFirst(copy)) return true;
    }
    return false;
  }

  /** Whether all that GPUs have of its functions is idle, and no call waits for it. */
  canLeaveGpus({ users }: Block): boolean {
    for (const { fn, holds } of users) {
      if (holds > 0 || fn.sheet.pinned || this.isBusy(fn)) return false;
      if (this.#isFifo ? this.#isNext(fn) : this.#facts.slots.isAwaited(fn)) return false;
    }
    return true;
  }

  /** GPUs execute from this memory: without it, what is there of the function is of no use. */
  dropFromGpus(fn: ServedFunction): void {
    for (const slot of this.#facts.slots.homes(fn)) {
      slot.gpu.memory.drop(slot, 'host');
      slot.gpu.awaited.delete(slot);
    }
  }

  /** Whether something waits until all of it is here: the place, a call, or a run or load that has begun. */
  isClaimed({ fn, holds }: Copy): boolean {
    if (holds > 0) return true;
    for (let slot = this.#facts.slots.first(fn); slot !== undefined; slot = slot.next) {
      if (slot.ordered !== undefined || slot.growth !== undefined) return true;
      if (slot.entry !== undefined && !slot.isResident) return true;
    }
    return fn.lacksExecuted && this.#isRunning(fn);
  }

  /** Whether layers of the function are on their way to a GPU. */
  isCopied(fn: ServedFunction): boolean {
    for (let slot = this.#facts.slots.first(fn); slot !== undefined; slot = slot.next)
      if (slot.load !== undefined || slot.growth !== undefined) return true;
    return false;
  }

  /** Whether the function runs on a GPU, or is being loaded there. */
  isBusy(fn: ServedFunction): boolean {
    return this.isCopied(fn) || this.#isRunning(fn);
  }

  get #isFifo(): boolean {
    return this.#facts.policy.order === 'fifo';
  }

  /** Where turns are strictly in order, a function other than the next may be behind the one that wants the room. */
  #isClaimedFirst(copy: Copy): boolean {
    if (copy.holds > 0) return true;
    // A function that has nothing on GPUs has nothing else there that keeps its blocks for a call.
    if (copy.isExecutedWhole && this.#facts.slots.isAwaited(copy.fn)) return !this.#isFifo || this.#isNext(copy.fn);
    return this.#isFifo ? this.#isNext(copy.fn) : this.isClaimed(copy);
  }

  #isNext(fn: ServedFunction): boolean {
    return this.#facts.slots.homes(fn).some(({ entry, gpu }) => entry !== undefined && gpu.line.next()?.fn === fn);
  }

  #isOnGpus(fn: ServedFunction): boolean {
    for (let slot = this.#facts.slots.first(fn); slot !== undefined; slot = slot.next) if (slot.isThere) return true;
    return fn.least.sharesLayers && this.#facts.bases.isOnGpu(fn);
  }

  #isRunning(fn: ServedFunction): boolean {
    return this.#facts.gpus.some(({ running }) => running?.fn === fn);
  }
}
