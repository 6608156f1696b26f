/** This host as a member of a fleet: connects the parts of the fleet with those of the host. */
import { hostname } from 'node:os';
import type { Logger } from 'pino';
import { Fleet, MemberListener, type MemberTls, type MemberView, type Serve } from '../../fleet/index.ts';
import { loadRedisQueue } from '../../queue/index.ts';
import type { CertificateFiles } from '../config/certificate-files.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import type { EventLog } from '../history/index.ts';
import type { LiveScheduler } from '../../live/index.ts';
import type { Statistics } from '../records/statistics.ts';
import type { DiskModelStore } from '../store/index.ts';
import { hostNews } from './host-news.ts';
import { Routing } from './routing.ts';

export interface FleetMemberOptions {
  readonly config: HostConfig;
  /** Undefined: plain TCP, on this machine. */
  readonly tls: CertificateFiles | undefined;
  readonly hostVersion: string;
  readonly eventLog: EventLog;
  readonly logger: Logger;
}

/** The parts of the host that the fleet needs, once they exist. */
export interface HostParts {
  /** Where this host listens for clients. */
  readonly url: string;
  readonly serve: Serve;
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
  async start({ url: listensAt, serve, store, live, statistics }: HostParts): Promise<void> {
    const { config, logger, hostVersion } = this.#options;
    const { fleet: settings, redis, listen, limits, cpu } = config;
    if (settings?.name === undefined || redis.url === undefined) {
      throw new Error('a host without a fleet joined one');
    }
    const { RedisLink } = await loadRedisQueue();
    const link = new RedisLink({ url: redis.url, prefix: redis.prefix });
    const tls = memberTls(this.#options.tls, settings.tls.name);
    const listener: MemberListener = await MemberListener.listen({
      host: listen.host,
      port: settings.port,
      tls,
      connectionsMax: limits.connectionsMax,
      stallMs: limits.bodyTimeoutMs,
      greet: (hello) => this.#joined?.fleet.greet(hello) ?? { refused: 'it is starting' },
      serve,
    });
    const name = settings.advertise ?? `${reachableName(listen.host)}:${listener.port}`;
    const url = clientsUrl(listensAt, new URL(`tcp://${name}`).hostname);
    const fleet: Fleet = new Fleet({
      link,
      fleet: settings.name,
      name,
      listener,
      tls,
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

  /** Calls of other hosts under way are answered first, within `graceMs`. */
  hangUp(graceMs: number): void {
    this.#joined?.fleet.hangUp(graceMs);
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

function memberTls(files: CertificateFiles | undefined, name: string | undefined): MemberTls | undefined {
  if (files === undefined) return undefined;
  return {
    name,
    get pems() {
      return files.pems;
    },
    onChange: (listener) => files.onChange(listener),
  };
}

/** An address that listens on everything is none that others can use. */
function reachableName(listenHost: string): string {
  if (listenHost === '0.0.0.0' || listenHost === '::') return hostname();
  return listenHost.includes(':') ? `[${listenHost}]` : listenHost;
}

/** Where clients reach a host that other hosts know under this name. */
function clientsUrl(listensAt: string, name: string): string {
  const { protocol, port } = new URL(listensAt);
  return `${protocol}//${name}:${port}`;
}
