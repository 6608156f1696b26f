import { grown } from './columns.ts';

/** What can stand in a heap: among its members no other has its number, which is small. */
export interface Numbered {
  readonly number: number;
}

/** A binary min-heap by key that knows where each member stands. Among equal keys the lower number is first. */
export class Heap<Member extends Numbered> {
  #heap = new Int32Array(64);
  #size = 0;
  /** By number. */
  #keys = new Float64Array(64);
  /** By number, the position plus one; 0: not in the heap. */
  #places = new Int32Array(64);
  /** By number. */
  readonly #members: (Member | undefined)[] = [];

  get size(): number {
    return this.#size;
  }

  /** The member must not be in the heap. */
  add(member: Member, key: number): void {
    const { number } = member;
    if (number >= this.#members.length) this.#grow(number + 1);
    this.#members[number] = member;
    this.#keys[number] = key;
    this.#rise(number, this.#size++);
  }

  /** Does nothing if it is not in the heap. */
  remove({ number }: Member): void {
    if (number >= this.#members.length) return;
    const place = this.#places[number]! - 1;
    if (place < 0) return;
    this.#places[number] = 0;
    const last = this.#heap[--this.#size]!;
    if (last === number) return;
    if (place > 0 && this.#isBefore(last, this.#heap[(place - 1) >> 1]!)) this.#rise(last, place);
    else this.#sink(last, place);
  }

  has({ number }: Member): boolean {
    return number < this.#members.length && this.#places[number]! > 0;
  }

  /** The one with the least key. */
  first(): Member | undefined {
    return this.#size === 0 ? undefined : this.#members[this.#heap[0]!];
  }

  /** The one with the least key among those for which this holds. Looks at all of them. */
  firstThat(holds: (member: Member) => boolean): Member | undefined {
    let first: number | undefined;
    for (let place = 0; place < this.#size; place++) {
      const number = this.#heap[place]!;
      if ((first === undefined || this.#isBefore(number, first)) && holds(this.#members[number]!)) first = number;
    }
    return first === undefined ? undefined : this.#members[first];
  }

  /** The member at a position of the heap: 0 is the first, the others are in no order. */
  at(place: number): Member {
    return this.#members[this.#heap[place]!]!;
  }

  /** It must be in the heap. */
  keyOf({ number }: Member): number {
    return this.#keys[number]!;
  }

  /** Multiplies every key, which leaves the order as it is. */
  scale(factor: number): void {
    for (let number = 0; number < this.#keys.length; number++) this.#keys[number]! *= factor;
  }

  #isBefore(a: number, b: number): boolean {
    const difference = this.#keys[a]! - this.#keys[b]!;
    // The order must not depend on the history of the heap.
    return difference < 0 || (difference === 0 && a < b);
  }

  #rise(number: number, from: number): void {
    const heap = this.#heap;
    const keys = this.#keys;
    const places = this.#places;
    const key = keys[number]!;
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = heap[parent]!;
      const aboveKey = keys[above]!;
      if (!(key < aboveKey || (key === aboveKey && number < above))) break;
      heap[place] = above;
      places[above] = place + 1;
      place = parent;
    }
    heap[place] = number;
    places[number] = place + 1;
  }

  #sink(number: number, from: number): void {
    const heap = this.#heap;
    const keys = this.#keys;
    const places = this.#places;
    const size = this.#size;
    const key = keys[number]!;
    let place = from;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= size) break;
      if (child + 1 < size && this.#isBefore(heap[child + 1]!, heap[child]!)) child++;
      const below = heap[child]!;
      const belowKey = keys[below]!;
      if (!(belowKey < key || (belowKey === key && below < number))) break;
      heap[place] = below;
      places[below] = place + 1;
      place = child;
    }
    heap[place] = number;
    places[number] = place + 1;
  }

  #grow(count: number): void {
    // Without gaps: V8 turns an array with many gaps into a map.
    while (this.#members.length < count) this.#members.push(undefined);
    this.#heap = grown(this.#heap, count);
    this.#keys = grown(this.#keys, count);
    this.#places = grown(this.#places, count);
  }
}

/** Members by their value, the least valuable first. A value may only change while its member is not in the order. */
export class ValueOrder<Member extends Numbered> extends Heap<Member> {
  readonly #valueOf: (member: Member) => number;

  constructor(valueOf: (member: Member) => number) {
    super();
    this.#valueOf = valueOf;
  }

  override add(member: Member): void {
    super.add(member, this.#valueOf(member));
  }

  /** One that was removed comes back, with the key that it had. */
  restore(member: Member, key: number): void {
    super.add(member, key);
  }

  /** Its value is another one now. */
  relayer(member: Member): void {
    this.remove(member);
    this.add(member);
  }
}
