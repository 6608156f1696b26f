/**
 * The homes of a simulated fleet's functions: rates as they were seen, and the plan that src/schedule/fleet makes of
 * them.
 */
import { assignHomes, rankMembers, type FleetMember, type OfferSheet } from '../../schedule/index.ts';

/** How often rates are looked at; at the beginning, when nothing is known, after 1, 2, 4 and 8 s. */
const windowMs = 10_000;
const firstWindowMs = 1000;
/** Of a rate, what the latest window counts. */
const latestShare = 0.5;

export class FleetPlan {
  readonly #names: readonly string[];
  readonly #members: readonly FleetMember[];
  readonly #workMs: (functionIndex: number) => number;
  readonly #counts: Float64Array;
  readonly #ratePerS: Float64Array;
  #homes: readonly (readonly number[])[] = [];
  /** Those that are up as far as the others know. */
  #known: readonly number[];
  #plannedMs = 0;
  #nextMs = firstWindowMs;
  moves = 0;

  constructor(names: readonly string[], members: readonly FleetMember[], workMs: (functionIndex: number) => number) {
    this.#names = names;
    this.#members = members;
    this.#workMs = workMs;
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
    const seconds = (nowMs - this.#plannedMs) / 1000;
    for (const [index, count] of this.#counts.entries()) {
      const latest = count / seconds;
      const before = this.#ratePerS[index]!;
      // What was learnt of nothing is nothing to go by.
      this.#ratePerS[index] = this.#plannedMs === 0 ? latest : before + latestShare * (latest - before);
    }
    this.#plannedMs = nowMs;
    this.#nextMs = nowMs + Math.min(windowMs, nowMs);
    this.#counts.fill(0);
    this.#make();
  }

  #make(): void {
    const known = this.#known.map((member) => this.#members[member]!);
    if (known.length === 0) return;
    const functions = this.#names.map((name, index) => {
      const ratePerS = this.#ratePerS[index]!;
      return { name, load: ratePerS === 0 ? 0 : ratePerS * this.#workMs(index) };
    });
    const homes = assignHomes(known, functions).map((each) => each.map(({ member }) => this.#known[member]!));
    for (const [index, before] of this.#homes.entries()) {
      if (before.join() !== homes[index]!.join()) this.moves++;
    }
    this.#homes = homes;
  }
}

/** What a function costs on a host of the fleet, in the unit of the host's lanes: GPUs, or cores where it has none. */
export interface HostCost {
  /** Of a run with everything there. */
  readonly warmMs: number;
  /** And with nothing there. */
  readonly coldMs: number;
  /** Lanes that a run takes. */
  readonly lanes: number;
}

export function hostCost({ gpus, cpu }: OfferSheet): HostCost {
  let best: HostCost | undefined;
  for (const offer of gpus) {
    if (offer === null || (best !== undefined && offer.warmMs >= best.warmMs)) continue;
    best = { warmMs: offer.warmMs, coldMs: offer.ways.at(-1)!.coldMs[0]!, lanes: 1 };
  }
  const runMs = cpu?.latencyMs ?? 0;
  return best ?? { warmMs: runMs, coldMs: runMs + (cpu?.loadMs ?? 0), lanes: cpu?.cores ?? 1 };
}
