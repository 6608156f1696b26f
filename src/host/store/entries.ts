/**
 * What is said about each function: its versions, settings that were changed since, and how calls are divided. It is
 * one entry in the store, so that a kill leaves the old state or the new one; this is what the host has read of it.
 */
import {
  EntryUnreadable,
  StoreAway,
  type EntryBefore,
  type EntryBody,
  type Store,
  type StoredEntry,
  type Tag,
} from '../../store/index.ts';
import { inParallel, type Log } from '../../tools/index.ts';
import { allTo, primaryOf, withoutVersion, type Traffic } from '../rollout/traffic.ts';
import { readAtOnce, type EntryCopies } from './entry-copies.ts';
import { checkedRecord, type FunctionEntry, type VersionRecord } from './version-record.ts';

const empty: FunctionEntry = { versions: [], settings: {} };
interface Known {
  readonly before: EntryBefore;
  /** Undefined: the function was removed, or nothing in its entry could be read. */
  readonly entry: FunctionEntry | undefined;
}

export class Entries {
  readonly #store: Store;
  /** What this host has read, for a start while the store is away; undefined: the store is on this host's disk. */
  readonly #copies: EntryCopies | undefined;
  readonly #logger: Log;
  readonly #known = new Map<string, Known>();

  constructor(store: Store, logger: Log, copies?: EntryCopies) {
    this.#store = store;
    this.#logger = logger;
    this.#copies = copies;
  }

