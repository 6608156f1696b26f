/**
 * Whose address a connection or a request has, and how many connections may be open: over HTTP and gRPC together, so that
 * the host can still open files, and of one address, so that nobody has all of them.
 */
import { isIP, type Server, type Socket } from 'node:net';
import { inNetworks, networkOf } from '../../tools/index.ts';
import { rateLimit } from '../access/rate-limit.ts';
import { HostError } from '../errors.ts';

export const doors = ['http', 'grpc'] as const;
export type Door = (typeof doors)[number];

/**
 * Connections that may wait to be accepted. If more arrive at once, Linux lets clients wait for a second or resets
 * their connections. Linux lowers this to its own limit, `net.core.somaxconn`; Node's default is 511.
 */
export const backlog = 4096;

/** Why connections are refused: too many of them, too many of one address, too few files left, or streams reset. */
type Reason = 'limit' | 'address' | 'files' | 'resets';

/**
 * Streams that one address may open and reset in one go, a second. A client that gives up a call does so after it has
 * waited; these cost the host their opening and their client nothing, and HTTP/2's limit of streams does not count them.
 */
const resetsPerSecond = 100;

/** A refused client may still send its request, and is told why; more of them are cut off at once. */
const refusedMax = 32;
const refusedMsMax = 1000;
const warnEveryMs = 60_000;
/** Files that connections leave to models, children and the log; of few files, an eighth. */
const filesLeftMin = 64;
const filesLeft = (filesMax: number): number => Math.min(filesLeftMin, Math.ceil(filesMax / 8));

export interface ConnectionsOptions {
  /** How many may be open. */
  readonly max: number;
  /** How many files this process may open; undefined: any number. */
  readonly filesMax: number | undefined;
  /** Addresses and networks whose word about a client's address is believed. */
  readonly trustedProxies: readonly string[];
  readonly warn: (facts: object, message: string) => void;
}

/** The parts of a socket that tell it from all others: HTTP/2 and TLS show other objects for it. */
type Ends = Pick<Socket, 'remoteAddress' | 'remotePort' | 'localPort'>;

