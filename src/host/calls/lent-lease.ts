/** A lease of cores that is lent to others while a handler waits for other functions. */
import type { InvokeOthers } from '../../cpu/index.ts';
import type { InvocationTerms, LiveScheduler, Placed } from '../../live/index.ts';
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
      this.lease?.done();
      this.lease = undefined;
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

  /** Exactly once. */
  done(observed?: Parameters<Lease['done']>[0]): void {
    this.#isOver = true;
    this.lease?.done(observed);
    this.lease = undefined;
  }
}

/** Above every priority of a call: what has begun holds memory, and others may wait for it. */
const resumingPriority = 0;

/**
 * A lease for a handler that has begun here, before all calls that have not. Undefined: it continues without one,
 * because its SLO has passed meanwhile, or its caller is gone.
 */
export async function leaseAgain(
  live: LiveScheduler,
  version: FunctionVersion,
  terms: InvocationTerms,
): Promise<Lease | undefined> {
  const { sloMs = version.settings.sloMs, sinceMs = performance.now(), deadlineMs = Infinity } = terms;
  // Its wait ends with its SLO, so it is never among the late calls, nor shed.
  const resuming = { sloMs: Infinity, priority: resumingPriority, deadlineMs: Math.min(deadlineMs, sinceMs + sloMs) };
  try {
    let placed = await live.submit(version, undefined, { ...terms, ...resuming });
    while (placed.kind === 'other') placed = await placed.elsewhere('its handler has begun on this host');
    return placed.kind === 'cpu' ? placed : undefined;
  } catch {
    return undefined;
  }
}
