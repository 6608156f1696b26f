/**
 * The members on one Redis, hosts and workers. Each writes its report twice a second, under a key that expires, and reads
 * those of the others. Where a follower asks for it, a report counts once the member at its address has confirmed it:
 * whoever writes to Redis invents no host. While Redis is away the last known reports count, and dead hosts are detected
 * by failing calls.
 */
import { randomBytes } from 'node:crypto';
import { jsonAs, type Log } from '../tools/index.ts';
import type { MemberLink } from './link.ts';
import { checkedOffer, tellOffers, type FunctionOffer, type OfferChange } from './offers.ts';
import { ChangeReader, ChangeWriter, type ChangeWriterOptions } from './changes.ts';
import { isMemberName } from './tls.ts';
import { fleetFormat, type Member, type MemberReport } from './types.ts';

/** A member that has been silent for this long is gone. */
export const reportEveryMs = 500;
export const goneAfterMs = 2500;
/** So long the others can read that a member has left. */
const saidForMs = 60_000;
/** Whoever writes to Redis may name any number of addresses. */
const confirmedAtOnceMax = 16;

export interface MembershipOptions {
  readonly link: MemberLink;
  /** Default: an id of this start. */
  readonly name?: string | undefined;
  readonly report: () => MemberReport;
  /** What this member offers; `all`: for every function. */
  readonly offers: (all: boolean) => Iterable<OfferChange>;
  /** What workers need of this host's functions. */
  readonly manifests?: ChangeWriterOptions<unknown>;
  /** Default: that of this release. */
  readonly format?: number | undefined;
  readonly log: Log;
}

export interface MemberFollower {
  /** Why a report of a member that has just started is not its own; undefined: it is, or nobody need ask. */
  readonly confirm?: (member: Member) => Promise<string | undefined>;
  /** A report of another member has arrived, with what it tells. */
  readonly heard?: (member: Member) => void;
  /** This member has just found that one gone. Called before `changed`. @param isLost it did not leave */
  readonly gone?: (member: Member, isLost: boolean) => void;
  /** This member is the first to find that one gone: what it left in Redis is to be removed. */
  readonly leftover?: (name: string) => void;
  /** A member came, went, or drains. */
  readonly changed?: () => void;
  /** What members tell of manifests has changed. */
  readonly manifestsChanged?: () => void;
  /** After each report of this member: for what is to be done in Redis as often. The next one waits for it. */
  readonly spoken?: () => Promise<void>;
}

interface Heard {
  readonly member: Member;
  /** When its latest report arrived here (performance.now()). */
  readonly atMs: number;
}

export class Membership {
  /** Of this start. */
  readonly id = randomBytes(6).toString('hex');
  readonly name: string;
  /** Of the other members. */
  readonly offers: ChangeReader<FunctionOffer>;
  readonly manifests: ChangeReader<unknown>;
  readonly format: number;
  readonly #options: MembershipOptions;
  readonly #offersOut: ChangeWriter<FunctionOffer>;
  readonly #manifestsOut: ChangeWriter<unknown>;
  readonly #followers: MemberFollower[] = [];
  readonly #startedAtMs = Date.now();
  readonly #others = new Map<string, Heard>();
  /** Members that are excluded, and why. */
  readonly #strangers = new Map<string, { readonly why: string; readonly member: Member }>();
  /** The latest report of members that have not confirmed one yet. */
  readonly #claims = new Map<string, Member>();
  readonly #confirming = new Map<string, Promise<void>>();
  #beat = 0;
  #upSinceMs = Infinity;
  #timer: NodeJS.Timeout | undefined;
  #underWay: Promise<void> | undefined;
  #endListening: (() => void) | undefined;
  #hasLeft = false;

