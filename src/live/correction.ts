/**
 * Corrects predicted times by observed ones: the profile's time, times the recent ratio of observed to profiled, plus
 * what a run holds its GPU for beyond that. The way of its outputs is not in it: the next run begins before they come.
 */
import { scaledOffer, type GpuOffer } from '../schedule/index.ts';
import { smoothed } from '../tools/index.ts';

/** Half-life of the overhead of the way to the GPU process. */
const forgetMs = 1000;
/** A single unusual run must not make a function look impossible, or free. */
const factorMin = 0.25;
const factorMax = 4;
/** Offers change when a factor has moved by this share, so that the scheduler need not follow every flicker. */
const worthTelling = 0.2;

export class Correction {
  #warm = 1;
  #cold = 1;
  #overheadMs: number | undefined;
  /** When an invocation first came after the last run; undefined: none has come since. */
  #calledAtMs: number | undefined;
  #offeredOverheadMs = 0;
  #offeredWarm = 1;
  #offeredCold = 1;

  /** Takes in one run. Returns whether offers should change. */
  observe(start: 'warm' | 'cold', observedMs: number, profiledMs: number): boolean {
    if (!(profiledMs > 0)) return false;
    const ratio = Math.min(factorMax, Math.max(factorMin, observedMs / profiledMs));
    if (start === 'warm') this.#warm = smoothed(this.#warm, ratio);
    else this.#cold = smoothed(this.#cold, ratio);
    return hasMoved(this.#warm, this.#offeredWarm) || hasMoved(this.#cold, this.#offeredCold);
  }

  /** Takes in how long a run has held its GPU beyond the GPU's own time. Returns whether offers should change. */
  observeOverhead(ms: number, profiledMs: number): boolean {
    this.#calledAtMs = undefined;
    this.#overheadMs = smoothed(this.#overheadMs, ms);
    const offeredMs = profiledMs * this.#offeredWarm + this.#offeredOverheadMs;
    return Math.abs(this.#overheadMs - this.#offeredOverheadMs) > worthTelling * offeredMs;
  }

  /**
   * Takes in that an invocation comes. A once long way would keep every invocation away, and so never be measured again.
   * It is therefore halved for each second in which invocations come and none runs; a pause without invocations says
   * nothing of the way. Returns whether offers should change.
   */
  called(nowMs: number): boolean {
    this.#calledAtMs ??= nowMs;
    const halves = Math.floor((nowMs - this.#calledAtMs) / forgetMs);
    if (this.#overheadMs === undefined || halves < 1 || this.#offeredOverheadMs === 0) return false;
    this.#calledAtMs += halves * forgetMs;
    this.#overheadMs = halves > 10 ? 0 : this.#overheadMs / 2 ** halves;
    return true;
  }

  /** The corrected GPU time of a profiled warm run. */
  warmMs(profiledMs: number): number {
    return profiledMs * this.#warm;
  }

  /** The profile's offers, corrected. */
  offers(profiled: readonly (GpuOffer | null)[]): readonly (GpuOffer | null)[] {
    this.#offeredWarm = this.#warm;
    this.#offeredCold = this.#cold;
    this.#offeredOverheadMs = this.#overheadMs ?? 0;
    const factors = { warm: this.#warm, cold: this.#cold, lateMs: this.#offeredOverheadMs };
    return profiled.map((offer) => offer && scaledOffer(offer, factors));
  }
}

const hasMoved = (factor: number, offered: number): boolean => Math.abs(factor / offered - 1) > worthTelling;
