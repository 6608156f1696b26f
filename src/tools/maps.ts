/** The value of a key; a missing one is made and stored. */
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

/** Maps a list that has a first entry to one that has. */
export const mapped = <From, To>(
  [first, ...others]: readonly [From, ...From[]],
  of: (entry: From) => To,
): [To, ...To[]] => [of(first), ...others.map((entry) => of(entry))];

/** As {@link getOrMake}, for work under way; what fails is forgotten. */
export function getOrStart<Key, Value>(
  map: Parameters<typeof getOrMake<Key, Promise<Value>>>[0] & { delete(key: Key): unknown },
  key: Key,
  start: () => Promise<Value>,
): Promise<Value> {
  return getOrMake(map, key, () => {
    const started = start();
    started.catch(() => map.delete(key));
    return started;
  });
}

/** Appends to the list of a key. */
export function append<Key, Item>(map: Map<Key, Item[]>, key: Key, item: Item): void {
  getOrMake(map, key, (): Item[] => []).push(item);
}

/** Counts one more of a key. */
export function count<Key>(counts: Map<Key, number>, key: Key): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** Values by key, each for as long as it has users: the first one makes it, the last one releases it. */
export class CountedValues<Value> {
  readonly #entries = new Map<string, { readonly value: Value; users: number }>();

  /** Adds a user. */
  take(key: string, make: () => Value): Value {
    const entry = getOrMake(this.#entries, key, () => ({ value: make(), users: 0 }));
    entry.users++;
    return entry.value;
  }

  /** Removes a user. The last one gets the value, to release it. */
  leave(key: string): Value | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || --entry.users > 0) return undefined;
    this.#entries.delete(key);
    return entry.value;
  }

  /** Forgets a value that is of no use; the next user makes another. */
  protected drop(key: string, value: Value): void {
    if (this.#entries.get(key)?.value === value) this.#entries.delete(key);
  }
}

/** The same for values that take time to make. If that fails, the next user makes it again. */
export class SharedValues<Value> extends CountedValues<Promise<Value>> {
  override async take(key: string, make: () => Promise<Value>): Promise<Value> {
    const making = super.take(key, make);
    try {
      return await making;
    } catch (error) {
      this.drop(key, making);
      throw error;
    }
  }
}

/** The entries of an object that is written in the source, with the names that it has there. */
export const typedEntries = <Name extends string, Value>(record: Readonly<Record<Name, Value>>): [Name, Value][] =>
  Object.entries(record) as [Name, Value][];

/** The names in a text, separated by blanks. */
export const namesIn = (text: string): ReadonlySet<string> => new Set(text.split(/\s+/));

/** A table in which one row may hold for several names, separated by blanks. */
export const byNames = <Value>(rows: readonly (readonly [names: string, value: Value])[]): ReadonlyMap<string, Value> =>
  new Map(rows.flatMap(([names, value]) => Array.from(namesIn(names), (name) => [name, value] as const)));
