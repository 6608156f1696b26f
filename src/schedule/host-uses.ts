/** What of host memory is in use: by loads, by runs that execute from it, and by calls that wait. */
import type { Block } from './host-blocks.ts';
import type { ServedFunction } from './function.ts';
import type { Policy } from './policy.ts';
import type { Slots } from './slots.ts';

export class HostUses {
  readonly #policy: Policy;
  readonly #slots: Slots;

  constructor({ policy, slots }: { readonly policy: Policy; readonly slots: Slots }) {
    this.#policy = policy;
    this.#slots = slots;
  }

  /** Whether it must stay: something reads from it, or a call that waits is about to. */
  isInUse(block: Block): boolean {
    for (const { fn, read, holds } of block.users) {
      if (read !== undefined || holds > 0) return true;
      if (block.isExecuted) {
        for (let slot = this.#slots.first(fn); slot !== undefined; slot = slot.next) if (slot.number >= 0) return true;
      }
      if (this.isCopied(fn)) return true;
      if (this.#policy.order === 'fifo' ? this.isNext(fn) : this.isNeeded(fn)) return true;
    }
    return false;
  }

  /** Whether all that GPUs have of its functions is idle, and no call waits for it. */
  canLeaveGpus({ users }: Block): boolean {
    for (const { fn } of users) {
      if (fn.sheet.pinned || this.isBusy(fn)) return false;
      if (this.#policy.order === 'fifo' ? this.isNext(fn) : this.#slots.isAwaited(fn)) return false;
    }
    return true;
  }

  /** GPUs execute from this memory: without it, what is there of the function is of no use. */
  dropFromGpus(fn: ServedFunction): void {
    for (const slot of this.#slots.homes(fn)) {
      slot.gpu.memory.drop(slot, 'host');
      slot.gpu.awaited.delete(slot);
    }
  }

  /** Whether a call waits on a GPU that has to be loaded for it. */
  isNeeded(fn: ServedFunction): boolean {
    for (let slot = this.#slots.first(fn); slot !== undefined; slot = slot.next)
      if (slot.entry !== undefined && slot.load === undefined && !slot.isResident) return true;
    return false;
  }

  /** Whether layers of the function are on their way to a GPU. */
  isCopied(fn: ServedFunction): boolean {
    for (let slot = this.#slots.first(fn); slot !== undefined; slot = slot.next)
      if (slot.load !== undefined || slot.growth !== undefined) return true;
    return false;
  }

  /** Whether the function runs on a GPU, or is being loaded there. */
  isBusy(fn: ServedFunction): boolean {
    return this.#slots.homes(fn).some((slot) => slot.gpu.isBusyWith(slot));
  }

  /** Where turns are strictly in order, a function other than the next may be behind the one that wants the room. */
  isNext(fn: ServedFunction): boolean {
    if (this.#policy.order !== 'fifo') return false;
    return this.#slots.homes(fn).some(({ entry, gpu }) => entry !== undefined && gpu.line.next()?.fn === fn);
  }
}
