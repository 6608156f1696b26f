/**
 * Which files of the fleet this host has. Each function's content is on at least two hosts, by the order of rendezvous
 * hashing, or in the bucket. This host fetches the content that it is to keep, and content that a caller waits for, by
 * hash, a few at a time. cache.ts decides what is dropped.
 */
import type { Logger } from 'pino';
import { PeerLost, type Fleet, type Member, type PeerReply } from '../../fleet/index.ts';
import { fetchContent, rangeHeader, type Bucket, type ContentSource } from '../../store/index.ts';
import { rankMembers } from '../../schedule/index.ts';
import { HostError } from '../errors.ts';
import { mapInSlices } from '../limits/slices.ts';
import { BucketFill } from './bucket-fill.ts';
import { bytesOf, ContentCache, type ContentOf } from './cache.ts';
import { rankedMember } from './homes.ts';
import { sentenceOf } from './passing.ts';
import { fieldOf } from './routing.ts';
import type { DiskModelStore, StoredFile, VersionRecord } from '../store/index.ts';

/** Hosts that keep each function's content. */
const copies = 2;
const fetchesAtOnce = 2;
/** The first pause after a failed fetch, and the longest; each is twice as long as the one before. */
const [retryMs, retryMsMax] = [500, 30_000];
/** Time limit for another host to fetch files: a base, and per byte. */
const [secureMs, secureMsPerByte] = [15_000, 1e-4];
/** Time limit for another host to say whether it has a version. */
const askMs = 10_000;

interface Wanted {
  readonly record: VersionRecord;
  /** No caller waits for it: it is not fetched at the cost of content in use. */
  isAhead: boolean;
  failures: number;
  /** Not before (performance.now()). */
  atMs: number;
}

export interface FleetContentOptions {
  readonly fleet: Fleet;
  readonly store: DiskModelStore;
  readonly bucket: Bucket | undefined;
  /** Undefined: nothing is dropped. */
  readonly cacheBytes: number | undefined;
  /** Time since the latest call of a version here. */
  readonly idleMs: (key: string) => number;
  readonly names: () => readonly string[];
  readonly logger: Logger;
}

export class ContentPlacement {
  readonly #options: FleetContentOptions;
  readonly cache: ContentCache;
  readonly #fill: BucketFill | undefined;
  readonly #wanted = new Map<string, Wanted>();
  readonly #stopped = new AbortController();
  readonly #holding = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  #isPlacing = false;
  #isPlaceWanted = false;

  constructor(options: FleetContentOptions) {
    this.#options = options;
    const { store, bucket, cacheBytes, idleMs, fleet, logger } = options;
    const pathOf = async (sha256: string): Promise<string | undefined> => await store.soundFile(sha256);
    this.#fill = bucket && new BucketFill({ bucket, pathOf, log: logger });
    this.cache = new ContentCache({
      bytesMax: cacheBytes,
      held: () => store.held().map((record) => ({ record, idleMs: idleMs(`${record.name}@${record.version}`) })),
      holds: (content) => store.holds(content),
      isKeeper: (name) => this.#isKeeper(name),
      isInBucket: async (files) => await this.#isInBucket(files),
      holders: (record) => this.#holders(record),
      ask: async (host, content) => await this.#ask(fleet.membership.find(host), content),
      drop: async (record) => await store.drop(record),
      log: logger,
    });
    store.onChange(() => this.cache.changed());
  }

  /** Files still to be written to the bucket; undefined without one. */
  get bucketWaiting(): number | undefined {
    return this.#fill?.waiting;
  }

