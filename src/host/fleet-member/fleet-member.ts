/** This host as one of a fleet: puts the fleet's parts together with the host's own. */
import type { Logger } from 'pino';
import { Fleet } from '../../fleet/index.ts';
import { loadRedisQueue } from '../../queue/index.ts';
import type { HostConfig } from '../config.ts';
import { HostError } from '../errors.ts';
import type { LiveScheduler } from '../live/index.ts';
import { reachable } from '../queueing/index.ts';
import type { Statistics } from '../statistics.ts';
import type { Registry } from '../types.ts';

export interface FleetMemberOptions {
  readonly config: HostConfig;
  /** As `fleetSecret` gives it. */
  readonly secret: string;
  readonly hostVersion: string;
  readonly registry: Registry;
  readonly live: LiveScheduler;
  readonly statistics: Statistics;
  readonly logger: Logger;
}

export class FleetMember {
  readonly #options: FleetMemberOptions;
  #fleet: Fleet | undefined;

  constructor(options: FleetMemberOptions) {
    this.#options = options;
  }

  /** @throws HostError 'not-ready' before the host listens */
  get fleet(): Fleet {
    if (this.#fleet === undefined)
      throw new HostError('not-ready', 'the host is starting and has not joined its fleet yet');
    return this.#fleet;
  }

  /** Joins. `url` is where this host listens. Where Redis is away it joins as soon as that is back. */
  async start(url: string): Promise<void> {
    const { config, secret, logger, hostVersion, live, statistics } = this.#options;
    const { fleet: settings, redis, queue, listen, cpu } = config;
    if (settings?.name === undefined || redis.url === undefined) throw new Error('a host without a fleet joined one');
    const { RedisLink } = await loadRedisQueue();
    const link = new RedisLink({ url: redis.url, prefix: redis.prefix });
    const fleet = new Fleet({
      link,
      fleet: settings.name,
      secret,
      url: settings.advertise ?? queue.hostUrl ?? reachable(url, listen.host),
      report: () => ({
        url: settings.advertise ?? queue.hostUrl ?? reachable(url, listen.host),
        protocol: 1,
        hostVersion,
        cores: cpu.cores,
        gpus: live.gpus.length,
        inFlight: statistics.requestsInFlight,
        waiting: live.waitingCount,
        functions: this.#functions(),
      }),
      log: logger,
    });
    this.#fleet = fleet;
    await link.ready(firstAnswerMs).catch(() => undefined); // It is told of by who keeps the queue.
    await fleet.start();
  }

  /** The others hear that it goes. */
  async stopping(): Promise<void> {
    await this.#fleet?.stopping();
  }

  async close(): Promise<void> {
    await this.#fleet?.close();
    this.#fleet?.link.close();
  }

  #functions(): number {
    const { registry } = this.#options;
    return registry.names().reduce((sum, name) => sum + registry.versions(name).length, 0);
  }
}

/** Redis may be a moment behind when all are started together. */
const firstAnswerMs = 1000;
