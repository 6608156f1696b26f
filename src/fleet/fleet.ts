/** This host in its fleet: membership, connections to the other hosts, and authentication of theirs. */
import type { RedisLink } from '../queue/index.ts';
import type { Log } from '../tools/index.ts';
import { Membership } from './membership.ts';
import { OffersIn, OffersOut, type OffersOutOptions } from './offers.ts';
import { Peers } from './peers.ts';
import { Seal, type PeerRequest, type PeerSender } from './seal.ts';
import { fleetFormat, type HostReport, type Member, type MemberView } from './types.ts';

export interface FleetOptions {
  readonly link: RedisLink;
  readonly fleet: string;
  readonly secret: string;
  /** Where other hosts reach this one. */
  readonly url: string;
  /** Certificates (PEM) to check those of the other hosts with; undefined: Node's own. */
  readonly ca?: string | undefined;
  /** Default: that of this release. */
  readonly format?: number;
  readonly report: () => Omit<HostReport, 'draining' | 'offers' | 'format'>;
  /** This host's offers that may have changed since the last call; `all`: every one. */
  readonly offers: OffersOutOptions['current'];
  /** A host came, went, or drains, possibly this one. */
  readonly onMembers?: () => void;
  /** A host stopped reporting without leaving. */
  readonly onLost?: (host: string) => void;
  readonly log: Log;
}

export class Fleet {
  readonly name: string;
  readonly link: RedisLink;
  readonly membership: Membership;
  readonly peers: Peers;
  /** Of the other hosts. */
  readonly offers: OffersIn;
  readonly seal: Seal;
  readonly #log: Log;
  readonly #onMembers: (() => void) | undefined;
  readonly #startedMs = performance.now();
  #drainReason: 'none' | 'asked' | 'stopping' = 'none';

  constructor(options: FleetOptions) {
    const { link, fleet, secret, url, report, log, format = fleetFormat } = options;
    this.name = fleet;
    this.link = link;
    this.#log = log;
    this.#onMembers = options.onMembers;
    this.seal = new Seal(fleet, secret);
    const hostName = nameAt(url);
    const offersKey = (host: string): string => link.key('fleet', fleet, 'offers', host);
    const out = new OffersOut({ link, key: offersKey(hostName), current: options.offers });
    this.offers = new OffersIn(link, offersKey);
    this.membership = new Membership(hostName, {
      link,
      fleet,
      seal: this.seal,
      format,
      report: () => ({
        ...report(),
        format,
        draining: this.isDraining,
        offers: out.told,
      }),
      onSpeak: async () => await out.write(),
      onReport: async ({ name, id, offers }) => await this.offers.take(name, id, offers),
      onGone: ({ name }, isLost) => {
        if (isLost) options.onLost?.(name);
        this.offers.forget(name);
      },
      onChange: () => {
        const hosts = this.membership.others().map(({ name }) => name);
        log.info({ fleet, hosts }, 'the hosts of the fleet have changed');
        options.onMembers?.();
      },
      log,
    });
    this.peers = new Peers({
      ca: options.ca,
      name: hostName,
      seal: this.seal,
      nowMs: () => this.#nowMs(),
      members: () => this.membership.others(),
    });
  }

  async start(): Promise<void> {
    await this.membership.start();
    this.peers.start();
  }

  get isDraining(): boolean {
    return this.#drainReason !== 'none';
  }

  /** Starts or stops draining: a draining host takes no calls of other hosts, and is no function's home. */
  async drain(on: boolean): Promise<void> {
    if (this.#drainReason === 'stopping') return;
    this.#drainReason = on ? 'asked' : 'none';
    this.#log.info({ fleet: this.name, draining: on }, on ? 'this host drains' : 'this host drains no more');
    await this.membership.speak();
    await this.membership.speak(); // The first report may have been under way already.
    this.#onMembers?.();
  }

  /** Tells the others that this host leaves; its own calls are still answered. */
  async stopping(): Promise<void> {
    this.#drainReason = 'stopping';
    await this.membership.speak();
  }

  async close(): Promise<void> {
    await this.membership.leave();
    this.peers.close();
  }

  /** The host that sent a request to this one; each request is accepted once. Otherwise the reason of the refusal. */
  senderOf(authorization: string, request: Omit<PeerRequest, 'to'>): PeerSender | { readonly refused: string } {
    const startedMs = this.link.toShared(this.#startedMs);
    return this.seal.sender(authorization, { ...request, to: this.membership.name }, this.#nowMs(), startedMs);
  }

  /** The other hosts that this one can reach. */
  reachable(): Member[] {
    return this.membership.others().filter((member) => this.peers.trouble(member) === undefined);
  }

  /** Every host, this one first, including hosts that this one cannot talk to. */
  view(): readonly MemberView[] {
    const { membership, peers } = this;
    return [
      this.#viewOf(membership.self(), { isSelf: true, heardMsAgo: 0, roundTripMs: 0 }),
      ...membership.others().map((member) => this.#viewOf(member, sick(peers.trouble(member)))),
      ...membership.strangers().map(({ member, why }) => this.#viewOf(member, sick(why))),
    ];
  }

  /** @param told what differs from a host that can be reached */
  #viewOf(member: Member, told: Partial<MemberView>): MemberView {
    return {
      ...member,
      isSelf: false,
      state: member.draining ? 'draining' : 'up',
      reason: '',
      heardMsAgo: this.membership.heardMsAgo(member.name),
      roundTripMs: this.peers.roundTripMs(member.name),
      ...told,
    };
  }

  #nowMs(): number {
    return this.link.toShared(performance.now());
  }
}

const sick = (reason: string | undefined): Partial<MemberView> =>
  reason === undefined ? {} : { state: 'sick', reason };

/** Hosts are named by their addresses. */
function nameAt(url: string): string {
  return new URL(url).host;
}
