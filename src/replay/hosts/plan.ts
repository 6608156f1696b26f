/** The homes of a simulated fleet's functions: rates as they were seen, and the plan that src/schedule/fleet makes of them. */
import { assignHomes, rankMembers, type FleetMember, type OfferSheet } from '../../schedule/index.ts';

/** How often rates are looked at. */
const windowMs = 10_000;
/** Of a rate, what the latest window counts. */
const latestShare = 0.5;

export class FleetPlan {
  readonly #names: readonly string[];
  readonly #members: readonly FleetMember[];
  readonly #warmMs: (functionIndex: number) => number;
  readonly #counts: Float64Array;
  readonly #ratePerS: Float64Array;
  #homes: readonly (readonly number[])[] = [];
  /** Those that are up as far as the others know. */
  #known: readonly number[];
  #nextMs = windowMs;
  #isFirst = true;
  moves = 0;

  constructor(names: readonly string[], members: readonly FleetMember[], warmMs: (functionIndex: number) => number) {
    this.#names = names;
    this.#members = members;
    this.#warmMs = warmMs;
    this.#counts = new Float64Array(names.length);
    this.#ratePerS = new Float64Array(names.length);
    this.#known = [...members.keys()];
    this.#make();
  }

  count(functionIndex: number): void {
    this.#counts[functionIndex]!++;
  }

  homes(functionIndex: number): readonly number[] {
    return this.#homes[functionIndex]!;
  }

  /** All members in the order of the function's scores, for a function whose homes are all gone. */
  ranked(functionIndex: number): readonly number[] {
    return rankMembers(this.#members, this.#names[functionIndex]!);
  }

  /** Everyone knows now who is up. */
  setKnown(members: readonly number[]): void {
    this.#known = members;
    this.#make();
  }

  advance(nowMs: number): void {
    if (nowMs < this.#nextMs) return;
    const windows = 1 + Math.floor((nowMs - this.#nextMs) / windowMs);
    this.#nextMs += windows * windowMs;
    for (const [index, count] of this.#counts.entries()) {
      const latest = (count * 1000) / (windows * windowMs);
      const before = this.#ratePerS[index]!;
      // What was learnt of nothing is nothing to go by.
      this.#ratePerS[index] = this.#isFirst ? latest : before + latestShare * (latest - before);
    }
    this.#isFirst = false;
    this.#counts.fill(0);
    this.#make();
  }

  #make(): void {
    const known = this.#known.map((member) => this.#members[member]!);
    if (known.length === 0) return;
    const functions = this.#names.map((name, index) => {
      const ratePerS = this.#ratePerS[index]!;
      return { name, load: ratePerS === 0 ? 0 : ratePerS * this.#warmMs(index) };
    });
    const homes = assignHomes(known, functions).map((each) => each.map(({ member }) => this.#known[member]!));
    for (const [index, before] of this.#homes.entries()) {
      if (before.join() !== homes[index]!.join()) this.moves++;
    }
    this.#homes = homes;
  }
}

/** Of a run with everything there, on the GPU that is fastest at it; what the CPU takes where there is no GPU. */
export function warmMsOf({ gpus, cpu }: OfferSheet): number {
  const warm = gpus.reduce((least, offer) => Math.min(least, offer?.warmMs ?? Infinity), Infinity);
  return Number.isFinite(warm) ? warm : (cpu?.latencyMs ?? 0);
}
