/** Layers on one GPU, which functions with the same bytes share. */
import type { Compactable } from './compaction.ts';
import type { DeviceBlock } from './device-memory.ts';
import { Mutex } from './mutex.ts';
import type { Fence } from './streams.ts';

/** A function on the GPU. */
interface LayerHolder {
  readonly weights: { readonly key: string };
}

/**
 * Functions with the same first layers on one GPU: work that is being submitted for one of them keeps the layers of all
 * where they are.
 */
export class ResidencyFamily {
  readonly mutex = new Mutex();
  /** The latest run that reads the layers. */
  lastUse: Fence | null = null;
  /** Stops the load-ahead that is being submitted, so that a run can load the rest itself. */
  ahead: AbortController | null = null;
  /** Its turn has come, but none of its work has been submitted: its layers may still be moved. */
  isReserving = false;
}

/** A layer on one GPU, for all functions with the same bytes there. */
export class DeviceLayer {
  readonly family: ResidencyFamily;
  readonly #lane: Pick<Compactable, 'pool' | 'owners'>;
  block: DeviceBlock | null = null;
  /** When its bytes are there. */
  ready: Fence | null = null;
  /** All that have it in their models. */
  readonly users = new Set<LayerHolder>();
  /** Those that have loaded it or run with it, and have not given it up: it goes with the last of them. */
  readonly holders = new Set<LayerHolder>();

  constructor(family: ResidencyFamily, lane: Pick<Compactable, 'pool' | 'owners'>) {
    this.family = family;
    this.#lane = lane;
  }

  /** Whether a run with its address may be being submitted: then it must stay in place. */
  get isFixed(): boolean {
    return this.family.mutex.isTaken && !this.family.isReserving;
  }

  /** A function is removed. What others have in their models stays where it is. */
  leave(user: LayerHolder): void {
    this.users.delete(user);
    this.holders.delete(user);
    const [other] = this.users;
    if (other === undefined) this.free();
    else if (this.block !== null && this.holders.size === 0) this.holders.add(other);
  }

  put(block: DeviceBlock): void {
    this.block = block;
    this.ready = null;
    this.#lane.owners.set(block, this);
  }

  /** Frees it at once. If the GPU still uses it, the next user of the bytes waits for that. Returns the bytes. */
  free(): number {
    const { block, ready, family } = this;
    this.holders.clear();
    if (block === null) return 0;
    this.#lane.pool.free(block, [ready, family.lastUse]);
    this.#lane.owners.delete(block);
    this.block = null;
    this.ready = null;
    return block.size;
  }
}
