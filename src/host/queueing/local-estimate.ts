/** How long an invocation would take in this machine's own pool, from what the last ones took. */
import { smoothed } from '../../queue/index.ts';

interface Known {
  callMs: number | undefined;
  outstanding: number;
}

/** Before any invocation was measured. */
const unmeasuredMs = 10;

export class LocalEstimate {
  readonly #known = new Map<string, Known>();

  /** Counts an invocation in; the function that it gives back counts it out. */
  begin(key: string): () => void {
    const known = this.#of(key);
    known.outstanding++;
    return () => void known.outstanding--;
  }

  ran(key: string, callMs: number): void {
    const known = this.#of(key);
    known.callMs = smoothed(known.callMs, callMs);
  }

  /** Milliseconds until one more invocation would be answered, by an instance in each of `slots`. */
  predictedMs(key: string, slots: number): number {
    const known = this.#known.get(key);
    const callMs = known?.callMs ?? unmeasuredMs;
    return Math.floor((known?.outstanding ?? 0) / slots) * callMs + callMs;
  }

  /** Whether something of the function runs or waits here. */
  busy(key: string): boolean {
    return (this.#known.get(key)?.outstanding ?? 0) > 0;
  }

  forget(key: string): void {
    this.#known.delete(key);
  }

  #of(key: string): Known {
    let known = this.#known.get(key);
    if (known === undefined) this.#known.set(key, (known = { callMs: undefined, outstanding: 0 }));
    return known;
  }
}
