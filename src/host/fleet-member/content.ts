/**
 * Which files of the fleet this host has. Each function's content is at two hosts at least, by the order of rendezvous hashing; what
 * this host is to have, and what a caller waits for, is fetched by hash, a few at a time.
 */
import type { Logger } from 'pino';
import { PeerLost, type Fleet, type Member } from '../../fleet/index.ts';
import { fetchContent } from '../../queue/index.ts';
import { rankMembers } from '../../schedule/index.ts';
import { HostError } from '../errors.ts';
import { mapInSlices } from '../slices.ts';
import { rankedMember } from './routing.ts';
import type { DiskModelStore, StoredFile, VersionRecord } from '../store/index.ts';

/** Hosts that have each function's content. */
const copies = 2;
const fetchesAtOnce = 2;
/** A fetch that failed is tried again after this, and after twice as long each time, up to the last. */
const [retryMs, retryMsMax] = [500, 30_000];
/** Of another host that is to fetch files: to begin with, and for each byte. */
const [secureMs, secureMsPerByte] = [15_000, 1e-4];

interface Wanted {
  readonly record: VersionRecord;
  failures: number;
  /** Not before (performance.now()). */
  atMs: number;
}

export interface FleetContentOptions {
  readonly fleet: Fleet;
  readonly store: Pick<DiskModelStore, 'elsewhere' | 'hold' | 'keepFiles'>;
  readonly names: () => readonly string[];
  readonly logger: Logger;
}

export class ContentPlacement {
  readonly #options: FleetContentOptions;
  readonly #wanted = new Map<string, Wanted>();
  readonly #stopped = new AbortController();
  readonly #holding = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  #isPlacing = false;
  #isPlaceWanted = false;

  constructor(options: FleetContentOptions) {
    this.#options = options;
  }

  /** Resolves when nothing is written any more. */
  async close(): Promise<void> {
    this.#stopped.abort();
    clearTimeout(this.#timer);
    this.#wanted.clear();
    await Promise.all(this.#holding);
  }

  /** The hosts have changed: looks at every function, in slices. */
  placeAll(): void {
    this.#isPlaceWanted = true;
    if (!this.#isPlacing) void this.#placeWhileWanted();
  }

  /** Fetches what this host is to have of a function. */
  place(name: string): void {
    const { fleet, store } = this.#options;
    const records = store.elsewhere(name);
    if (records.length === 0) return;
    if (!this.#homes(name).slice(0, copies).includes(fleet.membership.name)) return;
    for (const record of records) this.#want(record);
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

  /** Resolves once another host has the files; at once where there is none. @throws HostError 'fleet-unavailable' */
  async secure(name: string, files: readonly StoredFile[]): Promise<void> {
    const { fleet } = this.#options;
    const others = this.#membersInOrder(name).filter((member) => !member.draining);
    let reason = '';
    for (const member of others) {
      try {
        await this.#sendFiles(member, files);
        return;
      } catch (error) {
        if (!(error instanceof PeerLost)) throw error;
        reason = error.message;
      }
    }
    if (others.length === 0 || fleet.membership.others().length === 0) return;
    throw new HostError(
      'fleet-unavailable',
      `no other host of the fleet took the content of '${name}', which is acknowledged when two have it: ${reason}`,
    );
  }

  /** For another host that publishes these files. */
  async keep(files: readonly StoredFile[], from: string): Promise<void> {
    const { store } = this.#options;
    try {
      await store.keepFiles(files, async (file, path) => await this.#fetch(file, path, [from]));
    } catch (error) {
      if (error instanceof HostError) throw error;
      throw new HostError('fleet-unavailable', `the files could not be fetched: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }

  async #sendFiles(member: Member, files: readonly StoredFile[]): Promise<void> {
    const { fleet } = this.#options;
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    const reply = await fleet.peers.send(member, {
      method: 'POST',
      path: '/v2/fleet/content',
      body: [Buffer.from(JSON.stringify({ files }))],
      timeoutMs: secureMs + bytes * secureMsPerByte,
      signal: this.#stopped.signal,
    });
    if (reply.status !== 200) throw new PeerLost(`host ${member.name}: ${errorIn(reply.body, reply.status)}`);
  }

  async #placeWhileWanted(): Promise<void> {
    this.#isPlacing = true;
    while (this.#isPlaceWanted && !this.#stopped.signal.aborted) {
      this.#isPlaceWanted = false;
      await mapInSlices(this.#options.names(), (name) => this.place(name));
    }
    this.#isPlacing = false;
  }

  #want(record: VersionRecord): void {
    const key = `${record.name}@${record.version}`;
    const known = this.#wanted.get(key);
    if (known === undefined) this.#wanted.set(key, { record, failures: 0, atMs: 0 });
    else known.atMs = Math.min(known.atMs, performance.now() + retryMs);
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
    // Who has just sent something answers, whatever the latest measurement says.
    const answers = (member: Member): boolean =>
      first.includes(member.name) || fleet.peers.trouble(member) === undefined;
    const others = fleet.membership.others().filter(answers);
    const hosts = [...others].sort((a, b) => Number(first.includes(b.name)) - Number(first.includes(a.name)));
    const source = {
      hostUrls: hosts.map(({ url }) => url),
      authorization: (url: string, path: string) => fleet.authorization(url, { method: 'GET', path }),
      signal: this.#stopped.signal,
    };
    await fetchContent(source, file, path);
  }

  #homes(name: string): string[] {
    const { fleet } = this.#options;
    const members = [fleet.membership.self(), ...fleet.membership.others()];
    return inOrder(members, name);
  }

  /** The other hosts that answer, the ones that are to have the function first. */
  #membersInOrder(name: string): Member[] {
    const { fleet } = this.#options;
    const members = fleet.membership.others().filter((member) => fleet.peers.trouble(member) === undefined);
    return inOrder(members, name).map((each) => fleet.membership.find(each)!);
  }
}

function inOrder(members: readonly Member[], name: string): string[] {
  if (members.length === 0) return [];
  return rankMembers(members.map(rankedMember), name).map((index) => members[index]!.name);
}

function errorIn(body: Buffer, status: number): string {
  try {
    return String((JSON.parse(body.toString()) as { error: unknown }).error);
  } catch {
    return `status ${status}`;
  }
}
