/**
 * The fleet's registry of functions: one entry per function, in Redis, changed by one script that compares the
 * revision. Every host keeps a copy in memory and on its disk, so that it can continue without Redis, and refills a
 * Redis that has lost entries.
 *
 *     PREFIX:fleet:NAME:entries     hash, function -> its sealed entry
 *     PREFIX:fleet:NAME:revisions   hash, function -> REVISION:TAG; the tag is a hash of the entry
 *     PREFIX:fleet:NAME:log         sorted set, function by the count of its latest change
 *     PREFIX:fleet:NAME:clock       that count
 *     PREFIX:fleet:NAME:epoch       created anew in a Redis without data
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { RedisLink } from '../queue/index.ts';
import { ChangedElsewhere } from '../store/index.ts';
import type { Entry, RegistryCopy } from './registry-copy.ts';
import type { Seal } from './seal.ts';
import { getOrMake, type Log } from '../tools/index.ts';

export interface RegistryOptions {
  readonly link: RedisLink;
  readonly fleet: string;
  readonly seal: Seal;
  readonly copy: RegistryCopy;
  /** A function's entry has changed: `copy` has it. */
  readonly onChanged: (name: string) => Promise<void>;
  /** This host's functions that the fleet may not know: they are added. */
  readonly ownNames: () => readonly string[];
  readonly own: (name: string) => unknown;
  /** Merges two hosts' states, each with acknowledged changes that the other lacks. Both keep theirs. */
  readonly merge: (name: string, mine: unknown, theirs: unknown) => unknown;
  /** Tells every other host of a change by this one, once. Resolves when they know, or do not answer. */
  readonly tell: (name: string, sealed: string) => Promise<void>;
  readonly log: Log;
}

const ancestorsMax = 16;
const readAtOnce = 500;
/** Tries of one call; each concurrent writer may cost one. */
const syncsMax = 20;

/** KEYS revisions, entries, clock, log; ARGV name, revision expected, revision, entry, channel. 1: it was written. */
const putScript = `
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
local clock = redis.call('INCR', KEYS[3])
redis.call('ZADD', KEYS[4], clock, ARGV[1])
redis.call('PUBLISH', ARGV[5], clock)
return 1`;

export class Registry {
  readonly #options: RegistryOptions;
  #epoch: string | undefined;
  #clock = 0;
  /** Everything was compared since the connection came up. */
  #isWhole = false;
  #isWanted = false;
  #isClosed = false;
  #syncing: Promise<void> | undefined;
  #subscriber: Redis | undefined;
  #endListening: (() => void) | undefined;

  constructor(options: RegistryOptions) {
    this.#options = options;
  }

