/**
 * The fleet's members. Each host writes its report into Redis twice a second, under a key that expires, and reads those
 * of the others. While Redis is away the last known reports count, and dead hosts are detected by failing calls.
 */
import { randomBytes } from 'node:crypto';
import type { RedisLink } from '../queue/index.ts';
import type { Log } from '../tools/index.ts';
import type { Seal } from './seal.ts';
import type { HostReport, Member } from './types.ts';

/** A host that has been silent for this long is gone. */
export const reportEveryMs = 500;
export const goneAfterMs = 2500;
/** So long the others can read that a host has left. */
const saidForMs = 60_000;

export interface MembershipOptions {
  readonly link: RedisLink;
  readonly fleet: string;
  readonly seal: Seal;
  readonly report: () => HostReport;
  /** Of this host's reports; those of another one are not understood. */
  readonly format: number;
  /** Before each report. */
  readonly onSpeak: () => Promise<void>;
  /** A report of another host has arrived. */
  readonly onReport: (member: Member) => Promise<void>;
  /** A host came, went, or drains. */
  readonly onChange: () => void;
  /** Called before `onChange`: this host has just found that one gone. @param isLost it did not leave */
  readonly onGone: (member: Member, isLost: boolean) => void;
  readonly log: Log;
}

interface Heard {
  readonly member: Member;
  /** When its latest report arrived here (performance.now()). */
  readonly atMs: number;
}

export class Membership {
  readonly name: string;
  readonly #options: MembershipOptions;
  readonly #id = randomBytes(6).toString('hex');
  readonly #startedAtMs = Date.now();
  readonly #others = new Map<string, Heard>();
  /** Hosts that are excluded, and why; without the member if its secret differs. */
  readonly #strangers = new Map<string, { readonly why: string; readonly member: Member | undefined }>();
  #beat = 0;
  #upSinceMs = Infinity;
  #timer: NodeJS.Timeout | undefined;
  #underWay: Promise<void> | undefined;
  #endListening: (() => void) | undefined;
  #hasLeft = false;

  constructor(name: string, options: MembershipOptions) {
    this.name = name;
    this.#options = options;
  }

  /** Resolves after the first report, or at once if Redis is away. */
  async start(): Promise<void> {
    const { link } = this.#options;
    if (link.works) this.#upSinceMs = performance.now();
    this.#endListening = link.onChange((works) => {
      this.#upSinceMs = works ? performance.now() : Infinity;
      if (works) void this.speak();
    });
    this.#timer = setInterval(() => void this.speak(), reportEveryMs);
    await this.speak();
  }

  self(): Member {
    const { name } = this;
    return { ...this.#options.report(), name, id: this.#id, startedAtMs: this.#startedAtMs, beat: this.#beat };
  }

  /** The other hosts. */
  others(): readonly Member[] {
    return Array.from(this.#others.values(), ({ member }) => member);
  }

  find(name: string): Member | undefined {
    return this.#others.get(name)?.member;
  }

  /** Hosts with the fleet's secret, of a release with another format. */
  strangers(): readonly { readonly member: Member; readonly why: string }[] {
    return [...this.#strangers.values()].flatMap(({ member, why }) => (member === undefined ? [] : [{ member, why }]));
  }

  heardMsAgo(name: string): number {
    const heard = this.#others.get(name);
    if (this.#strangers.has(name)) return 0; // Else it is forgotten.
    return heard === undefined ? Infinity : performance.now() - heard.atMs;
  }

  /** Writes a report and reads those of the others; calls that come meanwhile share it. */
  async speak(): Promise<void> {
    this.#underWay ??= this.#exchange()
      .catch(() => undefined) // Redis went away, which its link reports; or the next report comes soon.
      .finally(() => {
        this.#underWay = undefined;
      });
    await this.#underWay;
  }

  async leave(): Promise<void> {
    this.#hasLeft = true;
    clearInterval(this.#timer);
    this.#endListening?.();
    await this.#underWay;
    const { link } = this.#options;
    if (!link.works) return;
    await link.commands
      .multi()
      .srem(this.#key('hosts'), this.name)
      .del(this.#key('host', this.name))
      .set(this.#key('left', this.name), this.#id, 'PX', saidForMs)
      .exec()
      .catch(() => undefined);
  }

  async #exchange(): Promise<void> {
    const { link, seal } = this.#options;
    if (!link.works || this.#hasLeft) return;
    await this.#options.onSpeak();
    this.#beat++;
    const text = seal.sealed(`host ${this.name}`, JSON.stringify(this.self()));
    await link.commands
      .multi()
      .sadd(this.#key('hosts'), this.name)
      .set(this.#key('host', this.name), text, 'PX', goneAfterMs)
      .exec();
    await this.#read();
  }

  async #read(): Promise<void> {
    const { link, onChange } = this.#options;
    const names = (await link.commands.smembers(this.#key('hosts'))).filter((name) => name !== this.name);
    const texts = names.length === 0 ? [] : await link.commands.mget(names.map((name) => this.#key('host', name)));
    let hasChanged = false;
    for (const [index, name] of names.entries()) {
      const text = texts[index];
      if (text === null || text === undefined) continue;
      const member = this.#memberOf(name, text);
      if (member === undefined) continue;
      const before = this.#others.get(name)?.member;
      if (before?.id === member.id && before.beat === member.beat) continue;
      this.#others.set(name, { member, atMs: performance.now() });
      await this.#options.onReport(member);
      hasChanged ||= before?.id !== member.id || before.draining !== member.draining || before.url !== member.url;
    }
    const present = new Set(names.filter((_, index) => typeof texts[index] === 'string'));
    for (const name of this.#strangers.keys()) if (!present.has(name)) this.#strangers.delete(name);
    for (const [name, { member }] of this.#others) {
      const isListed = names.includes(name);
      if (present.has(name) || !this.#isGone(name, isListed)) continue;
      // Whether its name is listed says nothing: the first host that finds it gone takes it off.
      const left = await link.commands.get(this.#key('left', name));
      this.#others.delete(name);
      hasChanged = true;
      this.#options.onGone(member, left !== member.id);
      await link.commands.srem(this.#key('hosts'), name);
    }
    if (hasChanged) onChange();
  }

  /** A host that left removed its name. So does a Redis that loses its data: then the next report decides. */
  #isGone(name: string, isListed: boolean): boolean {
    const sinceUpMs = performance.now() - this.#upSinceMs;
    return sinceUpMs > goneAfterMs && this.heardMsAgo(name) > (isListed ? goneAfterMs : 2 * reportEveryMs);
  }

  #memberOf(name: string, sealed: string): Member | undefined {
    const { seal, log, fleet, format } = this.#options;
    const text = seal.opened(`host ${name}`, sealed);
    const member = text === undefined ? undefined : (JSON.parse(text) as Member);
    if (member?.format === format) {
      this.#strangers.delete(name);
      return member;
    }
    const why =
      member === undefined
        ? 'it has another secret'
        : `its release has format ${member.format ?? 'of 0.1'} between hosts, and this host format ${format}`;
    if (this.#strangers.get(name)?.why !== why) {
      log.warn({ fleet, host: name, reason: why }, 'a host is left out of the fleet');
    }
    this.#strangers.set(name, { why, member });
    return undefined;
  }

  #key(...parts: readonly string[]): string {
    return this.#options.link.key('fleet', this.#options.fleet, ...parts);
  }
}
