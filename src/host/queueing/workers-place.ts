/** The workers behind the queue as the scheduler's place, as they were at the latest report of one of them. */
import type { PoolInput } from '../../cpu/index.ts';
import { QueueError, type OverflowOptions, type OverflowQueue } from '../../queue/index.ts';
import { isClose, WorkerSlots, type SideOffer, type WorkersPlace as Slots } from '../../schedule/index.ts';
import type { OtherPlace, RanThere } from '../calls/other-place.ts';

export class WorkersPlace implements OtherPlace {
  readonly id = 'workers';
  readonly countedAs = 'worker';
  readonly runsHandlers = true;
  /** Invocations that a worker or Redis failed, for another place to run. */
  cameBack = 0;
  readonly #overflow: OverflowQueue;
  #known: Slots | null = null;
  #changed: (to: Slots | null) => void = () => undefined;

  constructor(overflow: OverflowQueue) {
    this.#overflow = overflow;
  }

  get roundTripMs(): number {
    return this.#known?.roundTripMs ?? 0;
  }

  lanes(): WorkerSlots {
    return new WorkerSlots(this.#known);
  }

  follow(changed: (to: Slots | null) => void): void {
    this.#changed = changed;
  }

  /** A worker has reported or is gone, or Redis is. */
  look(): void {
    const now = this.#now();
    const before = this.#known;
    const isSame =
      now === null || before === null
        ? now === before
        : now.slots === before.slots && isClose(now.roundTripMs, before.roundTripMs);
    if (isSame) return;
    this.#known = now;
    this.#changed(now);
  }

  /**
   * What a function would take there, the round trip left out. @param ownMs what it takes here, where no worker has
   * measured it
   */
  offer(key: string, ownMs: number | undefined): SideOffer | null {
    const best = this.#overflow.offer(key);
    if (best === undefined) return null;
    const callMs = best.offer.callMs ?? ownMs;
    return { latencyMs: callMs === undefined ? undefined : callMs + best.startMs };
  }

  async run(key: string, input: PoolInput, options: OverflowOptions): Promise<RanThere> {
    try {
      const { result, worker } = await this.#overflow.submit(key, input, options);
      // The name comes from another machine and goes into a header.
      return { result, where: `remote worker ${worker.replaceAll(/[^\x21-\x7e]/g, '?')}` };
    } catch (error) {
      if (error instanceof QueueError && error.code !== 'taken-back') this.cameBack++;
      throw error;
    }
  }

  refusalOf(error: unknown): string | undefined {
    return error instanceof QueueError ? `${this.id}: ${error.message}` : undefined;
  }

  #now(): Slots | null {
    const workers = this.#overflow.workers().filter(({ draining }) => !draining);
    if (workers.length === 0) return null;
    const cores = workers.reduce((sum, worker) => sum + worker.cores, 0);
    const outstanding = workers.reduce((sum, worker) => sum + worker.inFlight, 0);
    // The scheduler counts what this host has there; what others have takes slots away.
    const others = Math.max(0, outstanding - this.#overflow.state().outstanding);
    return { slots: Math.max(1, cores - others), roundTripMs: this.#overflow.roundTripMs ?? 0 };
  }
}
