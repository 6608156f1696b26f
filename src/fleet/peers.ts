/** Connections to the other hosts: kept links, signed requests, round-trip times, and detection of sick hosts. */
import {
  Agent,
  request as httpRequest,
  type ClientRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
} from 'node:http';
import { Agent as SecureAgent, request as httpsRequest } from 'node:https';
import type { Socket } from 'node:net';
import type { Message } from '../tensor/index.ts';
import { smoothed } from '../tools/index.ts';
import { CallClient, linkNonceHeader, linkTarget } from './call-link.ts';
import type { Seal } from './seal.ts';
import type { Member } from './types.ts';

/** Interval of measuring the round trip to a host. */
const measureEveryMs = 1000;
/** A host without an answer for this long is sick. */
const pingTimeoutMs = 2000;
/** Idle connections for calls that are kept to a host. */
const freeLinksMax = 64;
/** Weight of a new measurement. */
const weight = 0.3;

/** The connection to a host broke: it is unknown what happened to the request there. */
export class PeerLost extends Error {
  override readonly name = 'PeerLost';
}

export interface PeerRequestOptions {
  readonly method: 'GET' | 'POST' | 'CONNECT';
  readonly path: string;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: readonly Uint8Array[];
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
}

export type PeerReply = Awaited<ReturnType<Peers['send']>>;

interface Way {
  readonly id: string;
  roundTripMs: number | undefined;
  /** Why it does not answer; undefined: it does. */
  trouble: string | undefined;
  /** Requests and calls without a reply yet. */
  readonly open: Set<ClientRequest | CallClient>;
  /** Idle connections, the most recently used at the end. */
  readonly free: CallClient[];
}

export interface PeersOptions {
  /** Certificates (PEM) to check those of the other hosts with; undefined: Node's own. */
  readonly ca?: string | undefined;
  /** Of this host. */
  readonly name: string;
  readonly seal: Seal;
  /** Milliseconds by Redis' clock. */
  readonly nowMs: () => number;
  readonly members: () => readonly Member[];
}

export class Peers {
  readonly #options: PeersOptions;
  readonly #agent = new Agent({ keepAlive: true, maxFreeSockets: 64, noDelay: true });
  readonly #secureAgent = new SecureAgent({ keepAlive: true, maxFreeSockets: 64, noDelay: true });
  readonly #ways = new Map<string, Way>();
  #timer: NodeJS.Timeout | undefined;

