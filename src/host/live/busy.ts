/** How much of the latest seconds a lane was busy: sums by slices of time, of which the oldest are used again. */
const sliceMs = 500;
const slices = 20;

/** The span that a share is of. */
export const busyWindowMs = sliceMs * slices;

export class BusyShare {
  readonly #ms = new Float64Array(slices);
  #latest = 0;

  /** Work of `durationMs` that ended at `endMs`, on a clock that never goes back. */
  add(endMs: number, durationMs: number): void {
    this.#advance(endMs);
    // What began before the slice of its end belongs to the ones in front of it, as far as they are kept.
    let toMs = endMs;
    let leftMs = durationMs;
    for (let back = 0; back < slices && leftMs > 0; back++) {
      const slice = Math.floor(endMs / sliceMs) - back;
      const partMs = Math.min(leftMs, toMs - slice * sliceMs);
      if (slice >= 0) this.#ms[slice % slices]! += partMs;
      leftMs -= partMs;
      toMs = slice * sliceMs;
    }
  }

  /** From 0 to 1, of the latest {@link busyWindowMs} milliseconds. */
  share(nowMs: number): number {
    this.#advance(nowMs);
    return Math.min(1, this.#ms.reduce((sum, ms) => sum + ms, 0) / busyWindowMs);
  }

  #advance(nowMs: number): void {
    const slice = Math.floor(nowMs / sliceMs);
    for (let next = Math.max(this.#latest + 1, slice - slices + 1); next <= slice; next++) this.#ms[next % slices] = 0;
    this.#latest = Math.max(this.#latest, slice);
  }
}
