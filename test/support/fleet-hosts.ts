/** Hosts of one fleet in this process, with their own Redis. */
import { join } from 'node:path';
import { RedisServer } from './redis-server.ts';
import { startReluHost, type ReluHost } from './relu-host.ts';

export interface FleetReply {
  readonly fleet: string;
  readonly redis: { readonly status: string };
  readonly hosts: readonly {
    readonly name: string;
    readonly self: boolean;
    readonly state: string;
    readonly functions: number;
    readonly round_trip_ms: number | null;
  }[];
}

export class FleetHosts implements AsyncDisposable {
  readonly redis: RedisServer;
  readonly hosts: ReluHost[] = [];

  private constructor(redis: RedisServer) {
    this.redis = redis;
  }

  static async start(count: number): Promise<FleetHosts> {
    const fleet = new FleetHosts(await RedisServer.start({ durable: true }));
    try {
      for (let index = 0; index < count; index++) await fleet.add();
    } catch (error) {
      await fleet[Symbol.asyncDispose]();
      throw error;
    }
    return fleet;
  }

  async add({ flags = {} }: { readonly flags?: Readonly<Record<string, string>> } = {}): Promise<ReluHost> {
    const host = await startReluHost([], {
      flags: {
        'redis.url': this.redis.url,
        'fleet.name': 'lab',
        'fleet.port': '0',
        'store.place': join(this.redis.folder, 'store'),
        'cpu.cores': '1',
        'cpu.profiling': 'off',
        'gpu.use': 'off',
        ...flags,
      },
    });
    this.hosts.push(host);
    await learnName(host);
    return host;
  }

  async stop(host: ReluHost): Promise<void> {
    this.hosts.splice(this.hosts.indexOf(host), 1);
    await host[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.hosts.map(async (host) => await host[Symbol.asyncDispose]()));
    await this.redis[Symbol.asyncDispose]();
  }
}

const names = new Map<string, string>();

/** Asks a host for its name in the fleet, for {@link nameOf}. */
export async function learnName(host: { readonly url: string }): Promise<void> {
  const self = (await fleetOf(host)).hosts.find((each) => each.self);
  if (self !== undefined) names.set(host.url, self.name);
}

/** The name of a host of a fleet: where the other hosts reach it. */
export const nameOf = ({ url }: { readonly url: string }): string => names.get(url) ?? url;

export async function fleetOf({ url }: { readonly url: string }): Promise<FleetReply> {
  return (await (await fetch(`${url}/v2/fleet`)).json()) as FleetReply;
}

/** States by name, as the host sees them. */
export async function statesAt(host: { readonly url: string }): Promise<Record<string, string>> {
  return Object.fromEntries((await fleetOf(host)).hosts.map(({ name, state }) => [name, state]));
}