  start(): void {
    const { link } = this.#options;
    this.#endListening = link.onChange((works) => {
      this.#isWhole = false;
      if (works) void this.look();
    });
    this.#subscriber = link.waiting();
    this.#subscriber.on('message', () => void this.look());
    this.#subscriber.on('ready', () => void this.look());
    this.#subscriber.subscribe(this.#key('changes')).catch(() => undefined);
  }

  /** Resolves when no change is being processed any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#endListening?.();
    this.#subscriber?.disconnect();
    await this.#syncing?.catch(() => undefined);
  }

  /** {@link sync} for background use: Redis may be away. */
  async look(): Promise<void> {
    await this.sync().catch(() => undefined);
  }

  /**
   * Resolves when this host has what Redis had when it was called, and Redis what this host had.
   *
   * @throws QueueError 'unavailable'
   */
  async sync(): Promise<void> {
    this.#options.link.check();
    if (this.#isClosed) return;
    this.#isWanted = true;
    this.#syncing ??= this.#syncAll().finally(() => {
      this.#syncing = undefined;
    });
    await this.#syncing;
  }

  /** @throws QueueError 'unavailable' if Redis is away, or has not been compared with since it came back */
  async ready(): Promise<void> {
    this.#options.link.check();
    if (!this.#isWhole) await this.sync();
  }

  /**
   * Changes a function's entry; undefined removes it. When it resolves, every other host that answers knows the change:
   * Redis alone could die with it.
   *
   * @throws ChangedElsewhere; QueueError 'unavailable': then it is unknown whether Redis has it
   */
  async put(name: string, body: unknown): Promise<void> {
    const { copy, link } = this.#options;
    link.check();
    const before = copy.get(name);
    const entry = next(body, before);
    if (!(await this.#write(name, before === undefined ? '' : revisionOf(before), entry))) {
      throw new ChangedElsewhere(`function '${name}' was changed at another host`);
    }
    // Another host may have changed it again, and this one heard of that first: then the newer entry stays. It is not
    // waited for: the store takes it under the function's lock, which the caller holds.
    const isNewest = copy.get(name) === before;
    if (!isNewest) void this.look();
    await Promise.all([isNewest && copy.set(name, entry), this.#options.tell(name, this.#sealed(name, entry))]);
  }

  /** A change that another host {@link RegistryOptions.tell tells}. @returns whether it is one of the fleet's */
  async hear(name: string, sealed: string): Promise<boolean> {
    const { copy, own, onChanged } = this.#options;
    const theirs = this.#opened(name, sealed);
    if (theirs === undefined) return false;
    const mine = copy.get(name);
    const follows = mine === undefined ? own(name) === undefined : theirs.ancestors.includes(tagOf(mine));
    // If it does not follow this host's revision, the two are compared through Redis.
    if (this.#isClosed || !follows) return true;
    await copy.set(name, theirs);
    await onChanged(name);
    return true;
  }

  async #syncAll(): Promise<void> {
    for (let left = syncsMax; this.#isWanted && !this.#isClosed && left > 0; left--) {
      this.#isWanted = false;
      await this.#compare();
    }
  }

  async #compare(): Promise<void> {
    const { link } = this.#options;
    link.check();
    try {
      const [epoch, clock] = await this.#stand();
      const isFull = !this.#isWhole || epoch !== this.#epoch || clock < this.#clock;
      if (!isFull && clock === this.#clock) return;
      const names = isFull
        ? await this.#different()
        : await link.commands.zrangebyscore(this.#key('log'), `(${this.#clock}`, '+inf');
      for (let at = 0; at < names.length; at += readAtOnce) await this.#take(names.slice(at, at + readAtOnce));
      [this.#epoch, this.#clock] = [epoch, clock];
      // Not if the connection broke meanwhile: Redis may be another one by now.
      this.#isWhole = link.works;
    } catch (error) {
      this.#isWhole = false;
      throw link.failure(error);
    }
  }

  async #stand(): Promise<[epoch: string, clock: number]> {
    const { commands } = this.#options.link;
    const key = this.#key('epoch');
    const [epoch, clock] = await commands.mget(key, this.#key('clock'));
    if (typeof epoch === 'string') return [epoch, Number(clock ?? 0)];
    await commands.set(key, randomBytes(8).toString('hex'), 'NX');
    // By GET, which rejects a key of another type; MGET would report it as missing.
    return [(await commands.get(key)) ?? '', Number(clock ?? 0)];
  }

  /** Names of the functions on which Redis and this host differ. */
  async #different(): Promise<string[]> {
    const { link, copy } = this.#options;
    const revisions = await link.commands.hgetall(this.#key('revisions'));
    const names = new Set([...Object.keys(revisions), ...copy.names(), ...this.#options.ownNames()]);
    return [...names].filter((name) => {
      const mine = copy.get(name);
      return mine === undefined || revisionOf(mine) !== revisions[name];
    });
  }

  async #take(names: readonly string[]): Promise<void> {
    const { link, copy, onChanged } = this.#options;
    if (names.length === 0) return;
    const revisions = await link.commands.hmget(this.#key('revisions'), ...names);
    const texts = await link.commands.hmget(this.#key('entries'), ...names);
    for (const [index, name] of names.entries()) {
      const mine = copy.get(name);
      const theirs = this.#opened(name, texts[index] ?? undefined);
      const wanted = this.#chosen(name, mine, theirs);
      if (wanted === undefined) continue;
      if (wanted !== theirs) {
        // Another host may have done the same: then it is compared once more.
        if (!(await this.#write(name, revisions[index] ?? '', wanted))) {
          this.#isWanted = true;
          continue;
        }
      }
      if (wanted === mine) continue;
      // A change by this host may have come in between.
      if (copy.get(name) !== mine) this.#isWanted = true;
      else await copy.set(name, wanted);
      await onChanged(name);
    }
  }

  /** The entry that both should have; undefined: they have it. */
  #chosen(name: string, mine: Entry | undefined, theirs: Entry | undefined): Entry | undefined {
    if (mine === undefined) return this.#withOwn(name, theirs);
    if (theirs === undefined) return mine;
    const [myTag, theirTag] = [tagOf(mine), tagOf(theirs)];
    if (myTag === theirTag) return undefined;
    if (mine.ancestors.includes(theirTag)) return mine;
    const isOld = theirs.revision - mine.revision > ancestorsMax;
    if (theirs.ancestors.includes(myTag) || isOld) return theirs;
    if (mine.revision - theirs.revision > ancestorsMax) return mine;
    this.#options.log.warn({ function: name }, 'Redis had lost a change of a function: both states of it are joined');
    const newer = mine.revision > theirs.revision ? mine : theirs;
    const joined = next(this.#options.merge(name, mine.body ?? undefined, theirs.body ?? undefined), newer);
    return { ...joined, ancestors: [myTag, theirTag, ...newer.ancestors].slice(0, ancestorsMax) };
  }

  /** A function that this host did not get from the fleet, but may have itself. */
  #withOwn(name: string, theirs: Entry | undefined): Entry | undefined {
    const own = this.#options.own(name);
    if (own === undefined) return theirs;
    const body = this.#options.merge(name, own, theirs?.body ?? undefined);
    const isKnown = theirs !== undefined && JSON.stringify(body) === JSON.stringify(theirs.body);
    return isKnown ? theirs : next(body, theirs);
  }

  #sealed(name: string, entry: Entry): string {
    return this.#options.seal.sealed(`function ${name}`, JSON.stringify(entry));
  }

  #opened(name: string, sealed: string | undefined): Entry | undefined {
    if (sealed === undefined) return undefined;
    const text = this.#options.seal.opened(`function ${name}`, sealed);
    if (text !== undefined) return JSON.parse(text) as Entry;
    this.#options.log.warn({ function: name }, 'an entry of the registry is not signed with the secret of the fleet');
    return undefined;
  }

  async #write(name: string, expected: string, entry: Entry): Promise<boolean> {
    const { link } = this.#options;
    const keys = ['revisions', 'entries', 'clock', 'log'].map((part) => this.#key(part));
    const text = this.#sealed(name, entry);
    const channel = this.#key('changes');
    try {
      const taken = await link.commands.eval(putScript, 4, ...keys, name, expected, revisionOf(entry), text, channel);
      return taken === 1;
    } catch (error) {
      throw link.failure(error);
    }
  }

  #key(part: string): string {
    return this.#options.link.key('fleet', this.#options.fleet, part);
  }
}

function next(body: unknown, before: Entry | undefined): Entry {
  return {
    revision: (before?.revision ?? 0) + 1,
    ancestors: before === undefined ? [] : [tagOf(before), ...before.ancestors].slice(0, ancestorsMax),
    body: body ?? null,
  };
}

const tags = new WeakMap<Entry, string>();

function tagOf(entry: Entry): string {
  return getOrMake(tags, entry, () => createHash('sha256').update(JSON.stringify(entry)).digest('hex').slice(0, 16));
}

function revisionOf(entry: Entry): string {
  return `${entry.revision}:${tagOf(entry)}`;
}
