/** The connections to Redis: one for commands, which fails at once while Redis is away, and others that wait for it. */
import { isIP } from 'node:net';
import { Redis, type RedisOptions } from 'ioredis';
import { probeRedis } from './redis-probe.ts';
import { parseRedisUrl, redisUrlForm } from './redis-url.ts';
import { durableSettings, readRedisFacts, redisCost, redisWorks, refusesWrites } from './redis-health.ts';
import type { RedisFacts, RedisHealth, RedisTrouble } from './redis-health.ts';
import { QueueError } from './types.ts';
import { doneWithin, given, type Log } from '../tools/index.ts';

/** A command without an answer for this long has failed: a server may be reachable and stuck. */
const commandTimeoutMs = 3000;

export interface RedisLinkOptions {
  /** `redis://`, `rediss://` or `unix://`. */
  readonly url: string;
  /** Prefix of all keys, so that several systems can share one server. */
  readonly prefix: string;
  /** Gets a warning for each change of what Redis evicts, and of its settings about loss. */
  readonly log?: Log;
  readonly lookEveryMs?: number;
}

const reconnectMsMax = 1000;
const lookEveryMs = 60_000;

/** Replies as ioredis gives them by default. */
type ConnectionOptions = Omit<RedisOptions, 'replyMapping'>;

export class RedisLink {
  readonly prefix: string;
  /** Without Redis its commands reject at once, because callers wait for them. */
  readonly commands: Redis;
  readonly #options: RedisLinkOptions;
  readonly #listeners = new Set<(health: RedisHealth, before: RedisHealth) => void>();
  readonly #opened: Redis[] = [];
  readonly #timer: NodeJS.Timeout;
  /** The next look at a full Redis. */
  #soon: NodeJS.Timeout | undefined;
  #health: RedisHealth = { status: 'down', sinceMs: Date.now(), reason: 'it has not been reached yet' };
  #facts: RedisFacts | undefined;
  #lastError: string | undefined;
  /**
   * Redis' clock minus performance.now(), in milliseconds: deadlines travel between machines. This machine's wall clock
   * is not used, since it may be changed.
   */
  #clockAheadMs = performance.timeOrigin;
  /** Redis is reachable but refuses: its memory is full, it is a replica, a user without rights, a server that is loading its files. */
  #refuses: Exclude<RedisTrouble, 'evicting'> | undefined;
  #closed = false;

