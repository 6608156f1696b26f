/** This host as a member of a fleet: connects the parts of the fleet with those of the host. */
import { join } from 'node:path';
import type { Logger } from 'pino';
import { Fleet, protocolsUpTo, Registry, RegistryCopy, type MemberView } from '../../fleet/index.ts';
import { Bucket, ChangedElsewhere } from '../../store/index.ts';
import { loadRedisQueue, QueueError } from '../../queue/index.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import type { EventLog } from '../history/index.ts';
import type { LiveScheduler } from '../../live/index.ts';
import { reachable } from '../queueing/index.ts';
import type { Statistics } from '../records/statistics.ts';
import {
  mergedFunctions,
  type DiskModelStore,
  type FleetFunction,
  type FleetStore,
  type StoredFile,
} from '../store/index.ts';
import { fleetCa } from './config-fleet.ts';
import { ContentPlacement } from './content.ts';
import { hostNews } from './host-news.ts';
import { HomeMoves } from './moves.ts';
import { Routing } from './routing.ts';

export interface FleetMemberOptions {
  readonly config: HostConfig;
  /** As `fleetSecret` gives it. */
  readonly secret: string;
  readonly hostVersion: string;
  readonly eventLog: EventLog;
  readonly logger: Logger;
}

/** The parts of the host that the fleet needs, once they exist. */
export interface HostParts {
  /** Where this host listens. */
  readonly url: string;
  readonly store: DiskModelStore;
  readonly live: LiveScheduler;
  readonly statistics: Statistics;
}

interface Joined {
  readonly fleet: Fleet;
  readonly registry: Registry;
  readonly content: ContentPlacement;
  readonly routing: Routing;
}

/** Redis may be a moment late when everything is started together. */
const firstAnswerMs = 1000;
/** A host that has not answered by then hears of the change from Redis. */
const tellMs = 1000;

export class FleetMember implements FleetStore {
  readonly name: string;
  /** Moves of functions from home to home. */
  readonly moves: HomeMoves;
  readonly #options: FleetMemberOptions;
  readonly #tellNews: ReturnType<typeof hostNews>;
  #copy: RegistryCopy | undefined;
  #joined: Joined | undefined;

  constructor(options: FleetMemberOptions) {
    this.#options = options;
    this.name = options.config.fleet.name ?? '';
    const { eventLog } = options;
    this.#tellNews = hostNews(eventLog);
    this.moves = new HomeMoves({
      eventLog,
      isLost: (host) => this.#joined?.fleet.membership.lost.find(host) !== undefined,
    });
  }

  /** @throws HostError 'not-ready' before the host listens */
  get fleet(): Fleet {
    return this.#mustHaveJoined().fleet;
  }

  /** Joins. If Redis is away, this host goes on with its last state, and joins as soon as Redis is back. */
  async start({ url: listensAt, store, live, statistics }: HostParts): Promise<void> {
    const { config, secret, logger, hostVersion } = this.#options;
    const { fleet: settings, redis, queue, listen, cpu } = config;
    const copy = this.#copy;
    if (settings?.name === undefined || redis.url === undefined || copy === undefined) {
      throw new Error('a host without a fleet joined one');
    }
    const { RedisLink } = await loadRedisQueue();
    const link = new RedisLink({ url: redis.url, prefix: redis.prefix });
    const url = settings.advertise ?? queue.hostUrl ?? reachable(listensAt, listen.host);
    const fleet: Fleet = new Fleet({
      link,
      fleet: settings.name,
      secret,
      url,
      ca: fleetCa(config),
      ...(settings.protocol === undefined ? {} : { protocols: protocolsUpTo(settings.protocol) }),
      report: () => ({
        url,
        hostVersion,
        cores: cpu.cores,
        gpus: live.gpus.length,
        inFlight: statistics.requestsInFlight,
        waiting: live.waitingCount,
        functions: heldVersions(store),
      }),
      offers: (all) => routing.offers(all),
      onMembers: () => {
        this.#tellNews(fleet.view());
        routing.membersChanged();
        content.placeAll();
      },
      onGone: (host, held) => routing.memberGone(host, held),
      onRead: async () => await registry.look(),
      log: logger,
    });
    const content = new ContentPlacement({
      fleet,
      store,
      bucket: settings.bucket && new Bucket({ ...settings.bucket, region: settings.bucketRegion ?? 'us-east-1' }),
      cacheBytes: settings.cacheBytes,
      idleMs: (key) => live.placeOf(key)?.idleMs ?? Infinity,
      names: () => this.names(),
      logger,
    });
    const { moves } = this;
    const routing = new Routing({ fleet, store, live, moves, onHome: (name) => content.placeHere(name) });
    const registry = new Registry({
      link,
      fleet: settings.name,
      seal: fleet.seal,
      copy,
      ownNames: () => store.names(),
      own: (name) => store.ownRecords(name),
      onChanged: async (name) => {
        await store.adopt(name);
        content.place(name);
      },
      merge: (_name, mine, theirs) =>
        mergedFunctions(mine as FleetFunction | undefined, theirs as FleetFunction | undefined),
      tell: async (name, sealed) => {
        const path = `/v2/fleet/entries/${encodeURIComponent(name)}`;
        const request = { method: 'POST', path, body: [Buffer.from(sealed)], timeoutMs: tellMs } as const;
        await Promise.allSettled(fleet.reachable().map((member) => fleet.peers.send(member, request)));
      },
      log: logger,
    });
    this.#joined = { fleet, registry, content, routing };
    await link.ready(firstAnswerMs).catch(() => undefined); // The owner of the queue reports the failure.
    registry.start();
    await fleet.start();
    await registry.look();
    this.#tellNews(fleet.view());
    routing.membersChanged();
    content.placeAll();
  }

