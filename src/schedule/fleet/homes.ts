/**
 * Which hosts of a fleet are a function's homes. A pure function of the members and the predicted loads: hosts with the
 * same knowledge find the same homes, whatever order they learnt it in. Rendezvous hashing with bounded load (after
 * Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018).
 */
import { hashText, rankScore, type TextHash } from './rank.ts';

export interface FleetMember {
  readonly id: string;
  /** Milliseconds of GPU or lane time that it has in each second: 8 GPUs make 8000. */
  readonly capacity: number;
  /** The member drains: it is a home only where no other member can be. */
  readonly isLeaving?: boolean;
}

export interface FleetFunction {
  readonly name: string;
  /**
   * Predicted over the whole fleet, in the unit of the capacity: calls a second times the milliseconds that a call
   * keeps a lane.
   */
  readonly load: number;
}

export interface Home {
  /** Index into the given members. */
  readonly member: number;
  /** The part of the function's load that is planned for this member. */
  readonly load: number;
}

export interface MemberSize {
  readonly gpus: number;
  readonly cores: number;
}

/** What a call of a function takes: of a GPU at members that have some, of cores at members that have none. */
export interface CallCost {
  readonly gpuMs: number;
  readonly coreMs: number;
}

/** Less than any score. */
const hasBeenTried = -1;

/** A member is never planned to have more than this over its fair share of all load... */
const slack = 0.25;
/** ...unless that is less than this share of its capacity: a fleet with little to do moves nothing for balance. */
const comfort = 0.4;
/** The most of a member's limit that one function may take; a function with more load gets more homes. */
const pieceShare = 0.5;
/** Loads are rounded to steps of 19%, so that a rate that wavers changes nothing. */
const stepsPerDoubling = 4;

/**
 * The homes of each function, the first one best; at least one each. Where a function's load needs several, they share
 * it. No member is planned more than its limit plus one function's piece of it (`homeLimits`), unless the functions'
 * loads exceed what all members together may have.
 *
 * Throws RangeError for a fleet without members, two members of one name, and a capacity or load that is negative or
 * NaN.
 */
export function assignHomes(
  members: readonly FleetMember[],
  functions: readonly FleetFunction[],
): readonly (readonly Home[])[] {
  const planner = new HomePlanner(members, weightsOf(members), homeLimits(members, functions));
  const hashes = functions.map(({ name }) => hashText(name));
  const steps = functions.map(({ load }) => steppedLoad(load));
  // The heaviest functions choose first, while there is most room. Ties are broken by name alone.
  const order = [...functions.keys()].sort(
    (a, b) =>
      steps[b]! - steps[a]! ||
      hashes[a]!.high - hashes[b]!.high ||
      hashes[a]!.low - hashes[b]!.low ||
      (functions[a]!.name < functions[b]!.name ? -1 : 1),
  );
  const homes: (readonly Home[])[] = functions.map(() => []);
  const total = exactSum(steps);
  let placed = 0;
  for (const index of order) {
    placed += steps[index]!;
    homes[index] = planner.homes(hashes[index]!, steps[index]!, total === 0 ? 1 : placed / total);
  }
  return homes;
}

/** The most load that each member may be planned. Throws as `assignHomes`. */
export function homeLimits(members: readonly FleetMember[], functions: readonly FleetFunction[]): readonly number[] {
  const weights = weightsOf(members);
  for (const { name, load } of functions) {
    if (!(load >= 0 && load < Infinity)) {
      throw new RangeError(`the load of '${name}' is ${load}; it is a number of at least 0`);
    }
  }
  const load = exactSum(functions.map((each) => steppedLoad(each.load)));
  const capacity = exactSum(weights);
  // Rounded to steps too: a limit that moved with every call would move functions.
  const fill = Math.max(comfort, steppedLoad(((1 + slack) * load) / capacity));
  return weights.map((weight) => weight * fill);
}

/** Each member's weight: its capacity, or 0 while it leaves. If all would be 0, all count alike. */
export function weightsOf(members: readonly FleetMember[]): number[] {
  if (members.length === 0) throw new RangeError('a fleet of no members has no homes');
  if (new Set(members.map(({ id }) => id)).size < members.length) {
    throw new RangeError('two members of the fleet have one name');
  }
  for (const { id, capacity } of members) {
    if (!(capacity >= 0 && capacity < Infinity)) {
      throw new RangeError(`the capacity of '${id}' is ${capacity}; it is a number of at least 0`);
    }
  }
  const weights = members.map(({ capacity, isLeaving = false }) => (isLeaving ? 0 : capacity));
  if (weights.some((weight) => weight > 0)) return weights;
  const capacities = members.map(({ capacity }) => capacity);
  return capacities.some((capacity) => capacity > 0) ? capacities : members.map(() => 1);
}

