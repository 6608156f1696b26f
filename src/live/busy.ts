/** How busy a lane was in the last seconds: sums per time slice, in a ring of slices. */
const sliceMs = 500;
const slices = 20;

/** The window of the share, in milliseconds. */
export const busyWindowMs = sliceMs * slices;

export class BusyShare {
  readonly #ms = new Float64Array(slices);
  #latestSlice = 0;

  /** Work of `durationMs` that ended at `endMs`, on a clock that never goes back. */
  add(endMs: number, durationMs: number): void {
    this.#advance(endMs);
    // Work that began before the slice of its end counts in the earlier slices, as far as they are kept.
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

  /** From 0 to 1, over the latest {@link busyWindowMs} milliseconds. */
  share(nowMs: number): number {
    this.#advance(nowMs);
    return Math.min(1, this.#ms.reduce((sum, ms) => sum + ms, 0) / busyWindowMs);
  }

  #advance(nowMs: number): void {
    const slice = Math.floor(nowMs / sliceMs);
    for (let next = Math.max(this.#latestSlice + 1, slice - slices + 1); next <= slice; next++)
      this.#ms[next % slices] = 0;
    this.#latestSlice = Math.max(this.#latestSlice, slice);
  }
}
