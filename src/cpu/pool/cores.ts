/**
 * Which function has which core. Only this allocator hands out cores: a configured instance runs on the cores of its
 * lease alone, and on-demand instances share the cores without a lease.
 *
 * A lease lies on one socket if any socket is large enough for it (Packrat, 3.4: threads on two sockets wait for the
 * link between them); it is refused rather than spread. A core's second hardware thread is given out only when every
 * core of the socket has work.
 */
import type { LogicalCore } from '../../hardware/index.ts';
import type { ListStep } from './configuration.ts';

/** Where more functions are called than there are cores, one that uses less of a core than this gets none of its own. */
const ownCoreMin = 0.5;

/** Cores that belong to one instance until they are returned. Returning twice has no effect. */
export interface CoreLease extends Disposable {
  /** The operating system's numbers. */
  readonly cores: readonly number[];
  /** Whether no other lease uses any of its cores now. */
  readonly exclusive: boolean;
}

interface Socket {
  readonly id: number;
  /** In the order in which they are given out. */
  readonly cores: readonly number[];
}

interface Lease extends CoreLease {
  readonly owner: string;
}

export class CoreAllocator {
  readonly #sockets: readonly Socket[];
  readonly #leases = new Map<number, Set<Lease>>();
  readonly #changed: () => void;

