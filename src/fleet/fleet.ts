/** This host in its fleet: the members that are hosts of it, and connections from and to them. */
import type { Log } from '../tools/index.ts';
import type { MemberListener } from './listener.ts';
import type { Membership } from './membership.ts';
import { Peers } from './peers.ts';
import type { MemberTls } from './tls.ts';
import type { Greeting, Hello, Member, MemberView } from './types.ts';

export interface FleetOptions {
  readonly fleet: string;
  readonly membership: Membership;
  /** It greets by {@link Fleet.greet}. */
  readonly listener: MemberListener;
  /** Undefined: plain TCP, on this machine. */
  readonly tls: MemberTls | undefined;
  /** A host came, went, or drains, possibly this one. */
  readonly onMembers?: () => void;
  /** A host stopped reporting without leaving. */
  readonly onLost?: (host: string) => void;
  readonly log: Log;
}

export class Fleet {
  readonly name: string;
  readonly membership: Membership;
  readonly peers: Peers;
  readonly #options: FleetOptions;
  #drainReason: 'none' | 'asked' | 'stopping' = 'none';

  constructor(options: FleetOptions) {
    const { fleet, membership, tls, log } = options;
    this.name = fleet;
    this.membership = membership;
    this.#options = options;
    const { name, format } = membership;
    this.peers = new Peers({ tls, fleet, name, format, members: () => this.others() });
    membership.follow({
      confirm: async (member) => (this.#isOfFleet(member) ? await this.peers.confirm(member) : undefined),
      gone: (member, isLost) => {
        if (isLost && this.#isOfFleet(member)) options.onLost?.(member.name);
      },
      changed: () => {
        const hosts = this.others().map((each) => each.name);
        log.info({ fleet, hosts }, 'the hosts of the fleet have changed');
        options.onMembers?.();
      },
    });
  }

  /** The other hosts. */
  others(): Member[] {
    return this.membership.others('host').filter((member) => this.#isOfFleet(member));
  }

  get isAlone(): boolean {
    return !this.membership.some((member) => this.#isOfFleet(member));
  }

  find(name: string): Member | undefined {
    const member = this.membership.find(name);
    return member !== undefined && this.#isOfFleet(member) ? member : undefined;
  }

  start(): void {
    this.peers.start();
  }

  get isDraining(): boolean {
    return this.#drainReason !== 'none';
  }

  /** Starts or stops draining: a draining host takes no calls of other hosts, and is no function's home. */
  async drain(on: boolean): Promise<void> {
    if (this.#drainReason === 'stopping') return;
    this.#drainReason = on ? 'asked' : 'none';
    const { log, onMembers } = this.#options;
    log.info({ fleet: this.name, draining: on }, on ? 'this host drains' : 'this host drains no more');
    await this.membership.speak();
    await this.membership.speak(); // The first report may have been under way already.
    onMembers?.();
  }

  /** Tells the others that this host leaves; its own calls are still answered. */
  async stopping(): Promise<void> {
    this.#drainReason = 'stopping';
    await this.membership.speak();
  }

  /** Requests of other members under way are answered first, within `graceMs`. */
  hangUp(graceMs: number): void {
    this.#options.listener.hangUp(graceMs);
  }

  close(): void {
    this.peers.close();
    this.#options.listener.close();
  }

  /** The answer to a member that has opened a connection. */
  greet({ fleet, format, to }: Hello): Greeting {
    const { name, id, format: own } = this.membership;
    if (fleet !== this.name) return { refused: `the host at its address is in the fleet '${this.name}'` };
    if (to !== name) return { refused: `the host at its address is ${name}` };
    return format === own ? { id } : { refused: `it has format ${own} between members` };
  }

  /** Every host, this one first, including hosts that this one cannot talk to. */
  view(): readonly MemberView[] {
    const { membership, peers } = this;
    const strangers = membership.strangers().filter(({ member }) => this.#isOfFleet(member));
    return [
      this.#viewOf(membership.self(), { isSelf: true, heardMsAgo: 0, roundTripMs: 0 }),
      ...this.others().map((member) => this.#viewOf(member, sick(peers.trouble(member)))),
      ...strangers.map(({ member, why }) => this.#viewOf(member, sick(why))),
    ];
  }

  /** @param differences what differs from a host that can be reached */
  #viewOf(member: Member, differences: Partial<MemberView>): MemberView {
    return {
      ...member,
      isSelf: false,
      state: member.draining ? 'draining' : 'up',
      reason: '',
      heardMsAgo: this.membership.heardMsAgo(member.name),
      roundTripMs: this.peers.roundTripMs(member.name),
      ...differences,
    };
  }

  #isOfFleet({ kind, fleet }: Member): boolean {
    return kind === 'host' && fleet === this.name;
  }
}

const sick = (reason: string | undefined): Partial<MemberView> =>
  reason === undefined ? {} : { state: 'sick', reason };
