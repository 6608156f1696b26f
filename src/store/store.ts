/**
 * Where functions live, for any number of machines: content under its hash, and one entry per function with all that is
 * known of it. A store is a folder or a bucket. An entry changes only by a conditional write, so
 * of two publishers at once one is told that the other was first, and makes its change again on the new entry.
 *
 * The text of an entry is JSON with a format number. A release keeps fields that it does not know, in the envelope and
 * in the body, so two releases can share a store while hosts are upgraded one by one.
 */
import { randomBytes } from 'node:crypto';
import { jsonAs } from '../tools/index.ts';
import type { ContentSource, WantedContent } from './fetch-content.ts';

/** Another publisher changed the function in between: the change must be made again on the new state. */
export class ChangedElsewhere extends Error {
  override readonly name = 'ChangedElsewhere';
}

/**
 * The store could not be reached, refused, or was written by a newer release. If a write ends with it, the change may or
 * may not be in the store.
 */
export class StoreAway extends Error {
  override readonly name = 'StoreAway';
}

declare const tagBrand: unique symbol;
/** Names one state of an entry: a revision in a folder, an ETag in a bucket. */
export type Tag = string & { readonly [tagBrand]: true };

/** The store has the entry, but its text is damaged. It can be written over. */
export class EntryUnreadable extends Error {
  override readonly name = 'EntryUnreadable';
  readonly tag: Tag;

  constructor(message: string, tag: Tag) {
    super(message);
    this.tag = tag;
  }
}

/** What a host says about a function; the store does not look into it. */
export type EntryBody = Readonly<Record<string, unknown>>;

interface Envelope {
  readonly format: number;
  readonly name: string;
  /** A random id of the write that made this text. After a time-out, a writer knows its own entry by it. */
  readonly nonce: string;
  /** Nonces of the writes before it, the newest first: others may have changed the writer's entry again meanwhile. */
  readonly earlier: readonly string[];
  /** null: the function was removed. This tombstone stays, so that the name's tags never repeat. */
  readonly body: EntryBody | null;
}

export interface StoredEntry {
  readonly tag: Tag;
  readonly envelope: Envelope;
}

/** What a write must know of the entry that it replaces: its tag, and its envelope unless that is unreadable. */
export type EntryBefore = Pick<StoredEntry, 'tag'> & Partial<StoredEntry>;

export interface StoredContent extends WantedContent {
  readonly ageMs: number;
}

export interface Store {
  /** The store's name in messages: "the folder /srv/store", "the bucket at https://...". */
  readonly place: string;
  /** The function's entry; undefined: the store never had one. @throws StoreAway, EntryUnreadable */
  read(name: string): Promise<StoredEntry | undefined>;
  /**
   * Replaces an entry that still is as `before`; undefined creates it. A body of undefined leaves a tombstone.
   *
   * @returns the entry as the store has it now, with this change in it @throws ChangedElsewhere, StoreAway
   */
  write(name: string, body: EntryBody | undefined, before: EntryBefore | undefined): Promise<StoredEntry>;
  /**
   * Whether the store keeps the promises of this interface; asked before the first write.
   *
   * @throws Error with a sentence if it never will; StoreAway
   */
  probe(): Promise<void>;
  /** Every function that has an entry, removed ones included, with the tag of its entry. @throws StoreAway */
  list(): Promise<ReadonlyMap<string, Tag>>;
  /** A text that changes with each write: a host that asks for it often need not list. @throws StoreAway */
  marker(): Promise<string | undefined>;
  /** @throws StoreAway */
  has(content: WantedContent, signal?: AbortSignal): Promise<boolean>;
  /** Stores a file under its hash. If the store has it, its age in `contents` starts anew. @throws StoreAway */
  put(content: WantedContent, path: string): Promise<void>;
  /** Every file, with how long ago it was last put. @throws StoreAway */
  contents(): Promise<readonly StoredContent[]>;
  /** Removes a file that no entry names. @throws StoreAway */
  discard(sha256: string): Promise<void>;
  /** Where `fetchContent` reads from. */
  source(signal: AbortSignal): ContentSource;
}

const format = 1;
/** A writer that timed out still finds its own write after this many later ones. */
const earlierMax = 64;

export function nextEnvelope(name: string, body: EntryBody | undefined, before: EntryBefore | undefined): Envelope {
  const { nonce, earlier = [] } = before?.envelope ?? {};
  return {
    ...before?.envelope,
    format,
    name,
    nonce: randomBytes(12).toString('hex'),
    earlier: (nonce === undefined ? [] : [nonce, ...earlier]).slice(0, earlierMax),
    body: body ?? null,
  };
}

export const entryText = (envelope: Envelope): string => `${JSON.stringify(envelope)}\n`;

const isBody = (body: unknown): boolean => typeof body === 'object' && !Array.isArray(body);

/** @throws EntryUnreadable, StoreAway */
export function parseEntry(name: string, tag: Tag, text: string): StoredEntry {
  const envelope = jsonAs(text, (value: Envelope) =>
    Number.isSafeInteger(value.format) && value.name === name && typeof value.nonce === 'string' ? value : undefined,
  );
  if (envelope !== undefined && envelope.format > format) {
    throw new StoreAway(
      `the entry of function '${name}' has format ${envelope.format}, and this release reads format ${format}`,
    );
  }
  if (envelope?.format === format && Array.isArray(envelope.earlier) && isBody(envelope.body)) return { tag, envelope };
  throw new EntryUnreadable('its entry is damaged', tag);
}

/** Whether an entry is, or was made from, the one that the write with this nonce made. */
export function includesWrite({ envelope }: StoredEntry, nonce: string): boolean {
  return envelope.nonce === nonce || envelope.earlier.includes(nonce);
}

/** The error of a write that came second. */
export function changedElsewhere(name: string): ChangedElsewhere {
  return new ChangedElsewhere(`function '${name}' was changed by another publisher`);
}
