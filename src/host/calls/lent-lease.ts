/** A lease of cores that is lent to others while a handler waits for other functions. */
import type { InvokeOthers } from '../../cpu/index.ts';
import type { LiveScheduler, Placed } from '../../live/index.ts';
import type { FunctionVersion } from '../types.ts';

type Lease = Extract<Placed, { readonly kind: 'cpu' | 'other' }>;

/** The scheduler's lease of a handler's cores, returned while the handler waits for other functions. */
export class LentLease {
  /** Undefined while it is returned, or if no new one was granted. */
  lease: Lease | undefined;
  /** How long the handler has waited for other functions. */
  awayMs = 0;
  #isOver = false;

  constructor(lease?: Lease) {
    this.lease = lease;
  }

  /** @param retake gets another lease, for a handler that has begun */
  lending(invokeOthers: InvokeOthers, retake: () => Promise<Lease | undefined>): InvokeOthers {
    return async (calls) => {
      const startMs = performance.now();
      const hadLease = this.lease !== undefined;
      this.giveBack();
      const answers = await invokeOthers(calls);
      if (hadLease && !this.#isOver) {
        const again = await retake();
        // The caller has its answer, or another instance has the call because this one died.
        if (this.#isOver || this.lease !== undefined) again?.done();
        else this.lease = again;
      }
      this.awayMs += performance.now() - startMs;
      return answers;
    };
  }

  /**
   * Returns the cores permanently. The handler's message waits for other functions on behalf of another call, which
   * takes cores for the whole message again. If this call kept its cores, those functions might wait for the cores
   * while the call waits for them.
   */
  giveBack(): void {
    this.lease?.done();
    this.lease = undefined;
  }

  /** Exactly once. */
  done(observed?: Parameters<Lease['done']>[0]): void {
    this.#isOver = true;
    this.lease?.done(observed);
    this.lease = undefined;
  }
}

/**
 * A lease for a handler that has begun here. Undefined: it continues without one, because it is late or its caller is
 * gone.
 */
export async function leaseAgain(
  live: LiveScheduler,
  version: FunctionVersion,
  wish: Parameters<LiveScheduler['submit']>[2],
): Promise<Lease | undefined> {
  try {
    let placed = await live.submit(version, undefined, wish);
    while (placed.kind === 'other') placed = await placed.elsewhere('its handler has begun on this host');
    return placed.kind === 'cpu' ? placed : undefined;
  } catch {
    return undefined;
  }
}