  /** Tells the others that this host leaves. */
  async stopping(): Promise<void> {
    await this.#joined?.fleet.stopping();
  }

  async close(): Promise<void> {
    const joined = this.#joined;
    if (joined === undefined) return;
    await joined.registry.close();
    await joined.content.close();
    await joined.fleet.close();
    joined.fleet.link.close();
  }

  /** Where calls run; undefined before this host has joined. */
  get routing(): Routing | undefined {
    return this.#joined?.routing;
  }

  /** Every host, this one first; none before this host has joined. */
  view(): readonly MemberView[] {
    return this.#joined?.fleet.view() ?? [];
  }

  /** This host's part of the fleet's content; undefined before this host has joined. */
  get content(): ContentPlacement | undefined {
    return this.#joined?.content;
  }

  /** Stores files that another host publishes. */
  async keep(files: readonly StoredFile[], from: string): Promise<void> {
    await this.#mustHaveJoined().content.keep(files, from);
  }

  // For the store

  async load(folder: string): Promise<void> {
    this.#copy = new RegistryCopy(join(folder, this.name));
    await this.#copy.start();
  }

  names(): readonly string[] {
    return this.#copy?.names() ?? [];
  }

  get(name: string): FleetFunction | undefined {
    return (this.#copy?.get(name)?.body ?? undefined) as FleetFunction | undefined;
  }

  async ready(): Promise<void> {
    await this.#withRegistry(async ({ registry }) => await registry.ready());
  }

  async secure(name: string, files: readonly StoredFile[]): Promise<void> {
    await this.#mustHaveJoined().content.secure(name, files);
  }

  async commit(name: string, next: FleetFunction | undefined): Promise<void> {
    await this.#withRegistry(async ({ registry }) => await registry.put(name, next));
  }

  async sync(): Promise<void> {
    await this.#withRegistry(async ({ registry }) => await registry.sync());
  }

  /** A change by another host. @throws HostError 'bad-request' for one that no host of the fleet has signed */
  async hear(name: string, sealed: string): Promise<void> {
    if (await this.#mustHaveJoined().registry.hear(name, sealed)) return;
    throw new HostError('bad-request', 'the body is no entry that is signed with the secret of the fleet');
  }

  want(name: string, version: string): void {
    this.#joined?.content.want(name, version);
  }

  #mustHaveJoined(): Joined {
    if (this.#joined !== undefined) return this.#joined;
    throw new HostError('not-ready', 'the host is starting and has not joined its fleet yet');
  }

  async #withRegistry(work: (joined: Joined) => Promise<void>): Promise<void> {
    const joined = this.#mustHaveJoined();
    try {
      await work(joined);
    } catch (error) {
      if (error instanceof ChangedElsewhere || !(error instanceof QueueError)) throw error;
      throw new HostError(
        'fleet-unavailable',
        `${error.message}, and it has the registry of the fleet '${this.name}': nothing can be published or ` +
          'changed until it is back; what is published goes on serving',
        { cause: error },
      );
    }
  }
}

function heldVersions(store: DiskModelStore): number {
  let count = 0;
  for (const name of store.names()) {
    for (const { state } of store.versions(name)) if (state.status !== 'elsewhere') count++;
  }
  return count;
}
