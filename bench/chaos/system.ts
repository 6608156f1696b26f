/** The system under test: two hosts (one with emulated GPUs), workers, Redis and a small disk. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { buildEmulatedDriver, type EmulatedDriver } from '../../test/emulated-driver/build.ts';
import { emulatedEnvironment } from '../../test/support/emulator.ts';
import { waitLimitMs } from '../../test/time-limits.ts';
import { redisMissing, RedisServer } from '../../test/support/redis-server.ts';
import { childPids, descendants, freePort, instancePids, Servers, type StartedServer } from '../servers.ts';
import { SmallDisk } from './disk.ts';
import { busyGraph, echoHandler, sumGraph } from './models.ts';
import { faultKinds, type Fault, type FaultKind } from './plan.ts';

export type HostName = 'host' | 'gpu-host';

const diskMebibytes = 96;
const stalledClients = 20;
/** Limit for a process that is told to end, and for its children. */
const endMsMax = waitLimitMs;
/** Tries of a remount, 20 ms apart: publications have files open for writing most of the time. */
const readOnlyTries = 1000;
const gpuFunctions = 'gpu-functions';
/**
 * In each function.json. All are longer than any fault: an answer that a limit was exceeded would be right, but a lost
 * call.
 */
const timeouts = { load: '90s', infer: '90s', handler: '90s' };

interface Address {
  readonly url: string;
  readonly port: number;
  readonly grpcPort: number;
}

export class System implements AsyncDisposable {
  readonly redis: RedisServer | undefined;
  /** Called before and after Redis forgets everything. */
  onFlush: () => void = () => undefined;
  readonly #servers: Servers;
  readonly #disk: SmallDisk | undefined;
  readonly #driver: EmulatedDriver | undefined;
  readonly #workers: readonly string[];
  readonly #addresses: Readonly<Record<HostName, Address>>;
  readonly #processes = new Map<string, StartedServer>();
  /** Odd while a host is down. A call during which it changed had no living host. */
  readonly #epochs: Record<HostName, number> = { host: 0, 'gpu-host': 0 };