  constructor(options: RedisLinkOptions) {
    this.#options = options;
    this.prefix = options.prefix;
    this.commands = this.#open({
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      commandTimeout: commandTimeoutMs,
    });
    this.commands.on('connect', () => void this.#askWhetherLoading());
    this.commands.on('error', (error: Error) => {
      if (!isRefusal(error)) this.#refuses = undefined;
      this.#lastError = error.message === '' ? String((error as NodeJS.ErrnoException).code) : error.message;
      if (!this.works) this.#away();
    });
    this.commands.on('ready', () => void this.#look());
    this.commands.on('close', () => {
      if (this.works) this.#away();
    });
    this.#timer = setInterval(() => void this.#look(), options.lookEveryMs ?? lookEveryMs).unref();
  }

  get health(): RedisHealth {
    return this.#health;
  }

  get works(): boolean {
    return redisWorks(this.#health);
  }

  /** What Redis said of itself when it was last asked. */
  get facts(): RedisFacts | undefined {
    return this.#facts;
  }

  /** Throws {@link QueueError} `unavailable` unless Redis can be asked now. A full one can be read, and refuses writes. */
  check(): void {
    if ((this.works || this.#health.status === 'full') && this.commands.status === 'ready') return;
    throw this.failure(undefined);
  }

  /** The error of a failed command, as its caller gets it. */
  failure(error: unknown): QueueError {
    if (isSilence(error)) this.#lookSoon();
    const refusal = isRefusal(error) ? refusalOf(error) : this.#refuses && this.#lastError;
    const text = refusal === undefined ? 'does not answer' : `refuses: ${refusal}`;
    return new QueueError('unavailable', `Redis at ${this.address} ${text}`, { cause: error });
  }

  /** The server's address, without user and password. */
  get address(): string {
    return redisAddress(this.#options.url);
  }

  /** Calls the listener at every change of the status; returns a function that ends that. */
  onHealth(listener: (health: RedisHealth, before: RedisHealth) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Calls the listener when Redis begins to work, and when it ceases to; returns a function that ends that. */
  onChange(listener: (works: boolean) => void): () => void {
    return this.onHealth((health, before) => {
      if (redisWorks(health) !== redisWorks(before)) listener(redisWorks(health));
    });
  }

  /** Resolves once Redis answers; rejects when it does not within `timeoutMs`. */
  async ready(timeoutMs: number): Promise<void> {
    if (await doneWithin(timeoutMs, this.#until(true))) return;
    const { message } = this.failure(undefined);
    const reason = this.#refuses !== undefined || this.#health.status === 'up' ? '' : `: ${this.#health.reason}`;
    throw new QueueError('unavailable', message + reason);
  }

  /** Resolves once Redis is away; at once if it is. */
  async away(): Promise<void> {
    await this.#until(false);
  }

  async #until(wanted: boolean): Promise<void> {
    if (this.works === wanted) return;
    await new Promise<void>((resolve) => {
      const end = this.onChange(() => {
        end();
        resolve();
      });
    });
  }

  /** Opens one more connection, whose commands wait until Redis is back; BullMQ's workers need that. */
  waiting(): Redis {
    return this.#open({ maxRetriesPerRequest: null });
  }

  key(...parts: readonly string[]): string {
    return [this.prefix, ...parts].join(':');
  }

  /** Converts an instant of this process (performance.now()) to milliseconds since 1970 by Redis' clock. */
  toShared(instantMs: number): number {
    return instantMs + this.#clockAheadMs;
  }

  fromShared(sharedMs: number): number {
    return sharedMs - this.#clockAheadMs;
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
    clearTimeout(this.#soon);
    for (const connection of this.#opened) connection.disconnect();
    this.#listeners.clear();
  }

  #open(options: ConnectionOptions): Redis {
    const all: ConnectionOptions = {
      ...redisOptions(this.#options.url),
      ...options,
      connectTimeout: 5000,
      retryStrategy: (times: number) => {
        if (this.#closed) return null;
        return this.#refuses === undefined ? Math.min(times * 50, reconnectMsMax) : reconnectMsMax;
      },
      // The former primary, say; by now the address may lead to the new one.
      reconnectOnError: (error: Error) => {
        const refusal = refusesWrites(error);
        if (refusal === undefined) return false;
        this.#refuse(error);
        // A full one is the right one still, and can be read.
        return refusal !== 'full';
      },
    };
    const connection = new Redis(all);
    // The connection for commands reports each loss once; without a listener ioredis would write it to the console.
    connection.on('error', () => undefined);
    this.#opened.push(connection);
    return connection;
  }

  #change(health: RedisHealth): void {
    const before = this.#health;
    this.#health = health.status === before.status ? { ...health, sinceMs: before.sinceMs } : health;
    if (this.#closed || health.status === before.status) return;
    for (const listener of this.#listeners) listener(health, before);
  }

  /** Redis does not work, for the reason that was met last. */
  #away(): void {
    const reason = this.#lastError ?? 'the connection was closed';
    this.#change({ status: this.#refuses ?? 'down', sinceMs: Date.now(), reason });
  }

  #refuse(error: Error): void {
    this.#refuses = refusesWrites(error) ?? 'down';
    this.#lastError = refusalOf(error);
    if (this.#refuses === 'full') this.#lookSoon();
    if (!this.works || this.#refuses === 'full') this.#away();
  }

  /** Whether a full Redis has room again, and whether one that was silent is stuck. */
  #lookSoon(): void {
    this.#soon ??= setTimeout(() => {
      this.#soon = undefined;
      void this.#look();
    }, reconnectMsMax).unref();
  }

  /** After each start of a connection, and every minute, Redis is asked what it is and whether it runs what calls run. */
  async #look(): Promise<void> {
    if (this.commands.status !== 'ready') return;
    try {
      await this.#begin();
      this.#compare(await readRedisFacts(this.commands).catch(() => this.#facts));
    } catch (error) {
      if (isRefusal(error)) this.#refuse(error);
      else if (isSilence(error)) this.#lastError = `no answer within ${commandTimeoutMs} ms`;
      else if (this.works) return; // Its connection reports that it ends.
      if (this.#refuses !== 'full') this.commands.disconnect(true);
    }
  }

  /** Says what has changed since the last look. */
  #compare(facts: RedisFacts | undefined): void {
    if (this.commands.status !== 'ready') return; // Redis went away while it was asked.
    const before = this.#facts;
    this.#facts = facts;
    const evicted = facts?.evictedKeys ?? 0;
    const policy = facts?.settings.get('maxmemory-policy');
    const isEvicting = before !== undefined && evicted > 0 && evicted !== before.evictedKeys;
    const reason = `it has evicted ${evicted} keys, ${before?.evictedKeys} at the last look; maxmemory-policy is ${policy}`;
    this.#change({ status: isEvicting ? 'evicting' : 'up', sinceMs: Date.now(), reason });
    const { log } = this.#options;
    for (const { name, wanted, otherwise } of durableSettings) {
      const [value = wanted, was = wanted] = [facts, before].map((each) => each?.settings.get(name));
      if (value === was) continue;
      if (value === wanted) log?.info({ setting: name, value }, `Redis has ${name} ${value} again`);
      else log?.warn({ setting: name, value }, `Redis ${otherwise}: set ${name} ${wanted}`);
    }
    if (isEvicting) log?.warn({ redis: this.address, evictedKeys: evicted, policy }, redisCost(this.#health) ?? '');
  }

  /** ioredis waits silently for a server that loads its files after a start, which may take minutes. */
  async #askWhetherLoading(): Promise<void> {
    try {
      if (/^loading:1/m.test(await this.commands.info('persistence')))
        this.#refuse(new Error('it is loading its data'));
    } catch {
      // Other problems are reported when the connection becomes ready, or breaks.
    }
  }

  /** Finds out whether Redis can be used. */
  async #begin(): Promise<void> {
    const { db } = redisOptions(this.#options.url);
    // ioredis has selected it already, but ignores the error if there is no such database, and uses the first.
    if (db !== undefined) await this.commands.select(db);
    await probeRedis(this.commands, this.prefix);
    await this.#readClock();
    this.#refuses = undefined;
    this.#lastError = undefined;
  }

  async #readClock(): Promise<void> {
    const sentMs = performance.now();
    const [seconds, microseconds] = await this.commands.time();
    const redisMs = Number(seconds) * 1000 + Number(microseconds) / 1000;
    this.#clockAheadMs = redisMs - (sentMs + performance.now()) / 2;
  }
}

/** Host and port, or the socket's path, without user and password. */
export function redisAddress(url: string): string {
  const { protocol, pathname, hostname, port } = new URL(url);
  return protocol === 'unix:' ? pathname : `${hostname}:${port || '6379'}`;
}

/** A connection with these options besides those of the URL. */
export function openRedis(url: string, options: ConnectionOptions): Redis {
  return new Redis({ ...redisOptions(url), ...options });
}

function redisOptions(url: string): ConnectionOptions {
  const place = parseRedisUrl(url);
  if (place === undefined) throw new Error(`the address of Redis is not ${redisUrlForm}`);
  const { at, username, password, database } = place;
  const all = given({ username, password, db: database });
  if ('path' in at) return { path: at.path, ...all };
  const { host, port, tls } = at;
  return { host, port, ...all, ...(tls ? { tls: isIP(host) === 0 ? { servername: host } : {} } : {}) };
}

/** Whether Redis took a command, and did not answer: a stopped process, or a network that drops what it is sent. */
const isSilence = (error: unknown): boolean => error instanceof Error && error.message === 'Command timed out';

/** Whether Redis answered, with an error. */
export function isRefusal(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}

/** The reason in Redis' words; a transaction's error only says that one of its commands failed. */
export function refusalOf(error: Error): string {
  const [first] = (error as { readonly previousErrors?: readonly Error[] }).previousErrors ?? [];
  return (first ?? error).message.replace(/ script: .*$/, '');
}
