/**
 * What each member tells of functions, as changes: a report counts them and includes the latest, and a hash in Redis has
 * all of them for members that missed one. Anyone who can write to Redis may have written them.
 */
import { jsonAs } from '../tools/index.ts';
import type { MemberLink } from './link.ts';

export type Change<Value> = readonly [field: string, value: Value | null];

/** In a member's report. */
export interface ChangesReport<Value> {
  /** Counts the changes. */
  readonly generation: number;
  /** Changes from the previous generation to this one; absent if there are too many. */
  readonly changes?: readonly Change<Value>[];
}

const changesMax = 500;
/** The hash of a dead member expires. */
const keptMs = 60_000;

export interface ChangeWriterOptions<Value> {
  /** Values that may have changed since the last call; `all`: every one. `written`: what the others know. */
  readonly current: (all: boolean, written: ReadonlyMap<string, Value>) => Iterable<Change<Value>>;
  readonly isNews: (before: Value | undefined, now: Value | null) => boolean;
}

export class ChangeWriter<Value> {
  readonly #link: MemberLink;
  readonly #key: string;
  readonly #options: ChangeWriterOptions<Value>;
  readonly #written = new Map<string, Value>();
  #state: ChangesReport<Value> = { generation: 0, changes: [] };

  constructor(link: MemberLink, key: string, options: ChangeWriterOptions<Value>) {
    this.#link = link;
    this.#key = key;
    this.#options = options;
  }

  get report(): ChangesReport<Value> {
    return this.#state;
  }

  /** Writes the changes; the next report announces them. */
  async write(): Promise<void> {
    const { commands } = this.#link;
    const key = this.#key;
    const known = await commands.hlen(key);
    const isLost = known < this.#written.size;
    if (isLost) this.#written.clear();
    const { current, isNews } = this.#options;
    const changes = [...current(isLost, this.#written)].filter(([field, now]) => isNews(this.#written.get(field), now));
    if (changes.length === 0) {
      if (known > 0) await commands.pexpire(key, keptMs);
      return;
    }
    const pipeline = commands.multi();
    for (const [field, value] of changes) {
      if (value === null) pipeline.hdel(key, field);
      else pipeline.hset(key, field, JSON.stringify(value));
    }
    await pipeline.pexpire(key, keptMs).exec();
    for (const [field, value] of changes) {
      if (value === null) this.#written.delete(field);
      else this.#written.set(field, value);
    }
    const generation = this.#state.generation + 1;
    this.#state = changes.length > changesMax || isLost ? { generation } : { generation, changes };
  }
}

/** What the other members tell, by function. */
export class ChangeReader<Value> {
  readonly #link: MemberLink;
  readonly #keyOf: (member: string) => string;
  readonly #checked: (value: Value) => Value | undefined;
  readonly #byField = new Map<string, Map<string, Value>>();
  readonly #fields = new Map<string, Set<string>>();
  readonly #known = new Map<string, { readonly id: string; readonly generation: number }>();

  constructor(link: MemberLink, keyOf: (member: string) => string, checked: (value: Value) => Value | undefined) {
    this.#link = link;
    this.#keyOf = keyOf;
    this.#checked = checked;
  }

  of(field: string): ReadonlyMap<string, Value> | undefined {
    return this.#byField.get(field);
  }

  fields(): Iterable<readonly [string, ReadonlyMap<string, Value>]> {
    return this.#byField;
  }

  /** What one member tells. */
  *by(member: string): Generator<readonly [string, Value]> {
    for (const field of this.#fields.get(member) ?? []) yield [field, this.#byField.get(field)!.get(member)!];
  }

  /** Takes in a member's report. Resolves to whether something has changed. */
  async take(member: string, id: string, { generation, changes }: ChangesReport<Value>): Promise<boolean> {
    const known = this.#known.get(member);
    if (known?.id === id && known.generation === generation) return false;
    if (known?.id === id && known.generation === generation - 1 && changes !== undefined) {
      for (const [field, value] of changes) this.#set(member, field, value);
    } else {
      const all = await this.#link.commands.hgetall(this.#keyOf(member));
      for (const field of this.#fields.get(member) ?? []) {
        if (all[field] === undefined) this.#set(member, field, null);
      }
      for (const [field, text] of Object.entries(all))
        this.#set(member, field, jsonAs(text, (value: Value) => value) ?? null);
    }
    this.#known.set(member, { id, generation });
    return true;
  }

  /** A member is gone. */
  forget(member: string): void {
    this.#known.delete(member);
    for (const field of this.#fields.get(member) ?? []) this.#set(member, field, null);
  }

  #set(member: string, field: string, given: Value | null): void {
    const value = given === null ? undefined : this.#checked(given);
    const values = this.#byField.get(field) ?? new Map<string, Value>();
    const fields = this.#fields.get(member) ?? new Set<string>();
    if (value === undefined) {
      values.delete(member);
      fields.delete(field);
    } else {
      values.set(member, value);
      fields.add(field);
    }
    if (values.size === 0) this.#byField.delete(field);
    else this.#byField.set(field, values);
    if (fields.size === 0) this.#fields.delete(member);
    else this.#fields.set(member, fields);
  }
}