/**
 * How many GPUs a core is worth, by functions that are measured at both kinds of members; in steps, so that times that waver
 * change nothing. Members of one kind have nothing to compare: 1. 0 where no function is measured at both: a member
 * without GPUs is then a home only where no other can be.
 */
export function coreWorth(members: readonly MemberSize[], costs: Iterable<CallCost>): number {
  if (new Set(members.map(({ gpus }) => gpus > 0)).size < 2) return 1;
  const measured = [...costs].filter(({ gpuMs, coreMs }) => gpuMs > 0 && coreMs > 0);
  const coreMs = exactSum(measured.map((cost) => cost.coreMs));
  return coreMs === 0 ? 0 : steppedLoad(exactSum(measured.map((cost) => cost.gpuMs)) / coreMs);
}

/** A member's capacity: of its GPUs, or if it has none of its cores. @param worth of a core, as `coreWorth` says */
export const capacityOf = ({ gpus, cores }: MemberSize, worth: number): number =>
  1000 * (gpus > 0 ? gpus : cores * worth);

/** The same sum in whatever order the values come. */
function exactSum(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b).reduce((sum, value) => sum + value, 0);
}

function steppedLoad(load: number): number {
  return load === 0 ? 0 : 2 ** (Math.ceil(Math.log2(load) * stepsPerDoubling - 1e-9) / stepsPerDoubling);
}

class HomePlanner {
  readonly #ids: readonly string[];
  readonly #hashes: readonly TextHash[];
  /** Members with a limit; the others are no homes. */
  readonly #open: readonly number[];
  readonly #weights: readonly number[];
  readonly #limits: readonly number[];
  readonly #planned: Float64Array;
  readonly #scores: Float64Array;

  constructor(members: readonly FleetMember[], weights: readonly number[], limits: readonly number[]) {
    this.#ids = members.map(({ id }) => id);
    this.#hashes = this.#ids.map(hashText);
    this.#open = [...members.keys()].filter((member) => weights[member]! > 0);
    this.#weights = weights;
    this.#limits = limits;
    this.#planned = new Float64Array(members.length);
    this.#scores = new Float64Array(members.length);
  }

  /** @param share of all load that has been planned, this function's included. */
  homes(hash: TextHash, load: number, share: number): Home[] {
    const scores = this.#scores;
    // Limits open as load is planned. Otherwise the heaviest functions would fill some members completely, and those
    // would be home to none of the thousands of rarely called functions.
    const opened = share + (1 - share) * pieceShare;
    for (const member of this.#open) scores[member] = rankScore(hash, this.#hashes[member]!, this.#weights[member]!);
    const homes: Home[] = [];
    let left = load;
    // By score, the members that have room for a piece.
    for (let tried = 0; tried < this.#open.length; tried++) {
      const member = this.#best(scores);
      scores[member] = hasBeenTried;
      const piece = Math.min(left, pieceShare * this.#limits[member]!);
      if (piece > 0 && this.#planned[member]! + piece > opened * this.#limits[member]!) continue;
      left -= this.#plan(homes, member, piece);
      if (left <= 0) return homes;
    }
    // No member has room for a piece of this size: take those with the least load for their size.
    const others = this.#open.filter((member) => !homes.some((home) => home.member === member));
    while (others.length > 0 && left > 0) {
      const member = this.#leastFilled(others);
      others.splice(others.indexOf(member), 1);
      left -= this.#plan(homes, member, Math.min(left, pieceShare * this.#limits[member]!));
    }
    // The function alone has more load than the fleet is planned for.
    if (left <= 0) return homes;
    const limits = this.#limits;
    const limitSum = homes.reduce((sum, { member }) => sum + limits[member]!, 0);
    return homes.map(({ member, load: piece }) => {
      const more = (left * limits[member]!) / limitSum;
      this.#planned[member]! += more;
      return { member, load: piece + more };
    });
  }

  #plan(homes: Home[], member: number, piece: number): number {
    this.#planned[member]! += piece;
    homes.push({ member, load: piece });
    return piece;
  }

  #best(scores: Float64Array): number {
    let best = this.#open[0]!;
    for (const member of this.#open) {
      if (scores[member]! < scores[best]!) continue;
      if (scores[member]! > scores[best]! || this.#ids[member]! < this.#ids[best]!) best = member;
    }
    return best;
  }

  #leastFilled(members: readonly number[]): number {
    const fill = (member: number): number => this.#planned[member]! / this.#limits[member]!;
    return members.reduce((least, member) =>
      fill(member) < fill(least) || (fill(member) === fill(least) && this.#ids[member]! < this.#ids[least]!)
        ? member
        : least,
    );
  }
}
