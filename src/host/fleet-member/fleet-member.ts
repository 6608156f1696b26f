/** This host as a member of a fleet: connects the parts of the fleet with those of the host. */
import type { Logger } from 'pino';
import { Fleet, type MemberView } from '../../fleet/index.ts';
import { loadRedisQueue } from '../../queue/index.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import type { EventLog } from '../history/index.ts';
import type { LiveScheduler } from '../../live/index.ts';
import { reachable } from '../queueing/index.ts';
import type { Statistics } from '../records/statistics.ts';
import type { DiskModelStore } from '../store/index.ts';
import { fleetCa } from './config-fleet.ts';
import { hostNews } from './host-news.ts';
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
  readonly routing: Routing;
}

/** Redis may be a moment late when everything is started together. */
const firstAnswerMs = 1000;

export class FleetMember {
  readonly name: string;
  readonly #options: FleetMemberOptions;
  readonly #tellNews: ReturnType<typeof hostNews>;
  #joined: Joined | undefined;

  constructor(options: FleetMemberOptions) {
    this.#options = options;
    this.name = options.config.fleet.name ?? '';
    const { eventLog } = options;
    this.#tellNews = hostNews(eventLog);
  }

  /** @throws HostError 'not-ready' before the host listens */
  get fleet(): Fleet {
    return this.#mustHaveJoined().fleet;
  }

  /** Joins. If Redis is away, this host goes on with its last state, and joins as soon as Redis is back. */
  async start({ url: listensAt, store, live, statistics }: HostParts): Promise<void> {
    const { config, secret, logger, hostVersion } = this.#options;
    const { fleet: settings, redis, listen, cpu } = config;
    if (settings?.name === undefined || redis.url === undefined) {
      throw new Error('a host without a fleet joined one');
    }
    const { RedisLink } = await loadRedisQueue();
    const link = new RedisLink({ url: redis.url, prefix: redis.prefix });
    const url = settings.advertise ?? reachable(listensAt, listen.host);
    const fleet: Fleet = new Fleet({
      link,
      fleet: settings.name,
      secret,
      url,
      ca: fleetCa(config),
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
        this.#tellNews.look(fleet.view());
        routing.membersChanged();
      },
      onLost: (host) => this.#tellNews.lost(host),
      log: logger,
    });
    const routing = new Routing({ fleet, store, live, onHome: (name) => store.bring(name) });
    this.#joined = { fleet, routing };
    await link.ready(firstAnswerMs).catch(() => undefined); // The owner of the queue reports the failure.
    await fleet.start();
    this.#tellNews.look(fleet.view());
    routing.membersChanged();
  }

  /** Tells the others that this host leaves. */
  async stopping(): Promise<void> {
    await this.#joined?.fleet.stopping();
  }

  async close(): Promise<void> {
    const joined = this.#joined;
    if (joined === undefined) return;
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

  #mustHaveJoined(): Joined {
    if (this.#joined !== undefined) return this.#joined;
    throw new HostError('not-ready', 'the host is starting and has not joined its fleet yet');
  }
}

function heldVersions(store: DiskModelStore): number {
  let count = 0;
  for (const name of store.names()) {
    for (const { state } of store.versions(name)) if (state.status !== 'elsewhere') count++;
  }
  return count;
}
