/** The homes of a simulated fleet's functions: observed loads, and src/schedule/fleet's plan for them. */
import { assignHomes, LoadMeter, rankMembers, type FleetMember, type OfferSheet } from '../../schedule/index.ts';
import { getOrMake } from '../../tools/index.ts';

/** Interval of measuring loads and planning homes. */
const lookMs = 1000;

export class FleetPlan {
  readonly #names: readonly string[];
  readonly #members: readonly FleetMember[];
  readonly #workMs: (functionIndex: number) => number;
  /** For functions that were called. */
  readonly #meters = new Map<number, LoadMeter>();
  #homes: readonly (readonly number[])[] = [];
  /** The members that the others believe to be up. */
  #known: readonly number[];
  #lookedMs = 0;
  moves = 0;

  constructor(names: readonly string[], members: readonly FleetMember[], workMs: (functionIndex: number) => number) {
    this.#names = names;
    this.#members = members;
    this.#workMs = workMs;
    this.#known = [...members.keys()];
    this.#make();
  }

  count(functionIndex: number): void {
    getOrMake(this.#meters, functionIndex, () => new LoadMeter()).calls++;
  }

  homes(functionIndex: number): readonly number[] {
    return this.#homes[functionIndex]!;
  }

  /** All members in the order of the function's scores, for a function whose homes are all gone. */
  ranked(functionIndex: number): readonly number[] {
    return rankMembers(this.#members, this.#names[functionIndex]!);
  }

  /** Sets the members that everyone now knows to be up. */
  setKnown(members: readonly number[]): void {
    this.#known = members;
    this.#make();
  }

  advance(nowMs: number): void {
    const sinceMs = nowMs - this.#lookedMs;
    if (sinceMs < lookMs) return;
    this.#lookedMs = nowMs;
    let isNews = false;
    for (const [index, meter] of this.#meters) {
      const { load } = meter;
      meter.look(sinceMs / 1000, this.#workMs(index));
      isNews ||= meter.load !== load;
    }
    if (isNews) this.#make();
  }

  #make(): void {
    const known = this.#known.map((member) => this.#members[member]!);
    if (known.length === 0) return;
    const functions = this.#names.map((name, index) => ({ name, load: this.#meters.get(index)?.load ?? 0 }));
    const homes = assignHomes(known, functions).map((each) => each.map(({ member }) => this.#known[member]!));
    for (const [index, before] of this.#homes.entries()) {
      if (before.join() !== homes[index]!.join()) this.moves++;
    }
    this.#homes = homes;
  }
}

/** A function's cost on a host of the fleet, in units of the host's lanes: GPUs, or cores if it has none. */
export interface HostCost {
  /** Of a run with all layers resident. */
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