export class Connections {
  /** Connections now, by door. */
  readonly open: Record<Door, number> = { http: 0, grpc: 0 };
  /** Connections refused so far. */
  readonly refusals: Record<Reason, number> = { limit: 0, address: 0, files: 0, resets: 0 };
  readonly #options: ConnectionsOptions;
  readonly #isProxy: (address: string) => boolean;
  /** Connections of each address, and requests that proxies pass on for it. */
  readonly #ofAddress = new Map<string, number>();
  readonly #refused = new Map<string, HostError>();
  readonly #resetLimit = rateLimit(resetsPerSecond);
  #counted = 0;
  #warnedAtMs = -Infinity;

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#isProxy = options.trustedProxies.length === 0 ? () => false : inNetworks(options.trustedProxies);
  }

  /** Counts the connections of a server, or refuses them. Those that it could not even accept are told of. */
  watch(server: Server, door: Door): void {
    server.on('connection', (socket: Socket) => this.#accept(socket, door));
    server.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EMFILE' || error.code === 'ENFILE') this.#count('files', outOfFiles(), undefined);
    });
  }

  /**
   * The client that a request comes from: an address of IPv4, or a network of IPv6. Of what a trusted proxy passes on it
   * is the last address that is no trusted proxy in `X-Forwarded-For`, or without that in `Forwarded`: each proxy adds the
   * one it talks to, and what stands before the last untrusted one may be made up.
   */
  addressOf(peer: string, header: (name: string) => string | undefined): string {
    return networkOf(this.#clientOf(peer, header));
  }

  #clientOf(peer: string, header: (name: string) => string | undefined): string {
    if (!this.#isProxy(peer)) return peer;
    const chain = forwardedFor(header('x-forwarded-for')) ?? forwardedFor(header('forwarded')) ?? [];
    let client = peer;
    for (const next of chain.reverse()) {
      if (next === undefined) break;
      client = next;
      if (!this.#isProxy(next)) break;
    }
    return client;
  }

  /**
   * A request of a client on a connection. What a trusted proxy passes on counts as a connection of its client until it
   * is over.
   *
   * @throws HostError 'too-many-connections'
   */
  admit(
    socket: Ends,
    header: (name: string) => string | undefined = () => undefined,
    onOver?: (over: () => void) => void,
  ): void {
    const { remoteAddress = '' } = socket;
    const refused = this.#refused.size === 0 ? undefined : this.#refused.get(nameOf(socket));
    if (refused !== undefined) throw refused;
    if (onOver === undefined || !this.#isProxy(remoteAddress)) return;
    const client = this.#clientOf(remoteAddress, header);
    // A proxy that asks for itself.
    if (this.#isProxy(client)) return;
    const address = networkOf(client);
    if (this.#isOverShare(address)) {
      const error = this.#tooManyOf(address);
      this.#count('address', error, address);
      throw error;
    }
    onOver(this.#share(address));
  }

  /** A stream of HTTP/2 was reset before the host could look at it. Returns why its connection ends, if it does. */
  countReset({ remoteAddress = '' }: Ends, nowMs: number): HostError | undefined {
    const address = networkOf(remoteAddress);
    if (this.#isProxy(remoteAddress) || this.#resetLimit(address, nowMs) === 0) return undefined;
    const text = `this address has reset more than ${resetsPerSecond} streams in a second as soon as it had opened them`;
    const error = new HostError('too-many-requests', text);
    this.#count('resets', error, address);
    return error;
  }

  #accept(socket: Socket, door: Door): void {
    const { remoteAddress = '' } = socket;
    const address = this.#isProxy(remoteAddress) ? undefined : networkOf(remoteAddress);
    this.open[door]++;
    socket.once('close', () => this.open[door]--);
    const [reason, error] = this.#whyNot(socket, address) ?? [];
    if (reason === undefined || error === undefined) {
      this.#counted++;
      const leave = address === undefined ? undefined : this.#share(address);
      socket.once('close', () => {
        this.#counted--;
        leave?.();
      });
      return;
    }
    this.#count(reason, error, address);
    const { filesMax = Infinity } = this.#options;
    const isLast = fileOf(socket) >= filesMax - filesLeft(filesMax) / 2;
    if (isLast || this.#refused.size >= refusedMax) socket.destroy();
    else this.#refuse(socket, error);
  }

  #whyNot(socket: Socket, address: string | undefined): [Reason, HostError] | undefined {
    const { max, filesMax = Infinity } = this.#options;
    if (this.#counted >= max) {
      const text = `${max} connections are open, which is this host's limit (limits.connections)`;
      return ['limit', new HostError('too-many-connections', text)];
    }
    if (address !== undefined && this.#isOverShare(address)) return ['address', this.#tooManyOf(address)];
    if (fileOf(socket) >= filesMax - filesLeft(filesMax)) return ['files', outOfFiles()];
    return undefined;
  }

  #isOverShare(address: string): boolean {
    return (this.#ofAddress.get(address) ?? 0) >= Math.ceil(this.#options.max / 2);
  }

  #tooManyOf(address: string): HostError {
    const open = this.#ofAddress.get(address) ?? 0;
    const text = `${open} connections of this address are open, half of this host's limit (limits.connections)`;
    return new HostError('too-many-connections', text);
  }

  /** Counts one for an address, until the returned function is called. */
  #share(address: string): () => void {
    this.#ofAddress.set(address, (this.#ofAddress.get(address) ?? 0) + 1);
    return () => {
      const left = this.#ofAddress.get(address)! - 1;
      if (left === 0) this.#ofAddress.delete(address);
      else this.#ofAddress.set(address, left);
    };
  }

  #refuse(socket: Socket, error: HostError): void {
    const name = nameOf(socket);
    const timer = setTimeout(() => socket.destroy(), refusedMsMax).unref();
    this.#refused.set(name, error);
    socket.once('close', () => {
      clearTimeout(timer);
      this.#refused.delete(name);
    });
  }

  #count(reason: Reason, { message }: HostError, address: string | undefined): void {
    this.refusals[reason]++;
    const nowMs = performance.now();
    if (nowMs - this.#warnedAtMs < warnEveryMs) return;
    this.#warnedAtMs = nowMs;
    const refusals = Object.values(this.refusals).reduce((sum, count) => sum + count, 0);
    this.#options.warn({ address, refusals }, `connections are refused: ${message}`);
  }
}

/** The kernel gives the lowest number that is free: all below are in use. Node does not document the field. */
function fileOf(socket: Socket): number {
  return (socket as { _handle?: { readonly fd?: number } | null })._handle?.fd ?? -1;
}

const outOfFiles = (): HostError =>
  new HostError('too-many-connections', 'the host has as many files open as it may (ulimit -n)');

const nameOf = ({ remoteAddress, remotePort, localPort }: Ends): string =>
  `${remoteAddress} ${remotePort} ${localPort}`;

/** The addresses of a header of proxies in their order, undefined for those that are none; undefined without a header. */
function forwardedFor(header: string | undefined): (string | undefined)[] | undefined {
  if (header === undefined || header.trim() === '') return undefined;
  return header.split(',').map((part) => {
    // `for="[2001:db8::1]:4711";proto=https` of Forwarded, `192.0.2.1` or `192.0.2.1:4711` of X-Forwarded-For.
    const text = /(?:^|;)\s*for\s*=\s*"?([^";]*)"?/i.exec(part)?.[1] ?? part;
    const bare = text.trim().replace(/^\[(.*)\](?::\d+)?$|^([\d.]+):\d+$/, '$1$2');
    return isIP(bare) === 0 ? undefined : bare;
  });
}
