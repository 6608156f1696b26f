/**
 * Which hosts are the homes of which functions. Called functions are assigned each second by the loads that all hosts
 * report, the others when they are asked for.
 */
import type { Fleet, Member } from '../../fleet/index.ts';
import { assignHomes, type FleetFunction, type FleetMember as RankedMember } from '../../schedule/index.ts';
import { Slices } from '../limits/slices.ts';
import { getOrMake } from '../../tools/index.ts';

/** Homes are computed again after this. */
const homesForMs = 1000;
/** Functions whose homes are computed between two looks at the clock. */
const atOnce = 100;

export interface FleetHomesOptions {
  readonly fleet: Fleet;
  /** Of all functions. */
  readonly names: () => readonly string[];
  /** Of the called functions. */
  readonly loads: () => ReadonlyMap<string, number>;
  /** This host is a home of the function. */
  readonly onHome: (name: string) => void;
}

export class FleetHomes {
  readonly #options: FleetHomesOptions;
  readonly #homes = new Map<string, readonly string[]>();
  #homesMs = -Infinity;
  #bringing = Promise.resolve();
  /** Of the members, so far. */
  #changes = 0;

  constructor(options: FleetHomesOptions) {
    this.#options = options;
  }

  /** The first one best. */
  of(name: string): readonly string[] {
    const nowMs = performance.now();
    if (nowMs - this.#homesMs > homesForMs) this.#assignCalled(nowMs);
    return getOrMake(this.#homes, name, () => homesAmong(this.#members(), [{ name, load: 0 }])[0]!);
  }

  membersChanged(): void {
    this.#assignCalled(performance.now());
    const change = ++this.#changes;
    this.#bringing = this.#bringing.then(async () => await this.#bringIdle(change));
  }

  #assignCalled(nowMs: number): void {
    const { fleet, onHome, loads } = this.#options;
    this.#homesMs = nowMs;
    this.#homes.clear();
    const functions = Array.from(loads(), ([name, load]) => ({ name, load }));
    for (const [index, homes] of homesAmong(this.#members(), functions).entries()) {
      const { name } = functions[index]!;
      this.#homes.set(name, homes);
      if (homes.includes(fleet.membership.name)) onHome(name);
    }
  }

  /** Functions that nobody calls come to their homes as well. */
  async #bringIdle(change: number): Promise<void> {
    const { fleet, names, onHome } = this.#options;
    const members = this.#members();
    const all = names();
    const slices = new Slices();
    // A later change looks at all of them anyway: a fleet that starts has as many changes as hosts.
    for (let at = 0; at < all.length && change === this.#changes; at += atOnce) {
      const functions = all.slice(at, at + atOnce).map((name) => ({ name, load: 0 }));
      for (const [index, homes] of homesAmong(members, functions).entries()) {
        if (homes[0] === fleet.membership.name) onHome(functions[index]!.name);
      }
      if (slices.isOver) await slices.rest();
    }
  }

  #members(): RankedMember[] {
    const { fleet } = this.#options;
    return [fleet.membership.self(), ...fleet.others()].map(rankedMember);
  }
}

function homesAmong(members: readonly RankedMember[], functions: readonly FleetFunction[]): string[][] {
  return assignHomes(members, functions).map((homes) => homes.map(({ member }) => members[member]!.id));
}

/** A host for the router: busy milliseconds a second, of its GPUs, else of its cores. */
export function rankedMember({ name, gpus, cores, draining }: Member): RankedMember {
  return { id: name, capacity: 1000 * (gpus > 0 ? gpus : cores), isLeaving: draining };
}
