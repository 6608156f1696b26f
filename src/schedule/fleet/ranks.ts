/**
 * The first member of many functions by its score, while members come and go: a change looks only at the functions of
 * the members that went and at the members that came. 100,000 functions and 1,000 members have 10^8 scores.
 */
import { weightsOf, type FleetMember } from './homes.ts';
import { hashText, rankScore, type TextHash } from './rank.ts';

/** Stands for no member. */
const nobody = -1;

export class Ranks {
  readonly #ids: readonly string[];
  readonly #hashes: readonly TextHash[];
  readonly #weights: readonly number[];
  readonly #functions: readonly TextHash[];
  /** By function, its first member among the present ones, and that one's score. */
  readonly #first: Int32Array;
  readonly #scores: Float64Array;
  #present: ReadonlySet<number> = new Set();
  /** Scores that were computed so far. */
  scored = 0;

  /** Throws as `assignHomes`. All members are present at first. */
  constructor(members: readonly FleetMember[], names: readonly string[]) {
    this.#ids = members.map(({ id }) => id);
    this.#hashes = this.#ids.map(hashText);
    this.#weights = weightsOf(members);
    this.#functions = names.map(hashText);
    this.#first = new Int32Array(names.length).fill(nobody);
    this.#scores = new Float64Array(names.length);
    this.setPresent([...members.keys()]);
  }

  /** Among the present members. */
  first(index: number): number {
    return this.#first[index]!;
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
      if (isGone) this.#first[index] = nobody;
      for (const member of isGone ? members : came) this.#offer(index, member);
      if (this.first(index) !== before) moved.set(index, before);
    }
    return moved;
  }

  /** The member becomes the function's first one, if it comes before the best so far. */
  #offer(index: number, member: number): void {
    this.scored++;
    const score = rankScore(this.#functions[index]!, this.#hashes[member]!, this.#weights[member]!);
    const [other, otherScore] = [this.#first[index]!, this.#scores[index]!];
    const isBefore =
      other === nobody || score > otherScore || (score === otherScore && this.#ids[member]! < this.#ids[other]!);
    if (!isBefore) return;
    this.#first[index] = member;
    this.#scores[index] = score;
  }
}