  private constructor(parts: {
    readonly servers: Servers;
    readonly redis: RedisServer | undefined;
    readonly disk: SmallDisk | undefined;
    readonly driver: EmulatedDriver | undefined;
    readonly workers: number;
    readonly addresses: Readonly<Record<HostName, Address>>;
  }) {
    this.#servers = parts.servers;
    this.redis = parts.redis;
    this.#disk = parts.disk;
    this.#driver = parts.driver;
    this.#workers = Array.from(
      { length: parts.redis === undefined ? 0 : parts.workers },
      (_, index) => `worker${index}`,
    );
    this.#addresses = parts.addresses;
  }

  static async start(workers: number): Promise<System> {
    const servers = await Servers.create();
    const system = new System({
      servers,
      redis: redisMissing === undefined ? await RedisServer.start({ durable: true }) : undefined,
      disk: await SmallDisk.mount(join(servers.folder, 'data'), diskMebibytes),
      driver: await buildEmulatedDriver(),
      workers,
      addresses: { host: await freeAddress(), 'gpu-host': await freeAddress() },
    });
    try {
      await servers.addFunction('busy', busyGraph(), { slo: '1s', timeouts });
      await servers.addFunction('light', sumGraph(0), { slo: '1s', timeouts });
      await servers.addFunction('echo', sumGraph(0), { slo: '1s', timeouts, handler: 'handler.js' });
      await writeFile(join(servers.folder, 'functions', 'echo', 'handler.js'), echoHandler);
      await servers.addFunction('sum', sumGraph(0), { slo: '5s', timeouts }, gpuFunctions);
      await system.#startHost('host');
      const starting = system.#workers.map((name) => system.#startWorker(name));
      if (system.hasGpus) starting.push(system.#startHost('gpu-host'));
      await Promise.all(starting);
    } catch (error) {
      await system[Symbol.asyncDispose]();
      throw error;
    }
    return system;
  }

  get hasGpus(): boolean {
    return this.#driver !== undefined;
  }

  get hosts(): readonly HostName[] {
    return this.hasGpus ? ['host', 'gpu-host'] : ['host'];
  }

  /** The faults that this machine allows, and why the others are missing. */
  possible(): { readonly kinds: readonly FaultKind[]; readonly missing: readonly string[] } {
    const missing: string[] = [];
    const without = new Set<FaultKind>();
    const leaveOut = (reason: string, isMeant: (kind: FaultKind) => boolean): void => {
      missing.push(reason);
      for (const kind of faultKinds) if (isMeant(kind)) without.add(kind);
    };
    if (this.#disk === undefined)
      leaveOut('a full or read-only disk: this user may not mount one', (kind) => kind.startsWith('disk'));
    if (!this.hasGpus) leaveOut('GPUs: there is no g++ for the emulated driver', (kind) => kind.startsWith('GPU'));
    if (this.redis === undefined)
      leaveOut('Redis and workers: redis-server is not installed', (kind) => /^Redis|^worker/.test(kind));
    return { kinds: faultKinds.filter((kind) => !without.has(kind)), missing };
  }

  addressOf(host: HostName): Address {
    return this.#addresses[host];
  }

  epochOf(host: HostName): number {
    return this.#epochs[host];
  }

  /** Injects a fault; resolves when it is over and whatever it ended runs again. */
  async inject({ kind, victim, holdMs, jumpMs }: Fault): Promise<void> {
    const worker = this.#workers[Math.floor(victim * this.#workers.length)] ?? '';
    switch (kind) {
      case 'instance killed':
        return signalOne(await instancePids(this.#child('host')), victim, 'SIGKILL');
      case "worker's instance killed":
        return signalOne(await instancePids(this.#child(worker)), victim, 'SIGKILL');
      case 'instance stopped':
        return await stopOne(await instancePids(this.#child('host')), victim, holdMs);
      case 'GPU process killed':
        return signalOne(await this.#gpuProcesses(), victim, 'SIGKILL');
      case 'GPU process stopped':
        return await stopOne(await this.#gpuProcesses(), victim, holdMs);
      case 'host killed':
        return await this.#restartHost('host');
      case 'host told to end':
        return await this.#restartHost('host', 'SIGTERM');
      case 'GPU host killed':
        return await this.#restartHost('gpu-host');
      case 'host stopped':
        return await stopOne([this.#child('host').pid!], 0, holdMs);
      case 'worker killed':
      case 'worker told to end':
        await this.#end(worker, kind === 'worker killed' ? 'SIGKILL' : 'SIGTERM');
        return await this.#startWorker(worker);
      case 'worker stopped':
        return await stopOne([this.#child(worker).pid!], 0, holdMs);
      case 'Redis killed':
      case 'Redis stopped':
      case 'Redis connections cut':
      case 'Redis flushed':
        return await this.#disturbRedis(kind, this.redis!, holdMs);
      case 'disk full':
        await this.#disk!.fill();
        await delay(holdMs);
        return await this.#disk!.empty();
      case 'disk read-only':
        return await this.#readOnly(holdMs);
      case 'clock jumped':
        await writeFile(this.#clockFile, String(jumpMs));
        this.#child('host').kill('SIGUSR2');
        return await delay(holdMs);
      case 'slow clients':
      case 'half clients':
        return await this.#stall(kind === 'slow clients', holdMs);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled([...this.#processes.keys()].map((name) => this.#end(name)));
    await this.redis?.[Symbol.asyncDispose]();
    await this.#disk?.[Symbol.asyncDispose]();
    await this.#servers[Symbol.asyncDispose]();
  }

  get #clockFile(): string {
    return join(this.#servers.folder, 'clock');
  }

  #child(name: string): StartedServer['process'] {
    return this.#processes.get(name)!.process;
  }

  async #gpuProcesses(): Promise<number[]> {
    return await childPids(this.#child('gpu-host'), 'gpu/process/main');
  }

  async #startHost(name: HostName): Promise<void> {
    const { port, grpcPort } = this.#addresses[name];
    const common = ['--port', String(port), '--grpc-port', String(grpcPort), '--cpu-cores', '1'];
    const redis = this.redis === undefined ? [] : ['--redis', this.redis.url, '--async-callback-allow', '127.0.0.1'];
    const gpuFolders = [
      '--data',
      join(this.#servers.folder, 'gpu-data'),
      '--functions',
      join(this.#servers.folder, gpuFunctions),
    ];
    const flags = name === 'host' ? ['--gpu-use', 'off', ...redis] : ['--gpu-offload', 'on-overload', ...gpuFolders];
    // As a URL: a blank in a path would end it, since the variable has no quotes.
    const clock = pathToFileURL(join(import.meta.dirname, 'clock.mjs')).href;
    const environment: Readonly<Record<string, string>> =
      name === 'host'
        ? { NODE_OPTIONS: `--import=${clock}`, CHAOS_CLOCK: this.#clockFile }
        : emulatedEnvironment(this.#driver!, [{ memoryBytes: 2 ** 26 }]);
    this.#processes.set(name, await this.#servers.startHost([...common, ...flags], environment));
  }

  async #startWorker(name: string): Promise<void> {
    const flags = ['--redis', this.redis!.url, '--cores', '1'];
    this.#processes.set(name, await this.#servers.startWorker(name, flags));
  }

  async #restartHost(name: HostName, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    this.#epochs[name]++;
    await this.#end(name, signal);
    await this.#startHost(name);
    this.#epochs[name]++;
  }

  /** Ends a process; its children must end by themselves. */
  async #end(name: string, signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child(name);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const started = await descendants(child.pid!);
    child.kill(signal);
    await once(child, 'exit', { signal: AbortSignal.timeout(endMsMax) });
    const lateMs = performance.now() + endMsMax;
    while (started.some(isThere)) {
      if (performance.now() > lateMs)
        throw new Error(`after ${signal} of ${name} a process that it had started lives on`);
      await delay(20);
    }
  }

  async #disturbRedis(kind: FaultKind & `Redis ${string}`, redis: RedisServer, holdMs: number): Promise<void> {
    switch (kind) {
      case 'Redis killed':
        await redis.kill();
        await delay(holdMs);
        return await redis.start();
      case 'Redis stopped':
        redis.signal('SIGSTOP');
        await delay(holdMs);
        return redis.signal('SIGCONT');
      case 'Redis connections cut':
        await redis.command('CLIENT KILL TYPE normal SKIPME yes');
        return;
      case 'Redis flushed':
        this.onFlush();
        await redis.command('FLUSHALL');
        return this.onFlush();
    }
  }

  async #readOnly(holdMs: number): Promise<void> {
    // The remount is refused while a file is open for writing.
    for (let tries = 0; ; tries++) {
      try {
        await this.#disk!.setWritable(false);
        break;
      } catch (error) {
        if (tries === readOnlyTries) throw error;
        await delay(20);
      }
    }
    await delay(holdMs);
    await this.#disk!.setWritable(true);
  }

  /** Clients that send part of a request. Slow: then nothing for a while; otherwise they close their side. */
  async #stall(isSlow: boolean, holdMs: number): Promise<void> {
    const { port } = this.#addresses.host;
    const parts = [
      'POST /function/busy HTTP/1.1\r\nHost: localhost\r\nContent-Le',
      'POST /function/busy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"input"',
      'PUT /functions/shelf HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nonnx',
      'GET /async-function/nobody HTTP/1.1\r\nHost: localhost\r\n\r\n',
    ];
    const sockets = Array.from({ length: stalledClients }, (_, index): Socket => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      const part = parts[index % parts.length]!;
      if (isSlow) socket.write(part);
      else socket.end(part);
      return socket;
    });
    await delay(holdMs);
    for (const socket of sockets) socket.destroy();
  }
}

async function freeAddress(): Promise<Address> {
  const port = await freePort();
  return { url: `http://127.0.0.1:${port}`, port, grpcPort: await freePort() };
}

/** Whether a process runs; a zombie does not. */
function isThere(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

function signalOne(pids: readonly number[], victim: number, signal: NodeJS.Signals): void {
  const pid = pids[Math.floor(victim * pids.length)];
  if (pid === undefined) return;
  try {
    process.kill(pid, signal);
  } catch {
    // It ended by itself.
  }
}

async function stopOne(pids: readonly number[], victim: number, holdMs: number): Promise<void> {
  signalOne(pids, victim, 'SIGSTOP');
  await delay(holdMs);
  signalOne(pids, victim, 'SIGCONT');
}
