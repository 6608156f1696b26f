/**
 * Hosts that stopped reporting without leaving. They are shown as lost until they are back, an operator forgets them,
 * or a day has passed. They are stored in Redis, so every host shows the same ones and a restart forgets none; if Redis
 * loses its data, they are written again.
 *
 *     PREFIX:fleet:NAME:lost   hash, host -> its sealed LostHost
 */
import type { RedisLink } from '../queue/index.ts';
import type { Seal } from './seal.ts';
import type { Member } from './types.ts';

const keptMs = 24 * 3_600_000;
/** The latest are kept; hosts' addresses may be new at each start. */
const keptMax = 64;

export interface LostHost {
  /** As it reported last. */
  readonly member: Member;
  /** When it was lost, by Redis' clock. */
  readonly atMs: number;
  /** An operator has hidden it. The entry is kept, so that a host that has not heard of that does not bring it back. */
  readonly isForgotten: boolean;
}

export class LostHosts {
  readonly #link: RedisLink;
  readonly #key: string;
  readonly #seal: Seal;
  readonly #hosts = new Map<string, LostHost>();

  constructor(link: RedisLink, key: string, seal: Seal) {
    this.#link = link;
    this.#key = key;
    this.#seal = seal;
  }

  /** The hosts to show, the latest first. */
  list(): readonly LostHost[] {
    return [...this.#hosts.values()].filter((host) => !host.isForgotten).sort((a, b) => b.atMs - a.atMs);
  }

  find(name: string): LostHost | undefined {
    const host = this.#hosts.get(name);
    return host?.isForgotten === false ? host : undefined;
  }

  async add(member: Member, atMs: number): Promise<void> {
    // Without its offer changes, which may be many.
    const { generation } = member.offers;
    await this.#write({ member: { ...member, offers: { generation } }, atMs, isForgotten: false });
  }

  async forget(host: LostHost): Promise<void> {
    await this.#write({ ...host, isForgotten: true });
  }

  /** @param present names of hosts that report: they are not lost any more. */
  async read(present: ReadonlySet<string>, nowMs: number): Promise<void> {
    const { commands } = this.#link;
    const texts = await commands.hgetall(this.#key);
    const away: string[] = [];
    for (const [name, text] of Object.entries(texts)) {
      const host = this.#opened(name, text);
      if (host === undefined) away.push(name);
      else this.#hosts.set(name, host);
    }
    const byAge = [...this.#hosts].sort(([, a], [, b]) => b.atMs - a.atMs);
    for (const [index, [name, host]] of byAge.entries()) {
      if (present.has(name) || nowMs - host.atMs > keptMs || index >= keptMax) {
        this.#hosts.delete(name);
        if (texts[name] !== undefined) away.push(name);
      } else if (texts[name] === undefined) await this.#write(host);
    }
    if (away.length > 0) await commands.hdel(this.#key, ...away);
  }

  async #write(host: LostHost): Promise<void> {
    const { name } = host.member;
    this.#hosts.set(name, host);
    await this.#link.commands.hset(this.#key, name, this.#seal.sealed(`lost ${name}`, JSON.stringify(host)));
  }

  #opened(name: string, sealed: string): LostHost | undefined {
    const text = this.#seal.opened(`lost ${name}`, sealed);
    return text === undefined ? undefined : (JSON.parse(text) as LostHost);
  }
}
