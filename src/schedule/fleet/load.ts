/** The load that a function is said to make: a figure that stays while what is seen differs from it by chance alone. */

/** What half a second counts beside all before it, at most: so a change is seen within seconds. */
const halfSecondWeight = 0.2;
/**
 * A figure is of so many calls at least, however long these take to come. Calls that come at random (Poisson) make it waver with a
 * deviation of 1/sqrt(2 * 128), 6%.
 */
const callsMin = 128;
/** Another figure is told when it differs by this share: six deviations. */
const shareMin = 0.4;

export class LoadMeter {
  /** Since it was looked at last. */
  calls = 0;
  #looks = 0;
  /** Smoothed, in busy milliseconds a second. */
  #seen = 0;
  #told = 0;

  /** What is told, and what homes are found by. */
  get load(): number {
    return this.#told;
  }

  /** To be called every half second or second. @param callMs how long one call keeps a lane busy */
  look(seconds: number, callMs: number): void {
    this.#looks = Math.min(callsMin, this.#looks + 1);
    // Of what was known before: a weight by the calls that have come would count much where many have, and so too much.
    const expected = callMs === 0 ? 0 : (this.#seen / callMs) * seconds;
    const most = 1 - (1 - halfSecondWeight) ** (2 * seconds);
    const weight = Math.max(1 / this.#looks, Math.min(most, expected / callsMin));
    this.#seen += weight * ((this.calls / seconds) * callMs - this.#seen);
    this.calls = 0;
    if (Math.abs(this.#seen - this.#told) > shareMin * this.#told) this.#told = this.#seen;
  }
}
