/** What can stand in a heap: among its members no other has its number, which is small. */
export interface Numbered {
  readonly number: number;
}

/**
 * A binary min-heap by key that knows where each member stands. Among equal keys the lower number is first.
 *
 * The keys stand in the order of the heap, so that the two below a place are in one line of the processor's cache: a
 * machine with many GPUs has heaps for each, and finds none of them in its caches when their turn comes.
 */
export class Heap<Member extends Numbered> {
  /** By place, from 1: place 0 is nobody's. NaN there: V8 keeps an array that begins with it as one of fractions. */
  readonly #keys = [NaN];
  /** By place. */
  readonly #numbers = [0];
  #size = 0;
  /** By number; 0: not in the heap. */
  readonly #places: number[] = [];
  /** By number. */
  readonly #members: (Member | undefined)[] = [];

  get size(): number {
    return this.#size;
  }

  /** The member must not be in the heap. */
  add(member: Member, key: number): void {
    const { number } = member;
    // Without gaps: V8 turns an array with many gaps into a map.
    while (this.#members.length <= number) {
      this.#members.push(undefined);
      this.#places.push(0);
    }
    this.#members[number] = member;
    const place = ++this.#size;
    if (place === this.#keys.length) {
      this.#keys.push(key);
      this.#numbers.push(number);
    }
    this.#rise(number, key, place);
  }

  /** Does nothing if it is not in the heap. */
  remove({ number }: Member): void {
    if (this.#size === 0 || number >= this.#places.length) return;
    const place = this.#places[number]!;
    if (place === 0) return;
    this.#places[number] = 0;
    const lastPlace = this.#size--;
    if (place === lastPlace) return;
    const last = this.#numbers[lastPlace]!;
    const key = this.#keys[lastPlace]!;
    if (place > 1 && this.#isBefore(lastPlace, place >> 1)) this.#rise(last, key, place);
    else this.#sink(last, key, place);
  }

  has({ number }: Member): boolean {
    return this.#size > 0 && number < this.#places.length && this.#places[number] !== 0;
  }

  /** The one with the least key. */
  first(): Member | undefined {
    return this.#size === 0 ? undefined : this.#members[this.#numbers[1]!];
  }

  /** The one with the least key among those for which this holds. Looks at all of them. */
  firstThat(holds: (member: Member) => boolean): Member | undefined {
    let first = 0;
    for (let place = 1; place <= this.#size; place++)
      if ((first === 0 || this.#isBefore(place, first)) && holds(this.at(place - 1))) first = place;
    return first === 0 ? undefined : this.at(first - 1);
  }

  /** The member at a position of the heap: 0 is the first, the others are in no order. */
  at(position: number): Member {
    return this.#members[this.#numbers[position + 1]!]!;
  }

  /** It must be in the heap. */
  keyOf({ number }: Member): number {
    return this.#keys[this.#places[number]!]!;
  }

  /**
   * The sum over the members whose key is no higher. Stops beyond `most`: that is too much already.
   *
   * @param values by number
   */
  sumUpTo(key: number, values: Float64Array, most: number): number {
    const keys = this.#keys;
    let sum = 0;
    const places = [1];
    for (let place = places.pop(); place !== undefined && sum <= most; place = places.pop()) {
      if (place > this.#size || keys[place]! > key) continue;
      sum += values[this.#numbers[place]!]!;
      places.push(2 * place, 2 * place + 1);
    }
    return sum;
  }

  /** Multiplies every key, which leaves the order as it is. */
  scale(factor: number): void {
    for (let place = 1; place <= this.#size; place++) this.#keys[place]! *= factor;
  }

  /** Whether the member at one place comes before that at another. */
  #isBefore(a: number, b: number): boolean {
    const difference = this.#keys[a]! - this.#keys[b]!;
    // The order must not depend on the history of the heap.
    return difference < 0 || (difference === 0 && this.#numbers[a]! < this.#numbers[b]!);
  }

  #rise(number: number, key: number, from: number): void {
    const keys = this.#keys;
    const numbers = this.#numbers;
    const places = this.#places;
    let place = from;
    while (place > 1) {
      const parent = place >> 1;
      const aboveKey = keys[parent]!;
      const above = numbers[parent]!;
      if (!(key < aboveKey || (key === aboveKey && number < above))) break;
      keys[place] = aboveKey;
      numbers[place] = above;
      places[above] = place;
      place = parent;
    }
    keys[place] = key;
    numbers[place] = number;
    places[number] = place;
  }

  #sink(number: number, key: number, from: number): void {
    const keys = this.#keys;
    const numbers = this.#numbers;
    const places = this.#places;
    const size = this.#size;
    let place = from;
    for (;;) {
      let child = 2 * place;
      if (child > size) break;
      if (child < size && this.#isBefore(child + 1, child)) child++;
      const belowKey = keys[child]!;
      const below = numbers[child]!;
      if (!(belowKey < key || (belowKey === key && below < number))) break;
      keys[place] = belowKey;
      numbers[place] = below;
      places[below] = place;
      place = child;
    }
    keys[place] = key;
    numbers[place] = number;
    places[number] = place;
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
