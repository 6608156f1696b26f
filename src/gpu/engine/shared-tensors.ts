/**
 * Tensors in the memory that this process shares with the host. A GPU reads and writes them there, since the memory is
 * pinned when the first of them comes, and until none has come for some time. A run for which it is not pinned copies its
 * tensors to and from {@link IoBuffers}.
 */
import type { Lease, Reservation, SharedArea, SharedMemory } from '../../process/index.ts';
import { once } from '../../tools/index.ts';
import type { Cuda, HostMemory } from '../driver/types.ts';

/** Without tensors for this long, an area is given up, at the latest after twice as long. */
const idleMsMax = 30_000;

export interface SharedTensorsOptions {
  /** Called when so many bytes are pinned. */
  readonly onPinned: (bytes: number) => void;
  /** Called once if the memory cannot be pinned: it is not tried again. */
  readonly onRefused: (error: Error) => void;
}

export class SharedTensors {
  readonly #memory: SharedMemory;
  readonly #read: PinnedArea;
  readonly #written: PinnedArea;
  readonly #options: SharedTensorsOptions;
  #isRefused = false;

  constructor(cuda: Pick<Cuda, 'pinAside'>, memory: SharedMemory, options: SharedTensorsOptions) {
    this.#memory = memory;
    this.#options = options;
    const changed = (): void => options.onPinned(this.#read.bytes + this.#written.bytes);
    this.#read = new PinnedArea(cuda, memory.areas.read, changed);
    this.#written = new PinnedArea(cuda, memory.areas.written, changed);
  }

  /** Where a GPU reads an input, which stays there until it is disposed of; undefined: elsewhere, or not pinned yet. */
  input(data: Uint8Array): Lease | undefined {
    const lease = this.#isRefused ? undefined : this.#memory.lease(data);
    if (lease === undefined || this.#read.isPinned) return lease && this.#read.used(lease);
    // The host gives back the pages of an area without messages: the lease keeps one there until they are pinned.
    void this.#pin(this.#read).finally(() => lease[Symbol.dispose]());
    return undefined;
  }

  /** Where a GPU writes outputs; undefined: there is no room, or it is not pinned yet. */
  outputs(bytes: number): Reservation | undefined {
    const reservation = this.#isRefused ? undefined : this.#memory.reserve(bytes);
    if (reservation === undefined || this.#written.isPinned) return reservation && this.#written.used(reservation);
    reservation[Symbol.dispose]();
    void this.#pin(this.#written);
    return undefined;
  }

  async #pin(area: PinnedArea): Promise<void> {
    try {
      await area.pin();
    } catch (error) {
      if (!this.#isRefused) this.#options.onRefused(error as Error);
      this.#isRefused = true;
    }
  }

  /** Resolves when nothing is pinned any more. No run may be under way. */
  async close(): Promise<void> {
    this.#isRefused = true;
    await Promise.all([this.#read.close(), this.#written.close()]);
  }
}

/** An area that is pinned as a whole: the driver refuses a copy over two pinned ranges, though they may adjoin. */
class PinnedArea {
  readonly #cuda: Pick<Cuda, 'pinAside'>;
  readonly #area: SharedArea;
  readonly #changed: () => void;
  #pinned: HostMemory | undefined;
  /** Pinning, or giving up. */
  #underWay: Promise<void> | undefined;
  #users = 0;
  #isUsed = false;
  #idle: NodeJS.Timeout | undefined;

  constructor(cuda: Pick<Cuda, 'pinAside'>, area: SharedArea, changed: () => void) {
    this.#cuda = cuda;
    this.#area = area;
    this.#changed = changed;
  }

  get isPinned(): boolean {
    return this.#pinned !== undefined;
  }

  get bytes(): number {
    return this.#pinned?.bytes ?? 0;
  }

  /** Stays pinned until the lease ends. */
  used<Held extends Lease>(lease: Held): Held {
    this.#users++;
    this.#isUsed = true;
    const dispose = once(() => {
      lease[Symbol.dispose]();
      this.#users--;
    });
    return { ...lease, [Symbol.dispose]: dispose };
  }

  /** Pages may be given back before it is called and after it is pinned, not in between. */
  pin(): Promise<void> {
    return (this.#underWay ??= this.#pin().finally(() => (this.#underWay = undefined)));
  }

  async #pin(): Promise<void> {
    const { address, bytes } = this.#area;
    this.#area.setPinned(true);
    try {
      this.#pinned = await this.#cuda.pinAside(address, bytes);
    } catch (error) {
      this.#area.setPinned(false);
      throw error;
    }
    this.#isUsed = true;
    this.#idle = setInterval(() => this.#look(), idleMsMax).unref();
    this.#changed();
  }

  #look(): void {
    const isIdle = !this.#isUsed && this.#users === 0;
    this.#isUsed = false;
    if (isIdle) this.#underWay ??= this.#giveUp().finally(() => (this.#underWay = undefined));
  }

  /** Pages that are given back while they are pinned would stay with the GPU, and the host would write to others. */
  async #giveUp(): Promise<void> {
    const pinned = this.#pinned;
    if (pinned === undefined) return;
    clearInterval(this.#idle);
    this.#pinned = undefined;
    await pinned.releaseAside();
    this.#area.setPinned(false);
    this.#changed();
  }

  async close(): Promise<void> {
    await this.#underWay?.catch(() => undefined);
    await this.#giveUp();
  }
}