  /** Resolves when nothing is being written any more. */
  async close(): Promise<void> {
    this.#stopped.abort();
    clearTimeout(this.#timer);
    this.#wanted.clear();
    await Promise.all([...this.#holding, this.cache.close(), this.#fill?.close()]);
  }

  /** The hosts have changed: checks every function, in slices. */
  placeAll(): void {
    this.#isPlaceWanted = true;
    if (!this.#isPlacing) void this.#placeWhileWanted();
  }

  /** Fetches the content of a function that this host is to keep. */
  place(name: string): void {
    const { fleet, store } = this.#options;
    if (this.#fill !== undefined && this.#homes(name)[0] === fleet.membership.name) {
      const own = store.ownRecords(name)?.versions ?? [];
      this.#fill.add(own.filter((record) => store.holds(record)).flatMap(({ files }) => files));
    }
    const records = store.elsewhere(name);
    if (records.length === 0 || !this.#isKeeper(name)) return;
    for (const record of records) this.#want(record, true);
  }

  /** This host is a home of the function. */
  placeHere(name: string): void {
    for (const record of this.#options.store.elsewhere(name)) this.#want(record);
  }

  /** A caller waits for it. */
  want(name: string, version: string): void {
    const record = this.#options.store.elsewhere(name).find((each) => each.version === version);
    if (record !== undefined) this.#want(record);
  }

  /**
   * Resolves once another host, or else the bucket, has the files; at once if there is neither.
   *
   * @throws HostError 'fleet-unavailable'
   */
  async secure(name: string, files: readonly StoredFile[]): Promise<void> {
    const { fleet } = this.#options;
    const others = this.#membersInOrder(name).filter((member) => !member.draining);
    let reason = '';
    for (const member of others) {
      try {
        await this.#sendFiles(member, files);
        this.#fill?.add(files);
        return;
      } catch (error) {
        if (!(error instanceof PeerLost)) throw error;
        reason = error.message;
      }
    }
    if (this.#fill !== undefined) {
      try {
        await this.#fill.put(files);
        return;
      } catch (error) {
        const { message } = error as Error;
        const sentence = `the content of '${name}' is acknowledged when another host or the bucket has it: ${message}`;
        throw new HostError('fleet-unavailable', sentence, { cause: error });
      }
    }
    if (others.length === 0 || fleet.membership.others().length === 0) return;
    throw new HostError(
      'fleet-unavailable',
      `no other host of the fleet took the content of '${name}', which is acknowledged when two have it: ${reason}`,
    );
  }

  /** Keeps files for another host that publishes them. */
  async keep(files: readonly StoredFile[], from: string): Promise<void> {
    const { store } = this.#options;
    try {
      await this.cache.keepFor(files);
      await store.keepFiles(files, async (file, path) => await this.#fetch(file, path, [from]));
      await this.cache.keepFor(files);
    } catch (error) {
      if (error instanceof HostError) throw error;
      throw new HostError('fleet-unavailable', `the files could not be fetched: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }

  async #sendFiles(member: Member, files: readonly StoredFile[]): Promise<void> {
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    const { status, body } = await this.#tellContent(member, { files }, secureMs + bytes * secureMsPerByte);
    if (status !== 200) throw new PeerLost(`host ${member.name}: ${sentenceOf(body) ?? `status ${status}`}`);
  }

  #tellContent(member: Member, told: object, timeoutMs: number): Promise<PeerReply> {
    return this.#options.fleet.peers.send(member, {
      method: 'POST',
      path: '/v2/fleet/content',
      body: [Buffer.from(JSON.stringify(told))],
      timeoutMs,
      signal: this.#stopped.signal,
    });
  }

  async #placeWhileWanted(): Promise<void> {
    this.#isPlacing = true;
    while (this.#isPlaceWanted && !this.#stopped.signal.aborted) {
      this.#isPlaceWanted = false;
      await mapInSlices(this.#options.names(), (name) => this.place(name));
    }
    this.#isPlacing = false;
  }

  #want(record: VersionRecord, isAhead = false): void {
    const key = `${record.name}@${record.version}`;
    const known = this.#wanted.get(key);
    if (known === undefined) this.#wanted.set(key, { record, isAhead, failures: 0, atMs: 0 });
    else {
      known.isAhead &&= isAhead;
      known.atMs = Math.min(known.atMs, performance.now() + retryMs);
    }
    this.#work();
  }

  #work(): void {
    clearTimeout(this.#timer);
    const nowMs = performance.now();
    let nextMs = Infinity;
    for (const [key, wanted] of this.#wanted) {
      if (this.#holding.size >= fetchesAtOnce || this.#stopped.signal.aborted) return;
      if (wanted.atMs > nowMs) nextMs = Math.min(nextMs, wanted.atMs);
      else this.#begin(key, wanted);
    }
    if (nextMs < Infinity) this.#timer = setTimeout(() => this.#work(), nextMs - nowMs).unref();
  }

  #begin(key: string, wanted: Wanted): void {
    wanted.atMs = Infinity;
    const holding = this.#hold(key, wanted).finally(() => {
      this.#holding.delete(holding);
      this.#work();
    });
    this.#holding.add(holding);
  }

  async #hold(key: string, wanted: Wanted): Promise<void> {
    const { store, logger } = this.#options;
    try {
      if (wanted.isAhead && this.#isFull(wanted.record) && (await this.#isInBucket(wanted.record.files))) {
        if (wanted.isAhead) this.#wanted.delete(key);
        else wanted.atMs = 0; // By now a caller waits for it.
        return;
      }
      await store.hold(wanted.record, async (file, path) => await this.#fetch(file, path));
      this.#wanted.delete(key);
    } catch (error) {
      const { name, version } = wanted.record;
      const isGone = !store.elsewhere(name).some((each) => each.version === version);
      if (isGone) this.#wanted.delete(key);
      else {
        wanted.atMs = performance.now() + Math.min(retryMsMax, retryMs * 2 ** wanted.failures++);
        logger.warn({ function: key, reason: (error as Error).message }, 'content of the fleet could not be fetched');
      }
    }
  }

  async #fetch(file: StoredFile, path: string, first: readonly string[] = []): Promise<void> {
    const { fleet } = this.#options;
    // A host that has just sent a request does answer, whatever the latest measurement says.
    const senders = fleet.membership.others().filter(({ name }) => first.includes(name));
    const hosts = [...senders, ...fleet.reachable().filter(({ name }) => !first.includes(name))];
    const { signal } = this.#stopped;
    const source: ContentSource = {
      hostUrls: hosts.map(({ url }) => url),
      open: async (url, sha256, range) => {
        const from = hosts.find((each) => each.url === url)!;
        const asked = { method: 'GET', path: `/blobs/sha256:${sha256}`, headers: rangeHeader(range), signal } as const;
        const reply = await fleet.peers.open(from, asked);
        if ((reply.statusCode ?? 0) > 299) reply.resume();
        return { status: reply.statusCode ?? 0, body: reply as AsyncIterable<Buffer> };
      },
      signal,
    };
    const { bucket } = this.#options;
    let reason = 'no host is there';
    if (hosts.length > 0 || bucket === undefined) {
      try {
        await fetchContent(source, file, path);
        return;
      } catch (error) {
        if (bucket === undefined || signal.aborted) throw error;
        reason = (error as Error).message;
      }
    }
    try {
      await fetchContent(bucket.source(signal), file, path);
    } catch (error) {
      throw new Error(`${(error as Error).message}; ${reason}`, { cause: error });
    }
  }

  async #isInBucket(files: readonly StoredFile[]): Promise<boolean> {
    const { bucket } = this.#options;
    if (bucket === undefined) return false;
    const there = files.map(async (file) => await bucket.has(file, this.#stopped.signal));
    return (await Promise.all(there).catch(() => [false])).every(Boolean);
  }

  #isFull({ files }: VersionRecord): boolean {
    const { cacheBytes = Infinity } = this.#options;
    return this.cache.bytes + bytesOf(files) > cacheBytes;
  }

  /** Whether this host keeps a function's content. */
  #isKeeper(name: string): boolean {
    return this.#homes(name).slice(0, copies).includes(this.#options.fleet.membership.name);
  }

  /** Other hosts that say that they have a version, its keepers first. */
  #holders({ name, version, files }: VersionRecord): readonly string[] {
    const { fleet } = this.#options;
    const offers = fleet.offers.of(fieldOf({ key: `${name}@${version}`, modelSha256: files[0]?.sha256 ?? '' }));
    return this.#membersInOrder(name)
      .filter((member) => !member.draining)
      .flatMap((member) => (offers?.get(member.name)?.isHeld === true ? [member.name] : []));
  }

  async #ask(member: Member | undefined, { name, version, files }: ContentOf): Promise<boolean> {
    if (member === undefined) return false;
    try {
      return (await this.#tellContent(member, { files, dropping: { name, version } }, askMs)).status === 200;
    } catch {
      return false;
    }
  }

  #homes(name: string): string[] {
    const { fleet } = this.#options;
    const members = [fleet.membership.self(), ...fleet.membership.others()];
    return inOrder(members, name);
  }

  /** The other hosts that answer, the function's keepers first. */
  #membersInOrder(name: string): Member[] {
    const { fleet } = this.#options;
    return inOrder(fleet.reachable(), name).map((each) => fleet.membership.find(each)!);
  }
}

function inOrder(members: readonly Member[], name: string): string[] {
  if (members.length === 0) return [];
  return rankMembers(members.map(rankedMember), name).map((index) => members[index]!.name);
}
