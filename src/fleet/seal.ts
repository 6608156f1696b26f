/**
 * Authentication within a fleet: HMACs with the fleet's secret, over the values in Redis and over each request between
 * hosts. Without the secret nobody can pose as a host.
 */
import { createHash, createHmac, createSecretKey, randomBytes, timingSafeEqual, type KeyObject } from 'node:crypto';
import type { ChannelSeals } from '../process/index.ts';
import type { FrameSeal } from '../tensor/index.ts';

const scheme = 'Turntable-Fleet';
/** A request signed longer ago, by Redis' clock, is refused. */
const signedForMs = 60_000;

/** `to`: name of the destination host. */
export type PeerRequest = { readonly to: string; readonly method: string; readonly path: string };

/** The sender of a request, and the SHA-256 that its body must have. */
export type PeerSender = { readonly from: string; readonly bodySha256: string };

export class Seal {
  readonly #fleet: string;
  readonly #secret: string;
  /** Random id of this process; with a counter appended, no two of its requests have the same nonce. */
  readonly #id = randomBytes(6).toString('hex');
  #signed = 0;
  readonly #taken = new TakenOnce(2 * signedForMs);

  constructor(fleet: string, secret: string) {
    this.#fleet = fleet;
    this.#secret = secret;
  }

  /** The text with its MAC in front. `place` says where it is stored, so that it is valid nowhere else. */
  sealed(place: string, text: string): string {
    return `${this.#mac('text', place, text)}.${text}`;
  }

  /** The text; undefined if it was written without the secret, or for another place. */
  opened(place: string, sealed: string): string | undefined {
    const at = sealed.indexOf('.');
    const text = sealed.slice(at + 1);
    return at !== -1 && isSame(sealed.slice(0, at), this.#mac('text', place, text)) ? text : undefined;
  }

  /** The Authorization header of a request to another host. @param nowMs by Redis' clock */
  authorization(from: string, request: PeerRequest, body: readonly Uint8Array[], nowMs: number): string {
    const hash = createHash('sha256');
    for (const part of body) hash.update(part);
    const signed = `${Math.round(nowMs)} ${this.#id}${(this.#signed++).toString(16)} ${hash.digest('hex')}`;
    return `${scheme} ${encodeURIComponent(from)} ${signed} ${this.#requestMac(from, request, signed)}`;
  }

  /**
   * The sender of a request with this header, which is accepted once. A process does not know which requests an earlier one
   * has accepted, so it refuses those from before its own start.
   *
   * @param nowMs by Redis' clock, as is `startedMs`
   */
  sender(
    header: string,
    request: PeerRequest,
    nowMs: number,
    startedMs: number,
  ): PeerSender | { readonly refused: string } {
    const [, encoded = '', signed = '', mac = ''] =
      /^\S+ (\S+) (\d{1,16} [0-9a-f]{1,32} [0-9a-f]{64}) ([0-9a-f]{64})$/.exec(header) ?? [];
    const from = decoded(encoded);
    if (from === undefined || !isSame(mac, this.#requestMac(from, request, signed))) {
      return { refused: `it was not signed with the secret of fleet '${this.#fleet}' for host ${request.to}` };
    }
    const [atMs = '', , bodySha256 = ''] = signed.split(' ');
    if (Math.abs(nowMs - Number(atMs)) > signedForMs) return { refused: 'it was signed too long ago' };
    if (Number(atMs) < startedMs) return { refused: 'it was signed before this host started: send it again' };
    if (!this.#taken.take(mac, nowMs)) return { refused: 'it has come before' };
    return { from, bodySha256 };
  }

  /**
   * MACs after each frame of a connection for calls, with a key of that connection alone, derived from both hosts'
   * nonces. So a frame is valid once, at its position, and an answer comes from the other host itself.
   *
   * @param authorization of the request that opened it
   * @param nonce of the host that accepted it
   */
  linkSeals(end: 'client' | 'server', authorization: string, nonce: string): ChannelSeals {
    const [sent, taken] = ['client', 'server'].map((by) => {
      const key = createSecretKey(Buffer.from(this.#mac('link', by, `${authorization} ${nonce}`), 'hex'));
      return new FrameMacs(key);
    });
    const [out, incoming] = end === 'client' ? [sent!, taken!] : [taken!, sent!];
    return { incoming, outgoing: (frame) => out.next(frame) };
  }

  #requestMac(from: string, { to, method, path }: PeerRequest, signed: string): string {
    return this.#mac('request', from, `${to} ${signed} ${method} ${path}`);
  }

  #mac(kind: 'text' | 'request' | 'link', place: string, text: string): string {
    return createHmac('sha256', this.#secret)
      .update(JSON.stringify([this.#fleet, kind, place]))
      .update(text)
      .digest('hex');
  }
}

/** MACs of frames in their order. */
class FrameMacs implements FrameSeal {
  readonly bytes = 32;
  readonly #key: KeyObject;
  #count = 0;

  constructor(key: KeyObject) {
    this.#key = key;
  }

  next(frame: readonly Uint8Array[]): Buffer {
    const mac = createHmac('sha256', this.#key).update(`${this.#count++} `);
    for (const part of frame) mac.update(part);
    return mac.digest();
  }

  check(frame: Uint8Array, seal: Uint8Array): void {
    if (!timingSafeEqual(this.next([frame]), seal)) throw new Error('a frame was not sealed by the other host');
  }
}

/** Received signatures, for as long as they would be valid. */
class TakenOnce {
  readonly #forMs: number;
  /** Their first 52 bits: as numbers they take a tenth of the memory. */
  #now = new Set<number>();
  #before = new Set<number>();
  #turnedMs = -Infinity;

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** Returns whether it is the first time. */
  take(mac: string, nowMs: number): boolean {
    if (Math.abs(nowMs - this.#turnedMs) > this.#forMs) {
      [this.#before, this.#now, this.#turnedMs] = [this.#now, new Set(), nowMs];
    }
    const bits = Number.parseInt(mac.slice(0, 13), 16);
    if (this.#now.has(bits) || this.#before.has(bits)) return false;
    this.#now.add(bits);
    return true;
  }
}

/** Whether a request claims to come from a host of a fleet. */
export function isFromFleet(authorization: string | undefined): authorization is string {
  return authorization?.startsWith(`${scheme} `) === true;
}

function decoded(text: string): string | undefined {
  try {
    return text === '' ? undefined : decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Comparison in constant time. */
function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.byteLength === b.byteLength && timingSafeEqual(a, b);
}
