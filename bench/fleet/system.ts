/**
 * Three hosts of one fleet over TLS with two emulated GPUs each, two workers, Redis over TLS and their store, all of which
 * can fail.
 */
import { once } from 'node:events';
import { readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { buildEmulatedDriver, type EmulatedDriver } from '../../test/emulated-driver/build.ts';
import { emulatedEnvironment } from '../../test/support/emulator.ts';
import { makeMemberCertificate } from '../../src/cli/member-certificate.ts';
import { waitLimitMs } from '../../test/time-limits.ts';
import { RedisServer } from '../../test/support/redis-server.ts';
import { childPids, freePort, projectRoot, Servers, type StartedServer } from '../servers.ts';

const endMsMax = waitLimitMs;
const settleMsMax = waitLimitMs;

export class FleetSystem implements AsyncDisposable {
  readonly redis: RedisServer;
  readonly urls: readonly string[];
  readonly hasGpus: boolean;
  /** Of every host. */
  pems = { cert: '', key: '', ca: '' };
  readonly #redisUrl: string;
  readonly #servers: Servers;
  readonly #driver: EmulatedDriver | undefined;
  readonly #workers: StartedServer[] = [];
  readonly #fleetPorts: readonly number[];
  readonly #hosts: (StartedServer | undefined)[];
  /** By host, odd while it is down: a call during which it changed had no living host. */
  readonly #epochs: number[];

  private constructor(
    servers: Servers,
    redis: { readonly server: RedisServer; readonly url: string },
    driver: EmulatedDriver | undefined,
    allPorts: number[],
  ) {
    const ports = allPorts.slice(0, allPorts.length / 2);
    this.#fleetPorts = allPorts.slice(ports.length);
    this.#servers = servers;
    this.redis = redis.server;
    this.#redisUrl = redis.url;
    this.#driver = driver;
    this.hasGpus = driver !== undefined;
    this.urls = ports.map((port) => `http://127.0.0.1:${port}`);
    this.#hosts = ports.map(() => undefined);
    this.#epochs = ports.map(() => 0);
  }

  /** @param release folder of a checkout; default: this one */
  static async start(hosts: number, workers: number, release = projectRoot): Promise<FleetSystem> {
    const servers = await Servers.create();
    const files = await makeMemberCertificate({ folder: join(servers.folder, 'tls'), names: ['127.0.0.1'], days: 2 });
    const port = await freePort();
    const server = await RedisServer.start({ durable: true, tls: { port, ...files } });
    const redis = { server, url: `rediss://127.0.0.1:${port}` };
    const ports: number[] = [];
    while (ports.length < 2 * hosts) ports.push(await freePort());
    const system = new FleetSystem(servers, redis, await buildEmulatedDriver(), ports);
    system.useRelease(release);
    try {
      await servers.makeFolder('functions');
      const [cert, key, ca] = await Promise.all(
        [files.cert, files.key, files.ca].map(async (file) => await readFile(file, 'utf8')),
      );
      system.pems = { cert: cert!, key: key!, ca: ca! };
      await Promise.all(system.urls.map(async (_, index) => await system.#start(index)));
      for (let index = 0; index < workers; index++) await system.startWorker(index);
      await system.settled();
    } catch (error) {
      await system[Symbol.asyncDispose]();
      throw error;
    }
    return system;
  }

  /** For files of the benchmark. */
  get folder(): string {
    return this.#servers.folder;
  }

  epochOf(host: number): number {
    return this.#epochs[host]!;
  }

  async killHost(host: number): Promise<void> {
    this.#epochs[host]!++;
    await ended(this.#hosts[host]!, 'SIGKILL');
  }

  /** As an operator replaces one: the balancer leaves it out, it drains, and ends when its calls are answered. */
  async endHost(host: number): Promise<void> {
    this.#epochs[host]!++;
    const name = encodeURIComponent(`127.0.0.1:${this.#fleetPorts[host]}`);
    await fetch(`${this.urls[host]}/v2/fleet/hosts/${name}/drain`, { method: 'POST' });
    await ended(this.#hosts[host]!, 'SIGTERM');
  }

  async endWorker(index: number): Promise<void> {
    await ended(this.#workers[index]!, 'SIGTERM');
  }

  /** Hosts and workers that are started from now on are of the checkout in this folder. */
  useRelease(folder: string): void {
    this.#servers.program = join(folder, 'bin', 'turntable.js');
  }

  async restartHost(host: number): Promise<void> {
    await this.#start(host);
    this.#epochs[host]!++;
  }

  async startWorker(index: number): Promise<void> {
    const store = ['--store', join(this.folder, 'store')];
    const flags = ['--redis', this.#redisUrl, '--cores', '1', ...store];
    this.#workers[index] = await this.#servers.startWorker(`worker-${index}`, flags, [], this.#trust);
  }

  async killWorker(index: number): Promise<void> {
    await ended(this.#workers[index]!, 'SIGKILL');
  }

  /** A host that does not run: its clients wait, and the others take it for lost. */
  async stopHost(host: number, forMs: number): Promise<void> {
    const { process: child } = this.#hosts[host]!;
    child.kill('SIGSTOP');
    try {
      await delay(forMs);
    } finally {
      child.kill('SIGCONT');
    }
  }

  /** As when a folder is not mounted. */
  async takeStoreAway(forMs: number): Promise<void> {
    const store = join(this.folder, 'store');
    await rename(store, `${store}-away`);
    try {
      await delay(forMs);
    } finally {
      await rename(`${store}-away`, store);
    }
  }

  /** Resolves to whether there was one. */
  async killGpuProcess(host: number): Promise<boolean> {
    const [pid] = await childPids(this.#hosts[host]!.process, 'gpu/process/main');
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
    return pid !== undefined;
  }

  /** Resolves when every host sees all others and Redis as up. */
  async settled(): Promise<void> {
    const lateMs = performance.now() + settleMsMax;
    for (const url of this.urls) {
      for (;;) {
        const reply = await fetch(`${url}/v2/fleet`).catch(() => undefined);
        const view = (await reply?.json().catch(() => undefined)) as View | undefined;
        const isUp = view?.redis?.status === 'up' && view.hosts?.every(({ state }) => state === 'up');
        if (isUp === true && view?.hosts?.length === this.urls.length) break;
        if (performance.now() > lateMs)
          throw new Error(`the host ${url} does not know all others again: ${JSON.stringify(view)}`);
        await delay(20); // Hosts emit no event here for what they hear from each other.
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#servers[Symbol.asyncDispose]();
    await this.redis[Symbol.asyncDispose]();
  }

  async #start(host: number): Promise<void> {
    const flags = ['--port', new URL(this.urls[host]!).port, '--grpc-port', 'off', '--cpu-cores', '1'];
    flags.push('--cpu-profiling', 'off', '--data', join(this.#servers.folder, `data-${host}`));
    flags.push('--redis', this.#redisUrl, '--fleet', 'bench', '--store', join(this.#servers.folder, 'store'));
    const tls = join(this.#servers.folder, 'tls');
    flags.push('--fleet-tls-cert', join(tls, '127.0.0.1.pem'), '--fleet-tls-key', join(tls, '127.0.0.1.key'));
    flags.push('--fleet-tls-ca', join(tls, 'ca.pem'), '--fleet-port', String(this.#fleetPorts[host]), '--drain', '2s');
    const gpu = { memoryBytes: 2 ** 26 };
    const environment = this.#driver && emulatedEnvironment(this.#driver, [gpu, gpu]);
    this.#hosts[host] = await this.#servers.startHost(flags, { ...this.#trust, ...environment });
  }

  /** Redis' certificate is one of the fleet's CA. */
  get #trust(): Readonly<Record<string, string>> {
    return { NODE_EXTRA_CA_CERTS: join(this.#servers.folder, 'tls', 'ca.pem') };
  }
}

/** Ends a process, and waits until it has ended. */
async function ended({ process: child }: StartedServer, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit', { signal: AbortSignal.timeout(endMsMax) });
  child.kill(signal);
  await exit;
}

interface View {
  readonly redis?: { readonly status: string };
  readonly hosts?: readonly { readonly state: string }[];
}
