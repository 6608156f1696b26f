/** This host in its fleet: membership, and connections from and to the other hosts. */
import type { RedisLink } from '../queue/index.ts';
import type { Log } from '../tools/index.ts';
import { Membership } from './membership.ts';
import { OffersIn, OffersOut, type OffersOutOptions } from './offers.ts';
import { Peers } from './peers.ts';
import type { MemberListener } from './listener.ts';
import type { MemberTls } from './tls.ts';
import { fleetFormat, type Greeting, type Hello, type HostReport, type Member, type MemberView } from './types.ts';

export interface FleetOptions {
  readonly link: RedisLink;
  readonly fleet: string;
  /** Host and port where other members reach this one: they stay over a restart, and with them its functions. */
  readonly name: string;
  /** It greets by {@link Fleet.greet}. */
  readonly listener: MemberListener;
  /** Undefined: plain TCP, on this machine. */
  readonly tls: MemberTls | undefined;
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
  readonly #listener: MemberListener;
  readonly #format: number;
  readonly #log: Log;
  readonly #onMembers: (() => void) | undefined;
  #drainReason: 'none' | 'asked' | 'stopping' = 'none';

  constructor(options: FleetOptions) {
    const { link, fleet, name, listener, tls, report, log, format = fleetFormat } = options;
    this.name = fleet;
    this.link = link;
    this.#listener = listener;
    this.#format = format;
    this.#log = log;
    this.#onMembers = options.onMembers;
    const offersKey = (host: string): string => link.key('fleet', fleet, 'offers', host);
    const out = new OffersOut({ link, key: offersKey(name), current: options.offers });
    this.offers = new OffersIn(link, offersKey);
    this.membership = new Membership(name, {
      link,
      fleet,
      format,
      confirm: async (member) => await this.peers.confirm(member),
      report: () => ({
        ...report(),
        format,
        draining: this.isDraining,
        offers: out.told,
      }),
      onSpeak: async () => await out.write(),
      onReport: async ({ name: host, id, offers }) => await this.offers.take(host, id, offers),
      onGone: ({ name: host }, isLost) => {
        if (isLost) options.onLost?.(host);
        this.offers.forget(host);
      },
      onChange: () => {
        const hosts = this.membership.others().map((each) => each.name);
        log.info({ fleet, hosts }, 'the hosts of the fleet have changed');
        options.onMembers?.();
      },
      log,
    });
    this.peers = new Peers({ tls, fleet, name, format, members: () => this.membership.others() });
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

  /** Requests of other members under way are answered first, within `graceMs`. */
  hangUp(graceMs: number): void {
    this.#listener.hangUp(graceMs);
  }

  async close(): Promise<void> {
    await this.membership.leave();
    this.peers.close();
    this.#listener.close();
  }

  /** The answer to a member that has opened a connection. */
  greet({ fleet, format, to }: Hello): Greeting {
    const { name, id } = this.membership;
    if (fleet !== this.name) return { refused: `the host at its address is in the fleet '${this.name}'` };
    if (to !== name) return { refused: `the host at its address is ${name}` };
    return format === this.#format ? { id } : { refused: `it has format ${this.#format} between hosts` };
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
}

const sick = (reason: string | undefined): Partial<MemberView> =>
  reason === undefined ? {} : { state: 'sick', reason };
