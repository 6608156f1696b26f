/**
 * Which hosts are the homes of which functions. Called functions are assigned each second by the loads that all hosts
 * report, the others when they are asked for.
 */
import type { Fleet, Member } from '../../fleet/index.ts';
import {
  assignHomes,
  capacityOf,
  coreWorth,
  type CallCost,
  type FleetFunction,
  type FleetMember as RankedMember,
} from '../../schedule/index.ts';
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
  /** Of the called functions. @param worth of a core, in GPUs: what hosts without GPUs tell counts so much */
  readonly loads: (worth: number) => ReadonlyMap<string, number>;
  /** Of functions that are measured at hosts with GPUs and at hosts without. */
  readonly costs: () => Iterable<CallCost>;
  /** This host is a home of the function. */
  readonly onHome: (name: string) => void;
}

export class FleetHomes {
  readonly #options: FleetHomesOptions;
  readonly #homes = new Map<string, readonly string[]>();
  #homesMs = -Infinity;
  /** Of a core. */
  #worth = 1;
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
    this.#bring();
  }

  #bring(): void {
    const change = ++this.#changes;
    this.#bringing = this.#bringing.then(async () => await this.#bringIdle(change));
  }

  #assignCalled(nowMs: number): void {
    const { fleet, onHome, loads, costs } = this.#options;
    this.#homesMs = nowMs;
    this.#homes.clear();
    const worth = coreWorth(this.#hosts(), costs());
    if (worth !== this.#worth) this.#bring();
    this.#worth = worth;
    const functions = Array.from(loads(worth), ([name, load]) => ({ name, load }));
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

  #hosts(): Member[] {
    const { fleet } = this.#options;
    return [fleet.membership.self(), ...fleet.others()];
  }

  #members(): RankedMember[] {
    return this.#hosts().map((host) => rankedMember(host, this.#worth));
  }
}

function homesAmong(members: readonly RankedMember[], functions: readonly FleetFunction[]): string[][] {
  return assignHomes(members, functions).map((homes) => homes.map(({ member }) => members[member]!.id));
}

/** A host for the router. */
const rankedMember = (host: Member, worth: number): RankedMember => ({
  id: host.name,
  capacity: capacityOf(host, worth),
  isLeaving: host.draining,
});
