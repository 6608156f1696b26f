/** The load that a function reports. The figure stays the same while observations differ from it by chance alone. */

/** The weight of half a second against all before it, at most: a change shows within seconds. */
const halfSecondWeight = 0.2;
/**
 * A figure rests on at least this many calls, however long they take to come. With random (Poisson) arrivals its
 * deviation is then 1/sqrt(2 * 128), 6%.
 */
const callsMin = 128;
/** A new figure is reported when it differs by this share: six deviations. */
const shareMin = 0.4;

export class LoadMeter {
  /** Calls since the last look. */
  calls = 0;
  #looks = 0;
  /** The smoothed load, and the one that the host reports, in busy milliseconds a second. */
  #smoothed = 0;
  #reported = 0;

  /** The reported figure, by which homes are found. */
  get load(): number {
    return this.#reported;
  }

  /** Call this every half second or second. @param callMs how long one call keeps a lane busy */
  look(seconds: number, callMs: number): void {
    this.#looks = Math.min(callsMin, this.#looks + 1);
    // The weight goes by the calls that the old figure predicts. By the calls that came, busy seconds would weigh more
    // and the figure would be too high.
    const expected = callMs === 0 ? 0 : (this.#smoothed / callMs) * seconds;
    const most = 1 - (1 - halfSecondWeight) ** (2 * seconds);
    const weight = Math.max(1 / this.#looks, Math.min(most, expected / callsMin));
    this.#smoothed += weight * ((this.calls / seconds) * callMs - this.#smoothed);
    this.calls = 0;
    if (Math.abs(this.#smoothed - this.#reported) > shareMin * this.#reported) this.#reported = this.#smoothed;
  }
}
