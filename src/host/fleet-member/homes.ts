/**
 * Which hosts are the homes of which functions. Called functions are assigned each second by the loads that all hosts
 * report, the others when they are asked for. Moves are detected and reported.
 */
import type { Fleet, Member } from '../../fleet/index.ts';
import { assignHomes, type FleetFunction, type FleetMember as RankedMember } from '../../schedule/index.ts';
import { Slices } from '../limits/slices.ts';
import type { HomeMoves } from './moves.ts';
import { getOrMake } from '../../tools/index.ts';

/** Homes are computed again after this. */
const homesForMs = 1000;
/** Functions whose homes are computed between two looks at the clock. */
const atOnce = 100;

export interface FleetHomesOptions {
  readonly fleet: Fleet;
  readonly moves: HomeMoves;
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
  /** The latest homes of the called functions, and the hosts at that time. */
  #assigned: ReadonlyMap<string, readonly string[]> = new Map();
  #assignedMembers: readonly RankedMember[] = [];
  /** The hosts at their latest change; undefined: there was none. */
  #knownMembers: readonly RankedMember[] | undefined;
  #comparing = Promise.resolve();

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
    const [before, now] = [this.#knownMembers, this.#members()];
    this.#knownMembers = now;
    this.#assignCalled(performance.now());
    if (before === undefined) return;
    this.#comparing = this.#comparing.then(async () => await this.#compareIdle(before, now));
  }

  #assignCalled(nowMs: number): void {
    const { fleet, onHome, moves, loads } = this.#options;
    this.#homesMs = nowMs;
    this.#homes.clear();
    const functions = Array.from(loads(), ([name, load]) => ({ name, load }));
    const members = this.#members();
    const assigned = new Map<string, readonly string[]>();
    for (const [index, homes] of homesAmong(members, functions).entries()) {
      const { name } = functions[index]!;
      this.#homes.set(name, homes);
      assigned.set(name, homes);
      if (homes.includes(fleet.membership.name)) onHome(name);
      const before = this.#assigned.get(name);
      if (before !== undefined) moves.compare(name, [before, homes], [this.#assignedMembers, members]);
    }
    [this.#assigned, this.#assignedMembers] = [assigned, members];
  }

  /** For uncalled functions, before and after the hosts changed. */
  async #compareIdle(before: readonly RankedMember[], now: readonly RankedMember[]): Promise<void> {
    const { fleet, names, moves, onHome } = this.#options;
    const idle = names().filter((name) => !this.#assigned.has(name));
    const slices = new Slices();
    for (let at = 0; at < idle.length; at += atOnce) {
      const functions = idle.slice(at, at + atOnce).map((name) => ({ name, load: 0 }));
      const [were, are] = [homesAmong(before, functions), homesAmong(now, functions)];
      for (const [index, { name }] of functions.entries()) {
        moves.compare(name, [were[index]!, are[index]!], [before, now]);
        if (are[index]![0] === fleet.membership.name) onHome(name);
      }
      if (slices.isOver) await slices.rest();
    }
    moves.tellRest();
  }

  #members(): RankedMember[] {
    const { membership } = this.#options.fleet;
    return [membership.self(), ...membership.others()].map(rankedMember);
  }
}

function homesAmong(members: readonly RankedMember[], functions: readonly FleetFunction[]): string[][] {
  return assignHomes(members, functions).map((homes) => homes.map(({ member }) => members[member]!.id));
}

/** A host for the router: busy milliseconds a second, of its GPUs, else of its cores. */
export function rankedMember({ name, gpus, cores, draining }: Member): RankedMember {
  return { id: name, capacity: 1000 * (gpus > 0 ? gpus : cores), isLeaving: draining };
}
