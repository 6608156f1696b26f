/** Connections to the other members: kept ones for requests, round-trip times, and detection of sick members. */
import type { Message } from '../tensor/index.ts';
import { smoothed } from '../tools/index.ts';
import { ConnectionClient } from './connection.ts';
import { connectionTrouble, connectTo, type MemberTls } from './tls.ts';
import { fleetFormat, type Greeting, type Hello, type Member } from './types.ts';

/** Interval of measuring the round trip to a member. */
const measureEveryMs = 1000;
/** A member without an answer for this long is sick. */
const pingTimeoutMs = 2000;
/** Idle connections that are kept to a member. */
const freeMax = 64;
/** Weight of a new measurement. */
const weight = 0.3;

/** The connection to a member broke: it is unknown what happened to the request there. */
export class PeerLost extends Error {
  override readonly name = 'PeerLost';
}

interface Way {
  readonly id: string;
  roundTripMs: number | undefined;
  /** Why it does not answer; undefined: it does. */
  trouble: string | undefined;
  /** Connections with a request. */
  readonly open: Set<ConnectionClient>;
  /** Idle connections, the most recently used at the end. */
  readonly free: ConnectionClient[];
}

export interface PeersOptions {
  /** Undefined: plain TCP, on this machine. */
  readonly tls: MemberTls | undefined;
  readonly fleet: string;
  /** Of this member. */
  readonly name: string;
  /** Default: that of this release. */
  readonly format?: number | undefined;
  readonly members: () => readonly Member[];
}

export class Peers {
  readonly #options: PeersOptions;
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
    for (const way of this.#ways.values()) this.#lose(way, 'this host has stopped');
  }

  roundTripMs(name: string): number | undefined {
    return this.#ways.get(name)?.roundTripMs;
  }

  /** Why a member must not be asked now; undefined: it answers. */
  trouble({ name, id }: Member): string | undefined {
    const way = this.#ways.get(name);
    return way?.id === id ? way.trouble : undefined;
  }

  /** A call there was lost: the member gets no more calls until it answers a measurement. */
  failed(member: Member, reason: string): void {
    this.#lose(this.#way(member), reason);
  }

  /** Why a report is not that of the member at its address; undefined: it is, and its certificate names it. */
  async confirm(member: Member): Promise<string | undefined> {
    try {
      (await this.#connect(member)).destroy(new Error('it is not needed any more'));
      return undefined;
    } catch (error) {
      return connectionTrouble(error);
    }
  }

  /** Asks a member: one frame each way. @throws PeerLost */
  async ask(
    to: Member,
    request: Message<object>,
    { signal, timeoutMs }: { readonly signal?: AbortSignal | undefined; readonly timeoutMs?: number } = {},
  ): Promise<Message<object>> {
    const way = this.#way(to);
    let connection = way.free.pop();
    while (connection?.isUp === false) connection = way.free.pop();
    try {
      connection ??= await this.#connect(to, signal);
      way.open.add(connection);
      const answer = await connection.ask(request, signal, timeoutMs);
      if (way.trouble === undefined && way.free.length < freeMax) way.free.push(connection);
      else connection.destroy(new Error('it is not needed any more'));
      return answer;
    } catch (error) {
      if (signal?.aborted === true) throw error;
      throw new PeerLost(`host ${to.name} was lost: ${connectionTrouble(error)}`, { cause: error });
    } finally {
      if (connection !== undefined) way.open.delete(connection);
    }
  }

  /** A connection to a member that has greeted this one. */
  async #connect({ name, id }: Member, signal?: AbortSignal): Promise<ConnectionClient> {
    const { tls, fleet, name: from, format = fleetFormat } = this.#options;
    const connection = new ConnectionClient(connectTo(name, tls));
    const hello: Hello = { fleet, format, from, to: name };
    const { header } = await connection.ask({ header: hello, tensors: [] }, signal, pingTimeoutMs);
    const greeting = header as Greeting;
    const problem =
      'refused' in greeting ? greeting.refused : greeting.id === id ? undefined : 'another host answers at its address';
    if (problem === undefined) return connection;
    const error = new Error(problem);
    connection.destroy(error);
    throw error;
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
    try {
      // A handshake is no part of the way.
      if (way.free.length === 0) way.free.push(await this.#connect(member));
      const sentMs = performance.now();
      await this.ask(member, { header: { ask: 'ping' }, tensors: [] }, { timeoutMs: pingTimeoutMs });
      way.roundTripMs = smoothed(way.roundTripMs, performance.now() - sentMs, weight);
      way.trouble = undefined;
    } catch (error) {
      this.#lose(way, connectionTrouble(error instanceof PeerLost ? error.cause : error));
    }
  }

  /** Requests to a member that does not answer would wait long. */
  #lose(way: Way, reason: string): void {
    way.trouble = reason;
    for (const each of [...way.open, ...way.free.splice(0)]) each.destroy(new Error(`it does not answer: ${reason}`));
  }

  #way({ name, id }: Member): Way {
    const known = this.#ways.get(name);
    if (known?.id === id) return known;
    for (const each of known?.free ?? []) each.destroy(new Error('the host has started anew'));
    const way = { id, roundTripMs: known?.roundTripMs, trouble: undefined, open: new Set<never>(), free: [] };
    this.#ways.set(name, way);
    return way;
  }
}
