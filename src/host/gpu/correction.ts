/** Predicted times corrected by observed ones: what a profile said, times what runs have taken of it lately. */
import { scaledOffer, type GpuOffer } from '../../schedule/index.ts';

/** Weight of the latest observation in the moving average. */
const weight = 0.2;
/** A single run that met something else must not make a function look impossible, or free. */
const factorMin = 0.25;
const factorMax = 4;
/** What is offered changes when a factor has moved by this share: the scheduler need not follow every flicker. */
const worthTelling = 0.2;

export class Correction {
  #warm = 1;
  #cold = 1;
  #offeredWarm = 1;
  #offeredCold = 1;

  /** Takes one run in. Returns whether what is offered should change. */
  observe(start: 'warm' | 'cold', observedMs: number, profiledMs: number): boolean {
    if (!(profiledMs > 0)) return false;
    const ratio = Math.min(factorMax, Math.max(factorMin, observedMs / profiledMs));
    if (start === 'warm') this.#warm += weight * (ratio - this.#warm);
    else this.#cold += weight * (ratio - this.#cold);
    return hasMoved(this.#warm, this.#offeredWarm) || hasMoved(this.#cold, this.#offeredCold);
  }

  /** What a profile offers, as it looks now. */
  offers(profiled: readonly (GpuOffer | null)[]): readonly (GpuOffer | null)[] {
    this.#offeredWarm = this.#warm;
    this.#offeredCold = this.#cold;
    return profiled.map((offer) => offer && scaledOffer(offer, { warm: this.#warm, cold: this.#cold }));
  }
}

const hasMoved = (factor: number, offered: number): boolean => Math.abs(factor / offered - 1) > worthTelling;
