/**
 * Each host's offers for functions, as changes: a report counts them and includes the latest, and a hash in Redis has
 * all of them for hosts that missed one. Anyone who can write to Redis could misdirect calls, but only to hosts of the
 * fleet, which refuse functions that they lack.
 */
import type { RedisLink } from '../queue/index.ts';
import { jsonAs } from '../tools/index.ts';

/** A host's offer for a function. */
export interface FunctionOffer {
  /**
   * Milliseconds until an answer, had a call arrived at the latest report; undefined: the host has the function, but it
   * was never called there.
   */
  readonly ms: number | undefined;
  readonly isHeld: boolean;
  /** Busy milliseconds a second caused by calls of its own clients, wherever they run. */
  readonly load: number;
}

export type OfferChange = readonly [field: string, offer: FunctionOffer | null];

/** In a host's report. */
export interface OffersTold {
  /** Counts the changes. */
  readonly generation: number;
  /** Changes from the previous generation to this one; absent if there are too many. */
  readonly changes?: readonly OfferChange[];
}

/** A figure is reported when it has changed by this share. */
const worthTelling = 0.25;
const changesMax = 500;
/** The hash of a dead host expires. */
const keptMs = 60_000;

export interface OffersOutOptions {
  readonly link: RedisLink;
  readonly key: string;
  /** Offers that may have changed since the last call; `all`: every one. */
  readonly current: (all: boolean) => Iterable<OfferChange>;
}

export class OffersOut {
  readonly #options: OffersOutOptions;
  readonly #told = new Map<string, FunctionOffer>();
  #state: OffersTold = { generation: 0, changes: [] };

  constructor(options: OffersOutOptions) {
    this.#options = options;
  }

  get told(): OffersTold {
    return this.#state;
  }

  /** Writes the changes; the next report announces them. */
  async write(): Promise<void> {
    const { link, key, current } = this.#options;
    const known = await link.commands.hlen(key);
    const isLost = known < this.#told.size;
    if (isLost) this.#told.clear();
    const changes = [...current(isLost)].filter(([field, offer]) => isNews(this.#told.get(field), offer));
    if (changes.length === 0) {
      await link.commands.pexpire(key, keptMs);
      return;
    }
    const pipeline = link.commands.multi();
    for (const [field, offer] of changes) {
      if (offer === null) pipeline.hdel(key, field);
      else pipeline.hset(key, field, JSON.stringify(offer));
    }
    await pipeline.pexpire(key, keptMs).exec();
    for (const [field, offer] of changes) {
      if (offer === null) this.#told.delete(field);
      else this.#told.set(field, offer);
    }
    const generation = this.#state.generation + 1;
    this.#state = changes.length > changesMax || isLost ? { generation } : { generation, changes };
  }
}

/** The offers of the other hosts, by function. */
export class OffersIn {
  readonly #link: RedisLink;
  readonly #keyOf: (host: string) => string;
  readonly #byField = new Map<string, Map<string, FunctionOffer>>();
  readonly #known = new Map<string, { readonly id: string; readonly generation: number }>();

  constructor(link: RedisLink, keyOf: (host: string) => string) {
    this.#link = link;
    this.#keyOf = keyOf;
  }

  of(field: string): ReadonlyMap<string, FunctionOffer> | undefined {
    return this.#byField.get(field);
  }

  fields(): Iterable<readonly [string, ReadonlyMap<string, FunctionOffer>]> {
    return this.#byField;
  }

  /** Takes in a host's report. */
  async take(host: string, id: string, { generation, changes }: OffersTold): Promise<void> {
    const known = this.#known.get(host);
    if (known?.id === id && known.generation === generation) return;
    if (known?.id === id && known.generation === generation - 1 && changes !== undefined) {
      for (const [field, offer] of changes) this.#set(host, field, offer);
    } else {
      const all = await this.#link.commands.hgetall(this.#keyOf(host));
      for (const [field, offers] of this.#byField) {
        if (offers.has(host) && all[field] === undefined) this.#set(host, field, null);
      }
      for (const [field, text] of Object.entries(all)) this.#set(host, field, offerIn(text));
    }
    this.#known.set(host, { id, generation });
  }

  /** A host is gone. */
  forget(host: string): void {
    this.#known.delete(host);
    for (const field of this.#byField.keys()) this.#set(host, field, null);
  }

  #set(host: string, field: string, offer: FunctionOffer | null): void {
    const offers = this.#byField.get(field) ?? new Map<string, FunctionOffer>();
    if (offer === null) offers.delete(host);
    else offers.set(host, offer);
    if (offers.size === 0) this.#byField.delete(field);
    else this.#byField.set(field, offers);
  }
}

function isNews(before: FunctionOffer | undefined, offer: FunctionOffer | null): boolean {
  if (before === undefined || offer === null) return before !== undefined || offer !== null;
  return before.isHeld !== offer.isHeld || isFar(before.ms, offer.ms) || isFar(before.load, offer.load);
}

function isFar(before: number | undefined, now: number | undefined): boolean {
  if (before === undefined || now === undefined) return before !== now;
  return Math.abs(now - before) > Math.max(0.2, worthTelling * before);
}

/** Anyone with access to Redis may have written it: null if it is no offer. */
function offerIn(text: string): FunctionOffer | null {
  const checked = (offer: FunctionOffer): FunctionOffer | undefined => {
    const isTime = offer.ms === undefined || typeof offer.ms === 'number';
    return isTime && typeof offer.isHeld === 'boolean' && typeof offer.load === 'number' ? offer : undefined;
  };
  return jsonAs(text, checked) ?? null;
}
