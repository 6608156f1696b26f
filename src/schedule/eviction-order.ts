/** Orders of eviction, one for each choice of the policy: whose layers go next, among the idle functions of a GPU. */
import { Heap, ValueOrder } from './heap.ts';
import type { Popularity } from './learnt.ts';
import type { Foresight, Policy } from './policy.ts';
import { Base, type Resident } from './residents.ts';

export interface EvictionOrder {
  /** Whether layers behind the hiding prefix may go before the prefix does. */
  readonly trims: boolean;
  /** Whether they go first only where they cost less. Otherwise they always go first. */
  readonly isPriced: boolean;
  /**
   * The function has just become idle, or has just lost its suffix. @param hasSuffix whether it has layers that can be
   * trimmed.
   */
  add(slot: Resident, hasSuffix: boolean): void;
  remove(slot: Resident): void;
  /** The function has other layers now, but does not count as more recently used. */
  relayer(slot: Resident, hasSuffix: boolean): void;
  /** The next to lose layers. It stays the next until it is removed. */
  first(): Resident | undefined;
  /** The function was used, and is idle now. */
  used?(slot: Resident): void;
  /** It is about to be evicted as a whole. */
  evicts?(slot: Resident): void;
  /** Nothing is left of it: where it comes back it starts without uses. */
  forget?(slot: Resident): void;
}

/** What an order may go by. */
export interface EvictionFacts {
  readonly popularity: Popularity;
  /**
   * What the next uses save by each byte that would go of it next, by the count of the uses that are expected. What calls
   * on time wait for is not idle, and late ones have missed their SLO.
   */
  valuePerByte(slot: Resident): number;
}

/** Least recently used first. Functions with a suffix to trim go before those without. */
class RecencyOrder implements EvictionOrder {
  readonly trims: boolean;
  readonly isPriced = false;
  /** By when they came. */
  readonly #untrimmed = new Heap<Resident>();
  readonly #trimmed = new Heap<Resident>();
  #came = 0;

  constructor(trims: boolean) {
    this.trims = trims;
  }

  add(slot: Resident, hasSuffix: boolean): void {
    (hasSuffix ? this.#untrimmed : this.#trimmed).add(slot, this.#came++);
  }

  remove(slot: Resident): void {
    this.#untrimmed.remove(slot);
    this.#trimmed.remove(slot);
  }

  relayer(slot: Resident, hasSuffix: boolean): void {
    if (!(hasSuffix ? this.#trimmed : this.#untrimmed).has(slot)) return;
    this.remove(slot);
    this.add(slot, hasSuffix);
  }

  first(): Resident | undefined {
    return this.#untrimmed.first() ?? this.#trimmed.first();
  }
}

/**
 * Greedy dual size frequency (Cherkasova 1998): uses while resident times cost of loading over size, plus the value of
 * the latest eviction.
 */
class GreedyDual extends ValueOrder<Resident> implements EvictionOrder {
  readonly trims = false;
  readonly isPriced = false;
  readonly #uses = new Map<Resident, { count: number; ageAtUse: number }>();
  /** The value that was evicted last. */
  #age = 0;

  constructor() {
    super((slot) => {
      const { offer, bytes } = slot;
      const { count, ageAtUse } = this.#uses.get(slot)!;
      return ageAtUse + (count * (offer!.ways[0].coldMs[0]! - offer!.warmMs)) / bytes;
    });
  }

  used(slot: Resident): void {
    this.#uses.set(slot, { count: (this.#uses.get(slot)?.count ?? 0) + 1, ageAtUse: this.#age });
  }

  evicts(slot: Resident): void {
    this.#age = this.keyOf(slot);
  }

  forget(slot: Resident): void {
    this.#uses.delete(slot);
  }
}

/** By how often the function is used, and what each byte that goes costs it. */
class ByValue extends ValueOrder<Resident> implements EvictionOrder {
  readonly trims = true;
  readonly isPriced = true;

  constructor(facts: EvictionFacts) {
    const { popularity } = facts;
    super((slot) => facts.valuePerByte(slot));
    popularity.onScale((factor) => this.scale(factor));
  }
}

/**
 * Evicts what is used furthest in the future (Belady 1966), layer by layer from the last. No online order loads fewer
 * bytes on one GPU whose functions are alike. It serves as a bound in reports, so it may look at every idle function
 * each time.
 */
class FurthestUse implements EvictionOrder {
  readonly trims = true;
  readonly isPriced = false;
  readonly #foresight: Foresight;
  readonly #idle = new Set<Resident>();
  #next: Resident | undefined;

  constructor(foresight: Foresight) {
    this.#foresight = foresight;
  }

  add(slot: Resident): void {
    this.#idle.add(slot);
    this.#next = undefined;
  }

  remove(slot: Resident): void {
    this.#idle.delete(slot);
    this.#next = undefined;
  }

  relayer(): void {}

  #nextUseMs(slot: Resident): number {
    if (!(slot instanceof Base)) return this.#foresight.nextUseMs(slot.fn.number);
    let nextMs = Infinity;
    for (const { number } of slot.family.users) nextMs = Math.min(nextMs, this.#foresight.nextUseMs(number));
    return nextMs;
  }

  first(): Resident | undefined {
    if (this.#next !== undefined) return this.#next;
    let next: Resident | undefined;
    let furthestMs = -Infinity;
    for (const slot of this.#idle) {
      const nextUseMs = this.#nextUseMs(slot);
      if (nextUseMs < furthestMs || (next !== undefined && nextUseMs === furthestMs && slot.number > next.number))
        continue;
      furthestMs = nextUseMs;
      next = slot;
    }
    this.#next = next;
    return next;
  }
}

const orders: Readonly<Record<Extract<Policy['eviction'], string>, (facts: EvictionFacts) => EvictionOrder>> = {
  lru: () => new RecencyOrder(false),
  'lru-suffix': () => new RecencyOrder(true),
  gdsf: () => new GreedyDual(),
  'value-suffix': (facts) => new ByValue(facts),
};

/** The order of eviction of one GPU. */
export const evictionOrder = (choice: Policy['eviction'], facts: EvictionFacts): EvictionOrder =>
  typeof choice === 'object' ? new FurthestUse(choice) : orders[choice](facts);
