/** The workers behind the queue as the scheduler's place: what they report, looked at a few times a second. */
import type { OverflowQueue } from '../../queue/index.ts';
import type { WorkersOffer, WorkersPlace } from '../../schedule/index.ts';

const lookEveryMs = 250;
/** A round trip is told when it has changed by this share. */
const worthTelling = 0.2;

export class WorkersWatch {
  readonly #overflow: OverflowQueue;
  readonly #onChange: (workers: WorkersPlace | null) => void;
  readonly #timer: NodeJS.Timeout;
  #known: WorkersPlace | null = null;

  constructor(overflow: OverflowQueue, onChange: (workers: WorkersPlace | null) => void) {
    this.#overflow = overflow;
    this.#onChange = onChange;
    this.#timer = setInterval(() => this.look(), lookEveryMs);
    this.#timer.unref();
  }

  look(): void {
    const now = this.#now();
    const before = this.#known;
    const isSame =
      now === null || before === null
        ? now === before
        : now.slots === before.slots &&
          Math.abs(now.roundTripMs - before.roundTripMs) <= worthTelling * before.roundTripMs;
    if (isSame) return;
    this.#known = now;
    this.#onChange(now);
  }

  /**
   * What a function would take there, the round trip left out. @param ownMs what it takes here, where no worker has
   * measured it
   */
  offer(key: string, ownMs: number | undefined): WorkersOffer | null {
    const offer = this.#overflow.offer(key);
    if (offer === undefined) return null;
    const callMs = offer.callMs ?? ownMs;
    return { latencyMs: callMs === undefined ? undefined : callMs + offer.startMs };
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #now(): WorkersPlace | null {
    const workers = this.#overflow.workers().filter(({ draining }) => !draining);
    if (workers.length === 0) return null;
    const cores = workers.reduce((sum, worker) => sum + worker.cores, 0);
    const outstanding = workers.reduce((sum, worker) => sum + worker.outstanding, 0);
    // The scheduler counts what this host has there; what others have takes slots away.
    const others = Math.max(0, outstanding - this.#overflow.state().outstanding);
    return { slots: Math.max(1, cores - others), roundTripMs: this.#overflow.roundTripMs ?? 0 };
  }
}
