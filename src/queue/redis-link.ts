/** The connections to Redis: one for commands, which fails at once while Redis is away, and others that wait for it. */
import { isIP } from 'node:net';
import { Redis, type RedisOptions } from 'ioredis';
import { probeRedis } from './redis-probe.ts';
import { parseRedisUrl, redisUrlForm } from './redis-url.ts';
import { QueueError, type QueueHealth } from './types.ts';
import { doneWithin, given } from '../tools/index.ts';

export interface RedisLinkOptions {
  /** `redis://`, `rediss://` or `unix://`. */
  readonly url: string;
  /** Prefix of all keys, so that several systems can share one server. */
  readonly prefix: string;
  /** A command without an answer for this long has failed: a server may be reachable and stuck. */
  readonly commandTimeoutMs?: number;
}

const reconnectMsMax = 1000;

/** Replies as ioredis gives them by default. */
type ConnectionOptions = Omit<RedisOptions, 'replyMapping'>;

export class RedisLink {
  readonly prefix: string;
  /** Without Redis its commands reject at once, because callers wait for them. */
  readonly commands: Redis;
  readonly #options: RedisLinkOptions;
  readonly #listeners = new Set<(health: QueueHealth) => void>();
  readonly #opened: Redis[] = [];
  #health: QueueHealth = { status: 'down', sinceMs: Date.now(), reason: 'it has not been reached yet' };
  #lastError: string | undefined;
  /**
   * Redis' clock minus performance.now(), in milliseconds: deadlines travel between machines. This machine's wall clock
   * is not used, since it may be changed.
   */
  #clockAheadMs = performance.timeOrigin;
  /** Redis is reachable but refuses writes: a replica, a user without rights, a server that is loading its files. */
  #refuses = false;
  #closed = false;

  constructor(options: RedisLinkOptions) {
    this.#options = options;
    this.prefix = options.prefix;
    this.commands = this.#open({
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      commandTimeout: options.commandTimeoutMs ?? 3000,
    });
    this.commands.on('connect', () => void this.#askWhetherLoading());
    this.commands.on('error', (error: Error) => {
      if (!isRefusal(error)) this.#refuses = false;
      this.#lastError = error.message === '' ? String((error as NodeJS.ErrnoException).code) : error.message;
      if (this.#health.status === 'down') this.#health = { ...this.#health, reason: this.#lastError };
    });
    this.commands.on('ready', () => {
      this.#begin().then(
        () => this.#change({ status: 'up', sinceMs: Date.now() }),
        (error: unknown) => {
          if (isRefusal(error)) this.#refuse(error);
          this.commands.disconnect(true);
        },
      );
    });
    this.commands.on('close', () => {
      if (this.#health.status === 'up') {
        const reason = this.#lastError ?? 'the connection was closed';
        this.#change({ status: 'down', sinceMs: Date.now(), reason });
      }
    });
  }

  get health(): QueueHealth {
    return this.#health;
  }

  /** Throws {@link QueueError} `unavailable` unless Redis can be used now. */
  check(): void {
    if (this.#health.status === 'up' && this.commands.status === 'ready') return;
    throw this.failure(undefined);
  }

  /** The error of a failed command, as its caller gets it. */
  failure(error: unknown): QueueError {
    const refusal = isRefusal(error) ? refusalOf(error) : this.#refuses ? this.#lastError : undefined;
    const text = refusal === undefined ? 'does not answer' : `refuses: ${refusal}`;
    return new QueueError('unavailable', `Redis at ${this.address} ${text}`, { cause: error });
  }

  /** The server's address, without user and password. */
  get address(): string {
    return redisAddress(this.#options.url);
  }

  /** Calls the listener at every change of the health; returns a function that ends that. */
  onChange(listener: (health: QueueHealth) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Resolves once Redis answers; rejects when it does not within `timeoutMs`. */
  async ready(timeoutMs: number): Promise<void> {
    if (await doneWithin(timeoutMs, this.#until('up'))) return;
    const { message } = this.failure(undefined);
    const reason = this.#refuses || this.#health.status === 'up' ? '' : `: ${this.#health.reason}`;
    throw new QueueError('unavailable', message + reason);
  }

  /** Resolves once Redis is away; at once if it is. */
  async away(): Promise<void> {
    await this.#until('down');
  }

  async #until(wanted: QueueHealth['status']): Promise<void> {
    if (this.#health.status === wanted) return;
    await new Promise<void>((resolve) => {
      const end = this.onChange(({ status }) => {
        if (status !== wanted) return;
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
        return this.#refuses ? reconnectMsMax : Math.min(times * 50, reconnectMsMax);
      },
      // The former primary; by now the address may lead to the new one.
      reconnectOnError: (error: Error) => {
        const isReplica = error.message.startsWith('READONLY');
        if (isReplica) this.#refuse(error);
        return isReplica;
      },
    };
    const connection = new Redis(all);
    // The connection for commands reports each loss once; without a listener ioredis would write it to the console.
    connection.on('error', () => undefined);
    this.#opened.push(connection);
    return connection;
  }

  #change(health: QueueHealth): void {
    if (health.status === 'up' && this.commands.status !== 'ready') return; // Redis went away while its clock was being read.
    this.#health = health;
    if (this.#closed) return;
    for (const listener of this.#listeners) listener(health);
  }

  #refuse(error: Error): void {
    this.#refuses = true;
    this.#lastError = refusalOf(error);
    if (this.#health.status === 'down') this.#health = { ...this.#health, reason: this.#lastError };
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
    this.#refuses = false;
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

/** Whether Redis answered, with an error. */
export function isRefusal(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}

/** The reason in Redis' words; a transaction's error only says that one of its commands failed. */
export function refusalOf(error: Error): string {
  const [first] = (error as { readonly previousErrors?: readonly Error[] }).previousErrors ?? [];
  return (first ?? error).message.replace(/ script: .*$/, '');
}