  /** Takes what was last read of a store on another machine. */
  async recall(): Promise<void> {
    for (const [name, before] of (await this.#copies?.load()) ?? []) this.#know(name, before);
  }

  /** @throws StoreAway where the store is on this host's disk; else what was read before counts */
  async start(): Promise<void> {
    await this.recall();
    try {
      const tags = await this.#store.list();
      const names = [...tags].flatMap(([name, tag]) => (this.tagOf(name) === tag ? [] : [name]));
      await inParallel(names, async (name) => await this.read(name), readAtOnce);
    } catch (error) {
      if (!(error instanceof StoreAway) || this.#copies === undefined) throw error;
      this.#logger.error({ reason: error.message }, 'the store is away: functions are served as they were last known');
    }
  }

  /** Functions of which something is said. */
  names(): string[] {
    return [...this.#known].flatMap(([name, { entry }]) => (entry === undefined ? [] : [name]));
  }

  get(name: string): FunctionEntry {
    return this.#known.get(name)?.entry ?? empty;
  }

  /** The state of an entry that is known here; undefined: none is. */
  tagOf(name: string): Tag | undefined {
    return this.#known.get(name)?.before.tag;
  }

  /** Whether the entry was read: then a version that it does not name was removed, or never published. */
  isReadable(name: string): boolean {
    const known = this.#known.get(name);
    return known?.before.envelope !== undefined;
  }

  /** Resolves when the store has the entry; one without content is removed. @throws ChangedElsewhere, StoreAway */
  async write(name: string, next: FunctionEntry): Promise<void> {
    const known = this.#known.get(name);
    const entry = isEmpty(next) ? undefined : next;
    if (entry === undefined && known === undefined) return;
    const body = entry as EntryBody | undefined;
    const before = await this.#store.write(name, body, known?.before);
    this.#known.set(name, { before, entry });
    await this.#copies?.keep(name, before);
  }

  /** @returns whether the entry is another one than before @throws StoreAway */
  async read(name: string): Promise<boolean> {
    const known = this.#known.get(name);
    try {
      const before = await this.#store.read(name);
      if (before === undefined) {
        // A removal leaves a tombstone: a folder that is not mounted, or an emptied bucket, removes nothing.
        if (known !== undefined) this.#logger.error({ function: name }, 'the store has lost the entry of a function');
        return false;
      }
      if (before.tag === known?.before.tag) return false;
      if (!this.#know(name, before)) throw new EntryUnreadable('its entry is damaged', before.tag);
      await this.#copies?.keep(name, before);
      return true;
    } catch (error) {
      if (!(error instanceof EntryUnreadable)) throw error;
      this.#logger.error({ function: name, reason: error.message }, 'what is said about a function is lost');
      // What was read before goes on serving, and the next change writes over the damage.
      this.#known.set(name, { before: { tag: error.tag }, entry: known?.entry });
      return false;
    }
  }

  /** False: it does not tell which versions there are. One that it left out would be taken for removed, files and all. */
  #know(name: string, before: StoredEntry): boolean {
    const { body } = before.envelope;
    const listed: Partial<Found> = body ?? {};
    const tellsVersions = isListOf(listed.versions, ({ version }) => isText(version));
    if (body !== null && !(tellsVersions && isListOf(listed.unreadable ?? [], isText))) return false;
    this.#known.set(name, { before, entry: body === null ? undefined : this.#checked(name, listed) });
    return true;
  }

  /** The entry of a disk: what is damaged in it does not count. */
  #checked(name: string, body: Partial<Found>): FunctionEntry {
    const { versions: records = [] } = body;
    const versions = records.flatMap((record) => soundRecord(record) ?? []);
    const lost = records.filter((record) => soundRecord(record) === undefined).map(({ version }) => version);
    if (lost.length > 0) this.#logger.error({ function: name, lost }, 'records of versions are damaged');
    const isObject = typeof body.settings === 'object' && (body.settings as unknown) !== null;
    // Older versions copied calls to a version, its shadow, and chose versions by headers.
    const isDivided = isListOf(body.traffic?.shares, ({ version, percent }) => isText(version) && percent >= 0);
    const { shadow, headers = [], ...traffic } = (isDivided && body.traffic) || { shares: [] };
    if (shadow !== undefined) {
      this.#logger.warn({ function: name, shadow }, 'a shadow no longer gets copies of calls');
    }
    if (headers.length > 0) this.#logger.warn({ function: name, headers }, 'headers no longer choose a version');
    const divides = primaryOf(traffic as Traffic) !== undefined;
    return {
      ...body,
      versions,
      unreadable: [...(body.unreadable ?? []), ...lost],
      settings: isObject ? body.settings : {},
      traffic: divides ? (traffic as Traffic) : undefined,
    };
  }
}

const isText = (value: unknown): boolean => typeof value === 'string';

/** Of what a disk has in the place of a list. */
const isListOf = <Member>(list: readonly Member[] | undefined, holds: (member: Member) => boolean): boolean =>
  Array.isArray(list) && list.every((member: Member | null) => member !== null && holds(member));

function soundRecord(record: VersionRecord): VersionRecord | undefined {
  try {
    return checkedRecord(record);
  } catch {
    return undefined; // It lacks members.
  }
}

type Found = Omit<FunctionEntry, 'traffic'> & {
  readonly traffic?: Partial<Traffic> &
    Pick<Traffic, 'shares'> & { readonly shadow?: unknown; readonly headers?: readonly unknown[] };
};

/** Nothing is said about the function. */
export const isEmpty = ({ versions, settings, traffic, unreadable = [] }: FunctionEntry): boolean =>
  versions.length + unreadable.length + Object.keys(settings).length === 0 && traffic === undefined;

/** Adds a version, or replaces it; calls are divided anew. */
export function withVersion(entry: FunctionEntry, record: VersionRecord, traffic: Traffic | undefined): FunctionEntry {
  const others = entry.versions.filter(({ version }) => version !== record.version);
  const unreadable = entry.unreadable?.filter((version) => version !== record.version);
  return { ...entry, versions: [...others, record], traffic, unreadable };
}

/** Removes versions; a later version of the same name must not inherit the settings of one. */
export function withoutVersions(entry: FunctionEntry, gone: ReadonlySet<string>): FunctionEntry {
  let { traffic } = entry;
  for (const version of gone) traffic = traffic && withoutVersion(traffic, version);
  return {
    ...entry,
    versions: entry.versions.filter(({ version }) => !gone.has(version)),
    settings: Object.fromEntries(Object.entries(entry.settings).filter(([version]) => !gone.has(version))),
    traffic,
    unreadable: entry.unreadable?.filter((version) => !gone.has(version)),
  };
}

/** The current traffic before a change; by default all calls go to `newest`. */
export const trafficOf = ({ traffic }: FunctionEntry, newest: string): Traffic => traffic ?? allTo(newest);
