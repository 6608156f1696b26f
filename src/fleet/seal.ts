/**
 * What the hosts of a fleet trust each other by: HMACs with the fleet's secret, over what stands in Redis and over each
 * request between hosts. Whoever lacks the secret can neither pose as a host nor put a function into the registry.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';

const scheme = 'Turntable-Fleet';
/** A request that was signed longer ago, by Redis' clock, is not taken. */
const signedForMs = 60_000;

export type PeerRequest = { readonly method: string; readonly path: string };

export class Seal {
  readonly #fleet: string;
  readonly #secret: string;

  constructor(fleet: string, secret: string) {
    this.#fleet = fleet;
    this.#secret = secret;
  }

  /** The text with its mac in front. `place` says where it stands, so that it counts nowhere else. */
  sealed(place: string, text: string): string {
    return `${this.#mac('text', place, text)}.${text}`;
  }

  /** The text; undefined where somebody without the secret wrote it, or it was written for another place. */
  opened(place: string, sealed: string): string | undefined {
    const at = sealed.indexOf('.');
    const text = sealed.slice(at + 1);
    return at !== -1 && isSame(sealed.slice(0, at), this.#mac('text', place, text)) ? text : undefined;
  }

  /** The Authorization header of a request to another host. @param nowMs by Redis' clock */
  authorization(from: string, { method, path }: PeerRequest, nowMs: number): string {
    const atMs = Math.round(nowMs);
    return `${scheme} ${encodeURIComponent(from)} ${atMs} ${this.#mac('request', from, `${atMs} ${method} ${path}`)}`;
  }

  /** Name of the host that sent a request with this header. */
  sender(header: string, { method, path }: PeerRequest, nowMs: number): string | { readonly refused: string } {
    const [, encoded = '', atMs = '', mac = ''] = /^\S+ (\S+) (\d{1,16}) ([0-9a-f]{64})$/.exec(header) ?? [];
    const from = decoded(encoded);
    if (from === undefined || !isSame(mac, this.#mac('request', from, `${atMs} ${method} ${path}`))) {
      return { refused: `it was not signed with the secret of fleet '${this.#fleet}'` };
    }
    if (Math.abs(nowMs - Number(atMs)) > signedForMs) return { refused: 'it was signed too long ago' };
    return from;
  }

  #mac(kind: 'text' | 'request', place: string, text: string): string {
    return createHmac('sha256', this.#secret)
      .update(JSON.stringify([this.#fleet, kind, place]))
      .update(text)
      .digest('hex');
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

/** In a time that says nothing of where they differ. */
function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.byteLength === b.byteLength && timingSafeEqual(a, b);
}
