/**
 * The fleet's members. Each host writes its report into Redis twice a second, under a key that expires, and reads those
 * of the others. A report counts once the host at its address has confirmed it, by its certificate: whoever writes to
 * Redis invents no members. While Redis is away the last known reports count, and dead hosts are detected by failing
 * calls.
 */
import { randomBytes } from 'node:crypto';
import type { RedisLink } from '../queue/index.ts';
import { jsonAs, type Log } from '../tools/index.ts';
import { isMemberName } from './tls.ts';
import { fleetFormat, type HostReport, type Member } from './types.ts';

/** A host that has been silent for this long is gone. */
export const reportEveryMs = 500;
export const goneAfterMs = 2500;
/** So long the others can read that a host has left. */
const saidForMs = 60_000;
/** Whoever writes to Redis may name any number of addresses. */
const confirmedAtOnceMax = 16;

export interface MembershipOptions {
  readonly link: RedisLink;
  readonly fleet: string;
  readonly report: () => HostReport;
  /** Of this host's reports; those of another one are not understood. */
  readonly format: number;
  /** Why a report of a host that has just started is not its own; undefined: it is. */
  readonly confirm: (member: Member) => Promise<string | undefined>;
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
  /** Of this start. */
  readonly id = randomBytes(6).toString('hex');
  readonly #startedAtMs = Date.now();
  readonly #others = new Map<string, Heard>();
  /** Hosts that are excluded, and why. */
  readonly #strangers = new Map<string, { readonly why: string; readonly member: Member }>();
  /** The latest report of hosts that have not confirmed one yet. */
  readonly #claims = new Map<string, Member>();
  readonly #confirming = new Map<string, Promise<void>>();
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

  /** Resolves after the first report, once the hosts that are there have confirmed theirs; at once if Redis is away. */
  async start(): Promise<void> {
    const { link } = this.#options;
    if (link.works) this.#upSinceMs = performance.now();
    this.#endListening = link.onChange((works) => {
      this.#upSinceMs = works ? performance.now() : Infinity;
      if (works) void this.speak();
    });
    this.#timer = setInterval(() => void this.speak(), reportEveryMs);
    await this.speak();
    await Promise.all(this.#confirming.values());
  }

  self(): Member {
    const { name, id } = this;
    return { ...this.#options.report(), name, id, startedAtMs: this.#startedAtMs, beat: this.#beat };
  }

  /** The other hosts. */
  others(): readonly Member[] {
    return Array.from(this.#others.values(), ({ member }) => member);
  }

  find(name: string): Member | undefined {
    return this.#others.get(name)?.member;
  }

  /** Hosts of a release with another format, and reports that nobody has confirmed. */
  strangers(): readonly { readonly member: Member; readonly why: string }[] {
    return [...this.#strangers.values()];
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
      .set(this.#key('left', this.name), this.id, 'PX', saidForMs)
      .exec()
      .catch(() => undefined);
  }

  async #exchange(): Promise<void> {
    const { link } = this.#options;
    if (!link.works || this.#hasLeft) return;
    await this.#options.onSpeak();
    this.#beat++;
    const text = JSON.stringify(this.self());
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
      if (before?.id !== member.id) {
        this.#claims.set(name, member);
        this.#confirmSoon(name);
      } else if (before.beat !== member.beat) {
        this.#others.set(name, { member, atMs: performance.now() });
        await this.#options.onReport(member);
        hasChanged ||= before.draining !== member.draining || before.url !== member.url;
      }
    }
    const present = new Set(names.filter((_, index) => typeof texts[index] === 'string'));
    for (const name of [...this.#strangers.keys(), ...this.#claims.keys()]) {
      if (present.has(name)) continue;
      this.#strangers.delete(name);
      this.#claims.delete(name);
    }
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

  #confirmSoon(name: string): void {
    if (this.#confirming.has(name) || this.#confirming.size >= confirmedAtOnceMax) return;
    const confirming = this.#confirm(name).finally(() => this.#confirming.delete(name));
    this.#confirming.set(name, confirming);
  }

  async #confirm(name: string): Promise<void> {
    const { confirm, onReport, onChange } = this.#options;
    const asked = this.#claims.get(name);
    const why = asked && (await confirm(asked));
    const member = this.#claims.get(name);
    // It may have gone, or started anew, meanwhile.
    if (member === undefined || member.id !== asked?.id || this.#hasLeft) return;
    if (why !== undefined) {
      this.#leaveOut(member, why);
      return;
    }
    this.#claims.delete(name);
    this.#strangers.delete(name);
    this.#others.set(name, { member, atMs: performance.now() });
    await onReport(member).catch(() => undefined); // Redis went away: the next report brings its offers.
    onChange();
  }

  #memberOf(name: string, text: string): Member | undefined {
    const member = jsonAs(text, (report: Member) => (isReport(report) && report.name === name ? report : undefined));
    if (member === undefined || member.format === this.#options.format) return member;
    const { format } = this.#options;
    const its = member.format ?? 'of 0.1';
    this.#leaveOut(member, `its release has format ${its} between hosts, and this host format ${format}`);
    return undefined;
  }

  #leaveOut(member: Member, why: string): void {
    const { log, fleet } = this.#options;
    if (this.#strangers.get(member.name)?.why !== why) {
      log.warn({ fleet, host: member.name, reason: why }, 'a host is left out of the fleet');
    }
    this.#strangers.set(member.name, { why, member });
  }

  #key(...parts: readonly string[]): string {
    return this.#options.link.key('fleet', this.#options.fleet, ...parts);
  }
}

/** Anyone with access to Redis may have written it. Of another format only its name and version must be there. */
function isReport({ name, id, url, hostVersion, beat, cores, gpus, offers, format }: Member): boolean {
  const isKnown = typeof name === 'string' && isMemberName(name) && typeof id === 'string';
  if (!isKnown || format !== fleetFormat) return isKnown;
  const hasNumbers = [beat, cores, gpus, offers?.generation].every((each) => Number.isFinite(each));
  return hasNumbers && typeof url === 'string' && typeof hostVersion === 'string';
}
