/**
 * The first members of many functions by their scores, while members come and go: a change looks only at the functions of
 * the members that went and at the members that came. 100,000 functions and 1,000 members have 10^8 scores.
 */
import { weightsOf, type FleetMember } from './homes.ts';
import { hashText, rankScore, type TextHash } from './rank.ts';

/** Stands for no member. */
const nobody = -1;

/** The best member that each function has met so far, with its score. */
class Bests {
  readonly #members: Int32Array;
  readonly #scores: Float64Array;

  constructor(functionCount: number) {
    this.#members = new Int32Array(functionCount).fill(nobody);
    this.#scores = new Float64Array(functionCount);
  }

  of(index: number): number | undefined {
    const member = this.#members[index]!;
    return member === nobody ? undefined : member;
  }

  scoreOf(index: number): number {
    return this.#scores[index]!;
  }

  set(index: number, member: number | undefined, score: number): void {
    this.#members[index] = member ?? nobody;
    this.#scores[index] = score;
  }
}

export class Ranks {
  readonly #ids: readonly string[];
  readonly #hashes: readonly TextHash[];
  readonly #weights: readonly number[];
  readonly #functions: readonly TextHash[];
  readonly #first: Bests;
  readonly #second: Bests;
  #present: ReadonlySet<number>;
  /** Scores that were computed so far. */
  scored = 0;

  /** Throws as `assignHomes`. All members are present at first. */
  constructor(members: readonly FleetMember[], names: readonly string[]) {
    this.#ids = members.map(({ id }) => id);
    this.#hashes = this.#ids.map(hashText);
    this.#weights = weightsOf(members);
    this.#functions = names.map(hashText);
    this.#first = new Bests(names.length);
    this.#second = new Bests(names.length);
    const all = [...members.keys()];
    this.#present = new Set(all);
    for (const index of names.keys()) {
      for (const member of all) {
        const score = this.#scoreOf(index, member);
        if (this.#isBefore(this.#first, index, member, score)) {
          this.#second.set(index, this.#first.of(index), this.#first.scoreOf(index));
          this.#first.set(index, member, score);
        } else if (this.#isBefore(this.#second, index, member, score)) this.#second.set(index, member, score);
      }
    }
  }

  /** Among the present members. */
  first(index: number): number {
    return this.#first.of(index)!;
  }

  /** Among all members, until the first {@link setPresent}. */
  firstTwo(index: number): readonly number[] {
    const second = this.#second.of(index);
    return second === undefined ? [this.first(index)] : [this.first(index), second];
  }

  /** Sets which members are present; there is one at least. Returns the functions that moved, and their first members before. */
  setPresent(members: readonly number[]): ReadonlyMap<number, number> {
    const now = new Set(members);
    const came = members.filter((member) => !this.#present.has(member));
    this.#present = now;
    const moved = new Map<number, number>();
    for (const index of this.#functions.keys()) {
      const before = this.first(index);
      const isGone = !now.has(before);
      if (isGone) this.#first.set(index, undefined, 0);
      for (const member of isGone ? members : came) {
        const score = this.#scoreOf(index, member);
        if (this.#isBefore(this.#first, index, member, score)) this.#first.set(index, member, score);
      }
      if (this.first(index) !== before) moved.set(index, before);
    }
    return moved;
  }

  #scoreOf(index: number, member: number): number {
    this.scored++;
    return rankScore(this.#functions[index]!, this.#hashes[member]!, this.#weights[member]!);
  }

  /** Whether the member comes before the best so far. */
  #isBefore(bests: Bests, index: number, member: number, score: number): boolean {
    const other = bests.of(index);
    if (other === undefined) return true;
    const otherScore = bests.scoreOf(index);
    return score > otherScore || (score === otherScore && this.#ids[member]! < this.#ids[other]!);
  }
}
