/** This host as a member of a fleet: connects the parts of the fleet with those of the host. */
import { hostname } from 'node:os';
import type { Logger } from 'pino';
import {
  Fleet,
  MemberListener,
  Membership,
  type MemberReport,
  type MemberTls,
  type MemberView,
  type Serve,
} from '../../fleet/index.ts';
import type { CertificateFiles } from '../config/certificate-files.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import type { EventLog } from '../history/index.ts';
import type { LiveScheduler } from '../../live/index.ts';
import type { Queueing } from '../queueing/index.ts';
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

/** The parts of the host that members hear of, once they exist. */
export interface HostParts {
  /** Where this host listens for clients. */
  readonly url: string;
  readonly serve: Serve;
  readonly store: DiskModelStore;
  readonly live: LiveScheduler;
  readonly statistics: Statistics;
  readonly queueing: Queueing;
}

interface Joined {
  readonly membership: Membership;
  readonly routing: Routing | undefined;
}

/** Redis may be a moment late when everything is started together. */
const firstAnswerMs = 1000;

/** This host among the members on its Redis: workers see it, and the other hosts of its fleet if it is in one. */
export class FleetMember {
  readonly #options: FleetMemberOptions;
  readonly #tellNews: ReturnType<typeof hostNews>;
  #fleet: Fleet | undefined;
  #joined: Joined | undefined;

  constructor(options: FleetMemberOptions) {
    this.#options = options;
    const { eventLog } = options;
    this.#tellNews = hostNews(eventLog);
  }

  /** @throws HostError 'not-ready' before the host listens */
  get fleet(): Fleet {
    if (this.#fleet !== undefined) return this.#fleet;
    throw new HostError('not-ready', 'the host is starting and has not joined its fleet yet');
  }

  /** Joins. If Redis is away, this host goes on with its last state, and joins as soon as Redis is back. */
  async start(parts: HostParts): Promise<Membership> {
    const { config, logger } = this.#options;
    const { link, files } = parts.queueing;
    const listener = config.fleet.name === undefined ? undefined : await this.#listen(parts.serve);
    const name = listener && this.#nameAt(listener.port);
    const membership: Membership = new Membership({
      link,
      name,
      report: () => this.#report(parts, membership.name),
      offers: (all) => this.#joined?.routing?.offers(all) ?? [],
      manifests: files.announced,
      log: logger,
    });
    const routing = listener && this.#route(parts, membership, listener);
    this.#joined = { membership, routing };
    // The owner of the queue reports the failure.
    if (routing !== undefined) await link.ready(firstAnswerMs).catch(() => undefined);
    await membership.start();
    this.#fleet?.start();
    if (this.#fleet !== undefined) this.#tellNews.look(this.#fleet.view());
    routing?.membersChanged();
    return membership;
  }

  /** Tells the others that this host leaves. */
  async stopping(): Promise<void> {
    await this.#fleet?.stopping();
  }

  /** Calls of other hosts under way are answered first, within `graceMs`. */
  hangUp(graceMs: number): void {
    this.#fleet?.hangUp(graceMs);
  }

  /** Before the connection to Redis is closed. */
  async leave(): Promise<void> {
    await this.#joined?.membership.leave();
    this.#fleet?.close();
  }

  /** Where calls run; undefined before this host has joined a fleet. */
  get routing(): Routing | undefined {
    return this.#joined?.routing;
  }

  /** Every host of the fleet, this one first; none before this host has joined. */
  view(): readonly MemberView[] {
    return this.#fleet?.view() ?? [];
  }

  async #listen(serve: Serve): Promise<MemberListener> {
    const { config, tls } = this.#options;
    const { fleet, listen, limits } = config;
    return await MemberListener.listen({
      host: listen.host,
      port: fleet.port,
      tls: memberTls(tls, fleet.tls.name),
      connectionsMax: limits.connectionsMax,
      stallMs: limits.bodyTimeoutMs,
      greet: (hello) => this.#fleet?.greet(hello) ?? { refused: 'it is starting' },
      serve,
    });
  }

  #nameAt(port: number): string {
    const { fleet, listen } = this.#options.config;
    return fleet.advertise ?? `${reachableName(listen.host)}:${port}`;
  }

  #route({ store, live }: HostParts, membership: Membership, listener: MemberListener): Routing {
    const { config, tls, logger } = this.#options;
    const fleet: Fleet = new Fleet({
      fleet: config.fleet.name ?? '',
      membership,
      listener,
      tls: memberTls(tls, config.fleet.tls.name),
      onMembers: () => {
        this.#tellNews.look(fleet.view());
        routing.membersChanged();
      },
      onLost: (host) => this.#tellNews.lost(host),
      log: logger,
    });
    this.#fleet = fleet;
    const routing = new Routing({ fleet, store, live, onHome: (name) => store.bring(name) });
    return routing;
  }

  #report({ url, live, statistics, store }: HostParts, name: string): MemberReport {
    const { config, hostVersion } = this.#options;
    const { cores } = config.cpu;
    const gpus = live.gpus.length;
    const isInFleet = config.fleet.name !== undefined;
    return {
      kind: 'host',
      fleet: config.fleet.name,
      title: isInFleet ? name : new URL(url).host,
      url: isInFleet ? clientsUrl(url, new URL(`tcp://${name}`).hostname) : url,
      hostVersion,
      draining: this.#fleet?.isDraining ?? false,
      cores,
      gpus,
      inFlight: statistics.requestsInFlight,
      waiting: live.waitingCount,
      backlogMs: 0,
      functions: heldVersions(store),
    };
  }
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

function heldVersions(store: DiskModelStore): number {
  let count = 0;
  for (const name of store.names()) {
    for (const { state } of store.versions(name)) if (state.status !== 'elsewhere') count++;
  }
  return count;
}
