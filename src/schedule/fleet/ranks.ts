/**
 * The first members of many functions by their scores, while members come and go: a change looks only at the functions of
 * the members that went and at the members that came. 100,000 functions and 1,000 members have 10^8 scores.
 */
import { weightsOf, type FleetMember } from './homes.ts';
import { hashText, rankScore, type TextHash } from './rank.ts';

export class Ranks {
  readonly #ids: readonly string[];
  readonly #hashes: readonly TextHash[];
  readonly #weights: readonly number[];
  readonly #functions: readonly TextHash[];
  readonly #first: Int32Array;
  readonly #score: Float64Array;
  readonly #second: Int32Array;
  #present: ReadonlySet<number>;
  /** Scores that were computed so far. */
  scored = 0;

  /** Throws as `assignHomes`. All members are present at first. */
  constructor(members: readonly FleetMember[], names: readonly string[]) {
    this.#ids = members.map(({ id }) => id);
    this.#hashes = this.#ids.map(hashText);
    this.#weights = weightsOf(members);
    this.#functions = names.map(hashText);
    this.#first = new Int32Array(names.length).fill(-1);
    this.#score = new Float64Array(names.length).fill(-1);
    this.#second = new Int32Array(names.length).fill(-1);
    const all = [...members.keys()];
    this.#present = new Set(all);
    const seconds = new Float64Array(names.length).fill(-1);
    for (const index of names.keys()) {
      for (const member of all) {
        const score = this.#scoreOf(index, member);
        if (this.#isBefore(member, score, this.#first[index]!, this.#score[index]!)) {
          this.#second[index] = this.#first[index]!;
          seconds[index] = this.#score[index]!;
          this.#first[index] = member;
          this.#score[index] = score;
        } else if (this.#isBefore(member, score, this.#second[index]!, seconds[index]!)) {
          this.#second[index] = member;
          seconds[index] = score;
        }
      }
    }
  }

  /** Among the present members. */
  first(index: number): number {
    return this.#first[index]!;
  }

  /** Among all members, until the first {@link setPresent}. */
  firstTwo(index: number): readonly number[] {
    const [first, second] = [this.#first[index]!, this.#second[index]!];
    return second === -1 ? [first] : [first, second];
  }

  /** Sets which members are present; there is one at least. Returns the functions that moved, and their first members before. */
  setPresent(members: readonly number[]): ReadonlyMap<number, number> {
    const now = new Set(members);
    const came = members.filter((member) => !this.#present.has(member));
    this.#present = now;
    const moved = new Map<number, number>();
    for (const index of this.#functions.keys()) {
      const before = this.#first[index]!;
      const isGone = !now.has(before);
      if (isGone) {
        this.#first[index] = -1;
        this.#score[index] = -1;
      }
      for (const member of isGone ? members : came) {
        const score = this.#scoreOf(index, member);
        if (!this.#isBefore(member, score, this.#first[index]!, this.#score[index]!)) continue;
        this.#first[index] = member;
        this.#score[index] = score;
      }
      if (this.#first[index] !== before) moved.set(index, before);
    }
    return moved;
  }

  #scoreOf(index: number, member: number): number {
    this.scored++;
    return rankScore(this.#functions[index]!, this.#hashes[member]!, this.#weights[member]!);
  }

  #isBefore(member: number, score: number, other: number, otherScore: number): boolean {
    return score > otherScore || (score === otherScore && other !== -1 && this.#ids[member]! < this.#ids[other]!);
  }
}