  constructor(options: PeersOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#measureAll(), measureEveryMs);
    this.#timer.unref();
    this.#measureAll();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#agent.destroy();
    this.#secureAgent.destroy();
    for (const way of this.#ways.values()) this.#lose(way, 'this host has stopped');
  }

  roundTripMs(name: string): number | undefined {
    return this.#ways.get(name)?.roundTripMs;
  }

  /** Why a host must not be asked now; undefined: it answers. */
  trouble({ name, id }: Member): string | undefined {
    const way = this.#ways.get(name);
    return way?.id === id ? way.trouble : undefined;
  }

  /** A call there was lost: the host gets no more calls until it answers a measurement. */
  failed(member: Member, reason: string): void {
    this.#lose(this.#way(member), reason);
  }

  /** @throws PeerLost if no complete reply came */
  async send(to: Member, options: PeerRequestOptions) {
    const incoming = await this.open(to, options);
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of incoming as AsyncIterable<Buffer>) chunks.push(chunk);
    } catch (error) {
      throw lost(to, error);
    }
    if (!incoming.complete) throw lost(to, new Error('the connection broke within the reply'));
    const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    return { status: incoming.statusCode ?? 0, headers: incoming.headers, body };
  }

  /** Resolves with the reply's headers; its body is still to be read. @throws PeerLost */
  open(to: Member, options: PeerRequestOptions): Promise<IncomingMessage> {
    const { body = [], signal } = options;
    return new Promise((resolve, reject) => {
      const outgoing = this.#request(to, options, to.url.startsWith('https:') ? this.#secureAgent : this.#agent);
      outgoing.once('response', resolve);
      outgoing.once('error', (error) => reject(signal?.aborted === true ? error : lost(to, error)));
      for (const part of body) outgoing.write(part);
      outgoing.end();
    });
  }

  /** Runs a call there: one frame each way. @throws PeerLost */
  async pass(to: Member, call: Message<object>, signal: AbortSignal | undefined): Promise<Message<object>> {
    const way = this.#way(to);
    let link = way.free.pop();
    while (link?.isUp === false) link = way.free.pop();
    try {
      link ??= await this.#link(to, signal);
      way.open.add(link);
      const answer = await link.ask(call, signal);
      if (way.trouble === undefined && way.free.length < freeLinksMax) way.free.push(link);
      else link.destroy(new Error('it is not needed any more'));
      return answer;
    } catch (error) {
      throw signal?.aborted === true ? error : lost(to, error);
    } finally {
      if (link !== undefined) way.open.delete(link);
    }
  }

  /** A connection for calls. */
  #link(to: Member, signal: AbortSignal | undefined): Promise<CallClient> {
    return new Promise((resolve, reject) => {
      const outgoing = this.#request(
        to,
        { method: 'CONNECT', path: linkTarget, timeoutMs: pingTimeoutMs, signal },
        false,
      );
      outgoing.once('connect', ({ statusCode, headers }: IncomingMessage, socket: Socket, head: Buffer) => {
        const nonce = headers[linkNonceHeader];
        const authorization = String(outgoing.getHeader('Authorization'));
        if (statusCode === 200 && typeof nonce === 'string') {
          resolve(new CallClient(socket, head, this.#options.seal.linkSeals('client', authorization, nonce)));
        } else {
          socket.destroy();
          reject(new Error(`it answers CONNECT with status ${statusCode}`));
        }
      });
      outgoing.once('error', reject);
      outgoing.end();
    });
  }

  /** A signed request, given up when the host is lost. */
  #request(
    to: Member,
    { method, path, headers, body = [], timeoutMs, signal }: PeerRequestOptions,
    agent: Agent | SecureAgent | false,
  ): ClientRequest {
    const { name, seal, nowMs, ca } = this.#options;
    const isSecure = to.url.startsWith('https:');
    const { hostname, port } = new URL(to.url);
    const bytes = body.reduce((sum, { byteLength }) => sum + byteLength, 0);
    const outgoing = (isSecure ? httpsRequest : httpRequest)({
      host: hostname.replace(/^\[(.*)\]$/, '$1'),
      port,
      method,
      path,
      agent,
      headers: {
        ...headers,
        'Content-Length': bytes,
        Authorization: seal.authorization(name, { to: to.name, method, path }, body, nowMs()),
      },
      ...(ca === undefined ? {} : { ca }),
      ...(signal === undefined ? {} : { signal }),
    });
    const { open } = this.#way(to);
    open.add(outgoing);
    outgoing.once('close', () => open.delete(outgoing));
    if (timeoutMs !== undefined) {
      outgoing.setTimeout(timeoutMs, () => outgoing.destroy(new Error(`no answer within ${timeoutMs} ms`)));
    }
    return outgoing;
  }

  #measureAll(): void {
    const members = this.#options.members();
    const names = new Set(members.map(({ name }) => name));
    for (const [name, way] of this.#ways) {
      if (names.has(name)) continue;
      this.#lose(way, 'it is gone');
      this.#ways.delete(name);
    }
    for (const member of members) void this.#measure(member);
  }

  async #measure(member: Member): Promise<void> {
    const way = this.#way(member);
    const sentMs = performance.now();
    try {
      const { status } = await this.send(member, { method: 'GET', path: '/v2/fleet/ping', timeoutMs: pingTimeoutMs });
      if (status !== 200) throw new PeerLost(`it answers with status ${status}`);
      const ms = performance.now() - sentMs;
      way.roundTripMs = smoothed(way.roundTripMs, ms, weight);
      way.trouble = undefined;
    } catch (error) {
      this.#lose(way, error instanceof Error ? error.message : String(error));
    }
  }

  /** Requests to a host that does not answer would wait long. */
  #lose(way: Way, reason: string): void {
    way.trouble = reason;
    for (const each of [...way.open, ...way.free.splice(0)]) each.destroy(new Error(`it does not answer: ${reason}`));
  }

  #way({ name, id }: Member): Way {
    const known = this.#ways.get(name);
    if (known?.id === id) return known;
    for (const link of known?.free ?? []) link.destroy(new Error('the host has started anew'));
    const way = { id, roundTripMs: known?.roundTripMs, trouble: undefined, open: new Set<never>(), free: [] };
    this.#ways.set(name, way);
    return way;
  }
}

/** Node's error codes for a certificate with an unknown signer. */
const untrusted: ReadonlySet<string> = new Set([
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'CERT_SIGNATURE_FAILURE',
]);

function lost({ name }: Member, cause: unknown): PeerLost {
  const { code } = cause as NodeJS.ErrnoException;
  const words = cause instanceof Error ? cause.message || (code ?? cause.name) : String(cause);
  const reason = untrusted.has(code ?? '') ? `no certificate in "fleet.caFile" vouches for its own (${words})` : words;
  return new PeerLost(`host ${name} was lost: ${reason}`, { cause });
}
