/** What a map has for a key; made and kept where it has nothing. */
export function getOrMake<Key, Value>(
  map: { get(key: Key): Value | undefined; set(key: Key, value: NoInfer<Value>): unknown },
  key: Key,
  make: () => Value,
): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

/** Adds to the list that a map has for a key. */
export function append<Key, Item>(map: Map<Key, Item[]>, key: Key, item: Item): void {
  getOrMake(map, key, (): Item[] => []).push(item);
}

/** Values that users share by key: made for the first one, and given back by the last one. */
export class SharedValues<Value> {
  readonly #entries = new Map<string, { readonly making: Promise<Value>; users: number }>();

  /** For one user more. A value whose making failed is made anew for the next one. */
  async take(key: string, make: () => Promise<Value>): Promise<Value> {
    const entry = getOrMake(this.#entries, key, () => ({ making: make(), users: 0 }));
    entry.users++;
    try {
      return await entry.making;
    } catch (error) {
      if (this.#entries.get(key) === entry) this.#entries.delete(key);
      throw error;
    }
  }

  /** For one user less. Gives the value to the last one, who knows how to give it back. */
  leave(key: string): Promise<Value> | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || --entry.users > 0) return undefined;
    this.#entries.delete(key);
    return entry.making;
  }
}

/** The names in a text, with blanks between them. */
export const namesIn = (text: string): ReadonlySet<string> => new Set(text.split(/\s+/));

/** A table of names whose rows say what goes for several, with blanks between them. */
export const byNames = <Value>(rows: readonly (readonly [names: string, value: Value])[]): ReadonlyMap<string, Value> =>
  new Map(rows.flatMap(([names, value]) => Array.from(namesIn(names), (name) => [name, value] as const)));