  /**
   * @param cores that the process may use @param limit how many of them, where the configuration or a quota allows
   * fewer @param changed called after every lease and every return
   */
  constructor(cores: readonly LogicalCore[], limit: number, changed: () => void = () => undefined) {
    this.#sockets = toSockets(cores, limit);
    this.#changed = changed;
    for (const { cores: ids } of this.#sockets) for (const id of ids) this.#leases.set(id, new Set());
  }

  /** All cores, leased or not. */
  get total(): number {
    return this.#leases.size;
  }

  /** Cores of each socket. */
  get perSocket(): readonly number[] {
    return this.#sockets.map(({ cores }) => cores.length);
  }

  all(): number[] {
    return [...this.#leases.keys()];
  }

  /** Cores without a lease, which on-demand instances share. */
  unleased(): number[] {
    return [...this.#leases].flatMap(([core, leases]) => (leases.size === 0 ? [core] : []));
  }

  /** How many of them runs without a lease share: with every core leased, all. A function is never without any. */
  get shared(): number {
    return Math.max(1, this.unleased().length);
  }

  /** For each socket, the cores that `owner` could lease: the free ones, and with `beside` also its own. */
  available(owner: string, beside: boolean): number[] {
    return this.#sockets.map((socket) => this.#usable(socket, owner, beside).length);
  }

  /**
   * Leases for one instance each of `threads`, all or none, in order; undefined if they do not fit. With `beside` they
   * may include cores that `owner` has leased already, for a set that takes over from another; never another owner's.
   */
  lease(owner: string, threads: readonly number[], { beside = false } = {}): CoreLease[] | undefined {
    const usable = new Map(this.#sockets.map((socket) => [socket.id, this.#usable(socket, owner, beside)]));
    const largest = Math.max(0, ...this.perSocket);
    const order = threads.map((count, index) => ({ count, index })).sort((a, b) => b.count - a.count);
    const within = order.filter(({ count }) => count <= largest);
    const places = placeItems(
      within.map(({ count }) => count),
      [...usable.values()].map((cores) => cores.length),
    );
    if (places === undefined) return undefined;
    const chosen: number[][] = threads.map(() => []);
    const sockets = [...usable.values()];
    for (const [at, { count, index }] of within.entries())
      chosen[index] = sockets[places[at] ?? 0]?.splice(0, count) ?? [];
    // Only instances larger than every socket may span several.
    for (const { count, index } of order.filter((item) => item.count > largest)) {
      const cores: number[] = [];
      for (const left of sockets) cores.push(...left.splice(0, count - cores.length));
      if (cores.length < count) return undefined;
      chosen[index] = cores;
    }
    const leases = chosen.map((cores) => this.#open(owner, cores));
    this.#changed();
    return leases;
  }

  /** For the instances that a change of `owner`'s list starts; undefined if they do not fit. */
  leaseFor(owner: string, { kind, added }: ListStep): CoreLease[] | undefined {
    const threads = added.map((instance) => instance.threads);
    // On free cores if possible; a list that takes over from another may have cores of that one.
    return this.lease(owner, threads) ?? (kind === 'switch' ? this.lease(owner, threads, { beside: true }) : undefined);
  }

  /**
   * Cores that are free or already leased to `owner`, but no more than its share: an equal part for each active
   * function. 0 while others hold all cores, and where more functions are active than there are cores and this one uses
   * only part of a core.
   *
   * @param active functions, itself included, that have a list or calls @param coresUsed by its calls
   */
  shareOf(owner: string, active: number, coresUsed: number): number {
    const hasClaim = active <= this.total || coresUsed >= ownCoreMin;
    const share = Math.max(hasClaim ? 1 : 0, Math.floor(this.total / active));
    const available = this.available(owner, true).reduce((sum, count) => sum + count, 0);
    return Math.min(available, share);
  }

  #open(owner: string, cores: readonly number[]): Lease {
    const leasesOf = (core: number): Set<Lease> => this.#leases.get(core)!;
    const changed = this.#changed;
    const lease: Lease = {
      owner,
      cores,
      get exclusive() {
        return cores.every((core) => leasesOf(core).size === 1 && leasesOf(core).has(lease));
      },
      [Symbol.dispose]() {
        const held = cores.filter((core) => leasesOf(core).delete(lease));
        if (held.length > 0) changed();
      },
    };
    for (const core of cores) leasesOf(core).add(lease);
    return lease;
  }

  /** Cores of a socket for a lease: free ones first, so that two sets share as few as possible. */
  #usable({ cores }: Socket, owner: string, beside: boolean): number[] {
    const free = cores.filter((core) => this.#leases.get(core)?.size === 0);
    if (!beside) return free;
    const own = cores.filter((core) => {
      const leases = [...(this.#leases.get(core) ?? [])];
      return leases.length > 0 && leases.every((lease) => lease.owner === owner);
    });
    return [...free, ...own];
  }
}

/** Sockets with the first hardware thread of every core before any second thread, cut down to `limit` cores in all. */
function toSockets(cores: readonly LogicalCore[], limit: number): Socket[] {
  const bySocket = new Map<number, LogicalCore[]>();
  for (const core of cores) bySocket.set(core.socket, [...(bySocket.get(core.socket) ?? []), core]);
  let left = limit;
  return [...bySocket].flatMap(([id, members]) => {
    const seen = new Map<number, number>();
    const ranked = members.map((member) => {
      const rank = seen.get(member.core) ?? 0;
      seen.set(member.core, rank + 1);
      return { id: member.id, rank };
    });
    const ids = ranked.sort((a, b) => a.rank - b.rank || a.id - b.id).map((each) => each.id);
    const kept = ids.slice(0, left);
    left -= kept.length;
    return kept.length === 0 ? [] : [{ id, cores: kept }];
  });
}

/** Search steps for a packing. Best fit finds nearly all at once; harder cases are refused. */
const searchStepsMax = 20_000;

/**
 * A bin for each item, largest item first, so that no bin is overfull; undefined if none is found. Tries the fullest
 * bin first, and only one of several bins with the same room.
 */
function placeItems(items: readonly number[], bins: readonly number[]): number[] | undefined {
  const sizesLeft = [...bins];
  const places: number[] = [];
  let steps = 0;
  const place = (at: number): boolean => {
    const item = items[at];
    if (item === undefined) return true;
    const tried = new Set<number>();
    const candidates = [...sizesLeft.entries()].filter(([, size]) => size >= item).sort((a, b) => a[1] - b[1]);
    for (const [bin, size] of candidates) {
      if (tried.has(size) || ++steps > searchStepsMax) continue;
      tried.add(size);
      sizesLeft[bin] = size - item;
      places[at] = bin;
      if (place(at + 1)) return true;
      sizesLeft[bin] = size;
    }
    return false;
  };
  return place(0) ? places : undefined;
}
