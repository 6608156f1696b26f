/**
 * How a function gets from one list of instances to another (Packrat, 3.7), without clock or process: the pools of a host
 * and those of a replay carry out what it says, and tell it what came of that.
 *
 *          ┌──────── takeOver: the passive instances serve; those without a place in the new list leave
 *          v
 *   one list serves ── begin ──> passive instances start beside it, on cores of their own
 *          ^
 *          └──────── giveUp: they leave, and the list serves as before
 *
 * If instances are only added or only dropped, the others stay. Otherwise the passive instances are all of the new list, on
 * free cores and, if these do not suffice, on those of the list that serves. Until they are all ready it serves as before,
 * so no request waits for a change, and a failed change costs none.
 */
import { coresIn } from '../../schedule/index.ts';
import type { GiveUpCause, PoolConfiguration, ReconfigurationKind } from '../types.ts';
import { instancesOf, missingThreads, stepTo, withoutOne, type PlannedInstance } from './configuration.ts';
import type { CoreAllocator, CoreLease } from './cores.ts';

/** An instance, as its list sees it. */
export interface ListMember {
  readonly threads: number;
  /** Undefined on demand. */
  readonly lease: CoreLease | undefined;
}

/** Whose instances they are. */
export interface SwapOwner<Member extends ListMember> {
  /** An instance that is to start. */
  make(planned: PlannedInstance, lease: CoreLease): Member;
  /** Of the instances that may stay, those with the least do. */
  leavingRank(member: Member): number;
  /** The instance has this place in the list from now on. */
  adopt(member: Member, planned: PlannedInstance): void;
  /** It takes no more calls, and ends once it has answered: then {@link ListSwaps.remove} is to follow. */
  ends(member: Member, cause: GiveUpCause): void;
}

/** A change under way. */
export interface ListSwap<Member> {
  readonly kind: ReconfigurationKind;
  readonly to: PoolConfiguration;
  /** They are to be started. */
  readonly passive: readonly Member[];
}

export type SwapEnding =
  | { readonly state: 'done'; readonly kind: ReconfigurationKind }
  | { readonly state: 'refused' | 'failed'; readonly kind: ReconfigurationKind; readonly reason: string };

export class ListSwaps<Member extends ListMember> {
  readonly #cores: CoreAllocator;
  readonly #key: string;
  readonly #owner: SwapOwner<Member>;
  /** Undefined: on demand. */
  configuration: PoolConfiguration | undefined;
  /** The change that is under way. */
  swap: ListSwap<Member> | undefined;
  /** In the order in which they came. */
  serving: readonly Member[] = [];
  /** They take no more calls. */
  readonly leaving = new Set<Member>();

  constructor(cores: CoreAllocator, key: string, owner: SwapOwner<Member>) {
    this.#cores = cores;
    this.#key = key;
    this.#owner = owner;
  }

  /** Including those that do not serve yet, or no more. */
  get all(): Member[] {
    return [...this.serving, ...(this.swap?.passive ?? []), ...this.leaving];
  }

  /** On demand: one more. */
  add(member: Member): void {
    this.serving = [...this.serving, member];
  }

  /** Leases the cores of a change, whose instances are then to be started; or what came of it at once. */
  begin(to: PoolConfiguration): ListSwap<Member> | SwapEnding {
    if (this.swap !== undefined) return { state: 'refused', kind: 'none', reason: 'another change is under way' };
    const step = stepTo(this.configuration, to);
    const { kind, added } = step;
    if (added.length === 0) {
      if (kind !== 'none') this.#become(to, [], 'reconfigured');
      return { state: 'done', kind };
    }
    const leases = this.#cores.leaseFor(this.#key, step);
    if (leases === undefined) return { state: 'refused', kind, reason: this.#tooFewCores(to) };
    const passive = added.map((planned, at) => this.#owner.make(planned, leases[at]!));
    return (this.swap = { kind, to, passive });
  }

  /**
   * The passive instances are ready. Returns whether they serve now: the change may have been given up.
   *
   * @param begun called before any instance of the old list ends
   */
  takeOver(swap: ListSwap<Member>, begun?: () => void): boolean {
    if (this.swap !== swap) return false;
    this.swap = undefined;
    this.#become(swap.to, swap.passive, 'reconfigured', swap.kind === 'scale' ? this.serving : [], begun);
    return true;
  }

  /** A change is not made after all: one of its instances could not start, or it is not needed any more. */
  giveUp(swap: ListSwap<Member> | undefined = this.swap): void {
    if (swap === undefined || this.swap !== swap) return;
    this.swap = undefined;
    for (const member of swap.passive) this.leave(member, 'reconfigured');
  }

  /** The smallest of several instances of the list ends. Returns the list without it; undefined: it has no other. */
  giveOne(cause: GiveUpCause): PoolConfiguration | undefined {
    const to = this.configuration && withoutOne(this.configuration);
    if (to === undefined) return undefined;
    // It would add to a list that has this instance.
    if (this.swap?.kind === 'scale') this.giveUp();
    this.#become(to, [], cause);
    return to;
  }

  /** On demand from now on, without any instance. */
  drop(cause: GiveUpCause): void {
    this.giveUp();
    this.configuration = undefined;
    for (const member of this.serving) this.leave(member, cause);
  }

  leave(member: Member, cause: GiveUpCause): void {
    if (this.leaving.has(member)) return;
    this.serving = this.serving.filter((each) => each !== member);
    this.leaving.add(member);
    this.#owner.ends(member, cause);
  }

  /** The instance is gone. */
  remove(member: Member): void {
    this.serving = this.serving.filter((each) => each !== member);
    this.leaving.delete(member);
    member.lease?.[Symbol.dispose]();
  }

  /** The list serves from now on: the instances added, and those of `kept` for which it has a place. */
  #become(
    to: PoolConfiguration,
    added: readonly Member[],
    cause: GiveUpCause,
    kept = this.serving,
    begun?: () => void,
  ): void {
    const planned = instancesOf(to);
    const first = kept.toSorted((a, b) => this.#owner.leavingRank(a) - this.#owner.leavingRank(b));
    const dropped = missingThreads(
      planned.map(({ threads }) => threads),
      [...first, ...added],
    );
    const before = this.serving;
    this.configuration = to;
    this.serving = [...kept, ...added].filter((each) => !dropped.includes(each));
    for (const member of this.serving) {
      const at = planned.findIndex(({ threads }) => threads === member.threads);
      this.#owner.adopt(member, planned.splice(at, 1)[0]!);
    }
    begun?.();
    for (const member of before) if (!this.serving.includes(member)) this.leave(member, cause);
  }

  #tooFewCores(to: PoolConfiguration): string {
    const usable = this.#cores.available(this.#key, true);
    return (
      `its instances need ${coresIn(to)} cores, none of them across sockets, but ` +
      `${usable.join(' + ')} by socket are free or its own (the others are leased to other functions)`
    );
  }
}