  constructor(options: MembershipOptions) {
    const { link, name = this.id, format = fleetFormat, offers, manifests } = options;
    this.#options = options;
    this.name = name;
    this.format = format;
    const nothing: ChangeWriterOptions<unknown> = { current: () => [], isNews: () => false };
    this.#offersOut = new ChangeWriter(link, link.key('offers', name), tellOffers(offers));
    this.#manifestsOut = new ChangeWriter(link, link.key('manifests', name), manifests ?? nothing);
    this.offers = new ChangeReader(link, (member) => link.key('offers', member), checkedOffer);
    this.manifests = new ChangeReader<unknown>(
      link,
      (member) => link.key('manifests', member),
      (manifest) => manifest,
    );
  }

  follow(follower: MemberFollower): void {
    this.#followers.push(follower);
  }

  /** Resolves after the first report, once the members that are there have confirmed theirs; at once if Redis is away. */
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
    const { name, id, format } = this;
    const [offers, manifests] = [this.#offersOut.report, this.#manifestsOut.report];
    const said = this.#options.report();
    return { ...said, name, id, format, startedAtMs: this.#startedAtMs, beat: this.#beat, offers, manifests };
  }

  /** The other members of a kind. */
  others(kind: Member['kind']): Member[] {
    return [...this.#others.values()].flatMap(({ member }) => (member.kind === kind ? [member] : []));
  }

  /** Whether one of the others is as asked: cheap, on the path of each call. */
  some(asked: (member: Member) => boolean): boolean {
    for (const { member } of this.#others.values()) if (asked(member)) return true;
    return false;
  }

  find(name: string): Member | undefined {
    return this.#others.get(name)?.member;
  }

  /** Members of a release with another format, and reports that nobody has confirmed. */
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
    if (this.#hasLeft) return;
    this.#hasLeft = true;
    clearInterval(this.#timer);
    this.#endListening?.();
    await this.#underWay;
    const { link } = this.#options;
    if (!link.works) return;
    await link.commands
      .multi()
      .srem(link.key('members'), this.name)
      .del(...['member', 'offers', 'manifests'].map((kind) => link.key(kind, this.name)))
      .set(link.key('left', this.name), this.id, 'PX', saidForMs)
      .exec()
      .catch(() => undefined);
  }

  async #exchange(): Promise<void> {
    const { link } = this.#options;
    if (!link.works || this.#hasLeft) return;
    await this.#offersOut.write();
    await this.#manifestsOut.write();
    this.#beat++;
    const text = JSON.stringify(this.self());
    await link.commands
      .multi()
      .sadd(link.key('members'), this.name)
      .set(link.key('member', this.name), text, 'PX', goneAfterMs)
      .exec();
    await this.#read();
    for (const { spoken } of this.#followers) await spoken?.();
  }

  async #read(): Promise<void> {
    const { link } = this.#options;
    const names = (await link.commands.smembers(link.key('members'))).filter((name) => name !== this.name);
    const texts = names.length === 0 ? [] : await link.commands.mget(names.map((name) => link.key('member', name)));
    let hasChanged = false;
    for (const [index, name] of names.entries()) {
      const text = texts[index];
      const member = typeof text === 'string' ? this.#memberOf(name, text) : undefined;
      if (member === undefined) continue;
      const before = this.#others.get(name)?.member;
      if (before?.id !== member.id) {
        this.#claims.set(name, member);
        this.#confirmSoon(name);
      } else if (before.beat !== member.beat) {
        await this.#heard(member);
        hasChanged ||= before.draining !== member.draining || before.url !== member.url;
      }
    }
    const present = new Set(names.filter((_, index) => typeof texts[index] === 'string'));
    for (const name of [...this.#strangers.keys(), ...this.#claims.keys()]) {
      if (present.has(name)) continue;
      this.#strangers.delete(name);
      this.#claims.delete(name);
    }
    const silent = new Set([...this.#others.keys(), ...names].filter((name) => !present.has(name)));
    for (const name of silent) hasChanged = (await this.#isGone(name, names.includes(name))) || hasChanged;
    if (hasChanged) this.#tell('changed');
  }

  /** Forgets a member that left, or that is silent for too long. A Redis that loses its data removes names as well. */
  async #isGone(name: string, isListed: boolean): Promise<boolean> {
    const { link } = this.#options;
    const member = this.find(name);
    const hasLeft = member !== undefined && (await link.commands.get(link.key('left', name))) === member.id;
    const isSilent = this.heardMsAgo(name) > goneAfterMs && performance.now() - this.#upSinceMs > goneAfterMs;
    if (member !== undefined && !hasLeft && !isSilent) return false;
    if (isListed && (await link.commands.srem(link.key('members'), name)) === 1) {
      for (const { leftover } of this.#followers) leftover?.(name);
    }
    if (member === undefined) return false;
    this.#others.delete(name);
    this.offers.forget(name);
    this.manifests.forget(name);
    for (const { gone } of this.#followers) gone?.(member, !hasLeft);
    if (member.kind === 'host') this.#tell('manifestsChanged');
    return true;
  }

  /** Takes in a report that counts. */
  async #heard(member: Member): Promise<void> {
    this.#others.set(member.name, { member, atMs: performance.now() });
    const { name, id } = member;
    await this.offers.take(name, id, member.offers);
    const isNews = await this.manifests.take(name, id, member.manifests);
    for (const { heard } of this.#followers) heard?.(member);
    if (isNews) this.#tell('manifestsChanged');
  }

  #tell(what: 'changed' | 'manifestsChanged'): void {
    for (const follower of this.#followers) follower[what]?.();
  }

  #confirmSoon(name: string): void {
    if (this.#confirming.has(name) || this.#confirming.size >= confirmedAtOnceMax) return;
    const confirming = this.#confirm(name).finally(() => this.#confirming.delete(name));
    this.#confirming.set(name, confirming);
  }

  async #confirm(name: string): Promise<void> {
    const asked = this.#claims.get(name);
    if (asked === undefined) return;
    const whys = await Promise.all(this.#followers.map(async ({ confirm }) => await confirm?.(asked)));
    const why = whys.find((each) => each !== undefined);
    const member = this.#claims.get(name);
    // It may have gone, or started anew, meanwhile.
    if (member === undefined || member.id !== asked.id || this.#hasLeft) return;
    if (why !== undefined) {
      this.#leaveOut(member, why);
      return;
    }
    this.#claims.delete(name);
    this.#strangers.delete(name);
    await this.#heard(member).catch(() => undefined); // Redis went away: the next report brings its offers.
    this.#tell('changed');
  }

  #memberOf(name: string, text: string): Member | undefined {
    const member = jsonAs(text, (report: Member) => (isReport(report) && report.name === name ? report : undefined));
    if (member === undefined || member.format === this.format) return member;
    this.#leaveOut(
      member,
      `its release has format ${member.format} between members, and this one format ${this.format}`,
    );
    return undefined;
  }

  #leaveOut(member: Member, why: string): void {
    const { name, kind } = member;
    if (this.#strangers.get(name)?.why !== why) {
      this.#options.log.warn({ kind, member: name, reason: why }, 'a member is left out');
    }
    this.#strangers.set(name, { why, member });
  }
}

/** Anyone with access to Redis may have written it. Of another format only what is shown must be there. */
function isReport({ kind, name, id, title, cores, gpus, beat, format, offers, manifests }: Member): boolean {
  const isNamed = typeof name === 'string' && (isMemberName(name) || /^[0-9a-f]{12}$/.test(name));
  const isKnown = isNamed && typeof id === 'string' && typeof title === 'string' && typeof format === 'number';
  if (!isKnown || format !== fleetFormat) return isKnown;
  const areNumbers = [cores, gpus, beat, offers?.generation, manifests?.generation].every((each) =>
    Number.isFinite(each),
  );
  return areNumbers && (kind === 'host' || kind === 'worker');
}
