/** The homes of a simulated fleet's functions: observed loads, and src/schedule/fleet's plan for them. */
import {
  assignHomes,
  LoadMeter,
  Ranks,
  type FleetMember,
  type OfferSheet,
  type Given,
  type FunctionId,
} from '../../schedule/index.ts';
import { getOrMake } from '../../tools/index.ts';

/** Interval of measuring loads and planning homes. */
const lookMs = 1000;

export class FleetPlan {
  readonly #names: readonly string[];
  readonly #members: readonly FleetMember[];
  readonly #workMs: (functionIndex: Given<FunctionId>) => number;
  /** For functions that were called. */
  readonly #meters = new Map<number, LoadMeter>();
  /** Homes of functions with load; the others are at home at their first member. */
  #homes: ReadonlyMap<number, readonly number[]> = new Map();
  readonly #ranks: Ranks;
  /** The members that the others believe to be up. */
  #known: readonly number[];
  #lookedMs = 0;
  moves = 0;

  constructor(
    names: readonly string[],
    members: readonly FleetMember[],
    workMs: (functionIndex: Given<FunctionId>) => number,
  ) {
    this.#names = names;
    this.#members = members;
    this.#workMs = workMs;
    this.#known = [...members.keys()];
    this.#ranks = new Ranks(members, names);
  }

  count(functionIndex: Given<FunctionId>): void {
    getOrMake(this.#meters, functionIndex, () => new LoadMeter()).calls++;
  }

  homes(functionIndex: Given<FunctionId>): readonly number[] {
    return this.#homes.get(functionIndex) ?? [this.#ranks.first(functionIndex)];
  }

  /** Sets the members that everyone now knows to be up. */
  setKnown(members: readonly number[]): void {
    this.#known = members;
    if (members.length > 0) this.#make(this.#ranks.setPresent(members));
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

  /** @param moved the functions that have another first member, and which they had */
  #make(moved: ReadonlyMap<number, number> = new Map()): void {
    const known = this.#known.map((member) => this.#members[member]!);
    if (known.length === 0) return;
    const loaded = [...this.#meters].filter(([, { load }]) => load > 0);
    const functions = loaded.map(([index, { load }]) => ({ name: this.#names[index]!, load }));
    const assigned = assignHomes(known, functions);
    const homes = new Map(
      loaded.map(([index], at) => [index, assigned[at]!.map(({ member }) => this.#known[member]!)] as const),
    );
    const before = (index: number): readonly number[] =>
      this.#homes.get(index) ?? [moved.get(index) ?? this.#ranks.first(index)];
    const after = (index: number): readonly number[] => homes.get(index) ?? [this.#ranks.first(index)];
    for (const index of new Set([...this.#homes.keys(), ...homes.keys(), ...moved.keys()])) {
      if (before(index).join() !== after(index).join()) this.moves++;
    }
    this.#homes = homes;
  }
}

/** A function's cost on a host of the fleet, in units of the host's lanes: GPUs, or cores if it has none. */
export interface HostCost {
  /** Milliseconds of a run with all layers resident. */
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
