/** The connections to Redis: one for commands, which fails at once while Redis is away, and others that wait for it. */
import { isIP } from 'node:net';
import { Redis, type RedisOptions } from 'ioredis';
import { parseRedisUrl, redisUrlForm } from './redis-url.ts';
import { QueueError, type QueueHealth } from './types.ts';
import { given } from '../tools/index.ts';

export interface RedisLinkOptions {
  /** `redis://`, `rediss://` or `unix://`. */
  readonly url: string;
  /** What all keys begin with, so that several systems can share one server. */
  readonly prefix: string;
  /** A command without an answer for this long has failed: a server may be reachable and stuck. */
  readonly commandTimeoutMs?: number;
}

const reconnectMsMax = 1000;

/** Replies as ioredis gives them by default. */
type ConnectionOptions = Omit<RedisOptions, 'replyMapping'>;

export class RedisLink {
  readonly prefix: string;
  /** Without Redis its commands reject at once, for there is somebody who waits. */
  readonly commands: Redis;
  readonly #options: RedisLinkOptions;
  readonly #listeners = new Set<(health: QueueHealth) => void>();
  readonly #opened: Redis[] = [];
  #health: QueueHealth = { status: 'down', sinceMs: Date.now(), reason: 'it has not been reached yet' };
  #lastError: string | undefined;
  /**
   * Redis' clock less performance.now(), in milliseconds: deadlines travel between machines. This machine's own clock
   * has no part in it, since somebody may set that.
   */
  #clockAheadMs = performance.timeOrigin;
  /** It is reached, and takes nothing: a replica, a user without rights, a server that reads its files. */
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

  /** What a failed command means for who waits for it. */
  failure(error: unknown): QueueError {
    const refusal = isRefusal(error) ? refusalOf(error) : this.#refuses ? this.#lastError : undefined;
    const text = refusal === undefined ? 'does not answer' : `refuses: ${refusal}`;
    return new QueueError('unavailable', `Redis at ${this.address} ${text}`, { cause: error });
  }

  /** Where the server is, without user and password. */
  get address(): string {
    return redisAddress(this.#options.url);
  }

  /** Tells every change of the health; the function that it gives back ends that. */
  onChange(listener: (health: QueueHealth) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Resolves once Redis answers; rejects when it does not within `timeoutMs`. */
  async ready(timeoutMs: number): Promise<void> {
    if (this.#health.status === 'up') return;
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        end();
        const { message } = this.failure(undefined);
        const reason = this.#refuses || this.#health.status === 'up' ? '' : `: ${this.#health.reason}`;
        reject(new QueueError('unavailable', message + reason));
      }, timeoutMs);
      const end = this.onChange((health) => {
        if (health.status !== 'up') return;
        clearTimeout(timer);
        end();
        resolve();
      });
    });
  }

  /** Resolves once Redis is away; at once where it is. */
  async away(): Promise<void> {
    if (this.#health.status === 'down') return;
    await new Promise<void>((resolve) => {
      const end = this.onChange(({ status }) => {
        if (status === 'up') return;
        end();
        resolve();
      });
    });
  }

  /** One more connection, whose commands wait until Redis is back; as BullMQ's workers want it. */
  waiting(): Redis {
    return this.#open({ maxRetriesPerRequest: null });
  }

  key(...parts: readonly string[]): string {
    return [this.prefix, ...parts].join(':');
  }

  /** Milliseconds since 1970 by Redis' clock, for an instant of this process (performance.now()). */
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
      // The one that was the primary; the address may lead to the new one by now.
      reconnectOnError: (error: Error) => {
        const isReplica = error.message.startsWith('READONLY');
        if (isReplica) this.#refuse(error);
        return isReplica;
      },
    };
    const connection = new Redis(all);
    // Each loss is told once, by the connection for commands; without a listener ioredis would write it to the console.
    connection.on('error', () => undefined);
    this.#opened.push(connection);
    return connection;
  }

  #change(health: QueueHealth): void {
    if (health.status === 'up' && this.commands.status !== 'ready') return; // It went away while its clock was read.
    this.#health = health;
    if (this.#closed) return;
    for (const listener of this.#listeners) listener(health);
  }

  #refuse(error: Error): void {
    this.#refuses = true;
    this.#lastError = refusalOf(error);
    if (this.#health.status === 'down') this.#health = { ...this.#health, reason: this.#lastError };
  }

  /** ioredis waits in silence for a server that reads its files after a start, which may take minutes. */
  async #askWhetherLoading(): Promise<void> {
    try {
      if (/^loading:1/m.test(await this.commands.info('persistence')))
        this.#refuse(new Error('it is loading its data'));
    } catch {
      // What else is wrong is told where the connection becomes ready, or breaks.
    }
  }

  /** Finds out whether it can be used. */
  async #begin(): Promise<void> {
    const { db } = redisOptions(this.#options.url);
    // ioredis has asked for it, and would go on in the first where there is no such database.
    if (db !== undefined) await this.commands.select(db);
    await this.commands.del(this.key('probe')); // A replica refuses what writes.
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

/** A connection with these options besides what the URL says. */
export function openRedis(url: string, options: ConnectionOptions): Redis {
  return new Redis({ ...redisOptions(url), ...options });
}

function redisOptions(url: string): ConnectionOptions {
  const place = parseRedisUrl(url);
  if (place === undefined) throw new Error(`the address of Redis is not ${redisUrlForm}`);
  const { at, username, password, database } = place;
  const all = {
    ...given({ username, password, db: database }),
  };
  if ('path' in at) return { path: at.path, ...all };
  const { host, port, tls } = at;
  return { host, port, ...all, ...(tls ? { tls: isIP(host) === 0 ? { servername: host } : {} } : {}) };
}

/** Whether Redis answered, and with an error. */
export function isRefusal(error: unknown): error is Error {
  return error instanceof Error && error.name === 'ReplyError';
}

/** Why, in Redis' words; a transaction's error only says that one of its commands had one. */
export function refusalOf(error: Error): string {
  const [first] = (error as { readonly previousErrors?: readonly Error[] }).previousErrors ?? [];
  return (first ?? error).message.replace(/ script: .*$/, '');
}
