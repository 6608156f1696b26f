/**
 * How a pool gets from one configuration to another (Packrat, 3.7). Where instances are only added or only dropped, that
 * happens in place. Else active-passive: the passive set starts beside the active one, on cores that are free or, as far
 * as these do not suffice, on the active set's own; then it takes over what waits and what comes, and the other drains.
 * Up to that moment everything goes on as before, so that no request waits for a change and a failed one costs none.
 */
import {
  instancesOf,
  problemOf,
  sameConfiguration,
  scalesInPlace,
  threadsOf,
  withoutOne,
  type ConfigurationBounds,
} from './configuration.ts';
import { ConfiguredSet, threadsToAdd, type SetOwner } from './configured-set.ts';
import type { CoreLease } from './cores.ts';
import type { GiveUpCause } from './pool-machine.ts';
import type { PoolConfiguration, PoolState, Reconfiguration, ReconfigurationKind, Reconfigured } from './types.ts';

/** What a change needs of the pool beside what its sets need. */
export interface SetsOwner extends SetOwner {
  /** Has an instance ready to serve on demand, where anybody would wait for it. */
  readyOnDemand(): Promise<void>;
  /** Another set is in force, or none: what waits goes there. */
  activated(): void;
  reconfigured(outcome: Reconfigured): void;
}

interface Request {
  readonly configuration: PoolConfiguration | undefined;
  readonly cause: string;
  readonly startMs: number;
  readonly resolve: (outcome: Reconfiguration) => void;
}

type Ending =
  | { readonly state: 'done'; readonly kind: ReconfigurationKind }
  | { readonly state: 'refused' | 'failed'; readonly kind: ReconfigurationKind; readonly reason: string };

export class PoolSets {
  readonly #owner: SetsOwner;
  #active: ConfiguredSet | undefined;
  /** The passive set, until it takes over. */
  #starting: ConfiguredSet | undefined;
  /** What is being started, in place or beside. */
  #target: PoolConfiguration | undefined;
  readonly #draining = new Set<ConfiguredSet>();
  #underWay = false;
  #next: Request | undefined;

  constructor(owner: SetsOwner) {
    this.#owner = owner;
  }

  /** What serves; undefined: instances on demand. */
  get active(): ConfiguredSet | undefined {
    return this.#active;
  }

  /** Whether it is the passive set: what is in force ends once it is ready. */
  isStarting(set: ConfiguredSet): boolean {
    return set === this.#starting;
  }

  get starting(): PoolConfiguration | undefined {
    return this.#target;
  }

  get instances(): number {
    let count = 0;
    for (const set of this.#all()) count += set.instances;
    return count;
  }

  state(nowMs: number): PoolState['instances'] {
    return this.#all().flatMap((set) => set.state(nowMs));
  }

  configure(configuration: PoolConfiguration | undefined, cause: string): Promise<Reconfiguration> {
    return new Promise((resolve) => {
      const request = { configuration, cause, startMs: performance.now(), resolve };
      if (!this.#underWay) {
        this.#begin(request);
        return;
      }
      this.#supersedeNext();
      this.#next = request;
    });
  }

  /** Whether instances are about to be gone: after a change that is under way, or by their own runs' end. */
  get isChanging(): boolean {
    return this.#underWay || this.#draining.size > 0 || this.#active?.isLeaving === true;
  }

  /** Ends one instance of what is in force, so that another function has room for its first. */
  giveOne(): void {
    const set = this.#active;
    const fewer = set && withoutOne(set.configuration);
    if (set === undefined || fewer === undefined) {
      this.drop('room', 'room');
      return;
    }
    const from = set.configuration;
    set.shrink(fewer, 'room');
    const { key } = this.#owner.pool.spec;
    const outcome = { state: 'done', kind: 'scale', ms: 0, configuration: fewer } as const;
    this.#owner.reconfigured({ ...outcome, key, cause: 'room', from, to: fewer });
  }

  /** Back to instances on demand at once, without one being ready: whoever comes then waits for a load. */
  drop(cause: GiveUpCause, reason: string): void {
    const set = this.#active;
    this.#supersedeNext();
    this.#starting?.end(reason);
    if (set === undefined) return;
    const startMs = performance.now();
    const from = set.configuration;
    this.#active = undefined;
    this.#drain(set, cause);
    this.#owner.activated();
    const ms = performance.now() - startMs;
    const { key } = this.#owner.pool.spec;
    this.#owner.reconfigured({
      state: 'done',
      kind: 'switch',
      ms,
      configuration: undefined,
      key,
      cause: reason,
      from,
      to: undefined,
    });
  }

  /** Ends everything now. */
  end(reason: string): void {
    for (const set of this.#all()) set.end(reason);
  }

  /** The one that waits, if there is one, is not begun. */
  #supersedeNext(): void {
    const next = this.#next;
    if (next === undefined) return;
    this.#next = undefined;
    const inForce = this.#active?.configuration;
    const ms = performance.now() - next.startMs;
    this.#finish(next, inForce, { state: 'superseded', kind: 'none', ms, configuration: inForce });
  }

  #begin(request: Request): void {
    this.#underWay = true;
    const from = this.#active?.configuration;
    this.#change(request.configuration).then(
      (ending) => this.#ended(request, from, ending),
      (error: Error) => this.#ended(request, from, { state: 'failed', kind: 'none', reason: error.message }),
    );
  }

  #ended(request: Request, from: PoolConfiguration | undefined, ending: Ending): void {
    this.#target = undefined;
    const ms = performance.now() - request.startMs;
    this.#finish(request, from, { ...ending, ms, configuration: this.#active?.configuration });
    this.#underWay = false;
    const next = this.#next;
    this.#next = undefined;
    if (next !== undefined) this.#begin(next);
  }

  #finish(request: Request, from: PoolConfiguration | undefined, outcome: Reconfiguration): void {
    const { configuration: to, cause } = request;
    this.#owner.reconfigured({ ...outcome, key: this.#owner.pool.spec.key, cause, from, to });
    request.resolve(outcome);
  }

  async #change(to: PoolConfiguration | undefined): Promise<Ending> {
    const from = this.#active;
    if (to === undefined) return this.#toOnDemand(from);
    if (from !== undefined && sameConfiguration(from.configuration, to)) return { state: 'done', kind: 'none' };
    const { cores, pool } = this.#owner;
    const bounds: ConfigurationBounds = { cores: cores.total, batchFixed: pool.limits.batchFixed };
    const problem = problemOf(to, bounds);
    if (problem !== undefined) return { state: 'refused', kind: 'none', reason: problem };
    if (from !== undefined && scalesInPlace(from.configuration, to)) return this.#scale(from, to);
    return this.#switch(from, to);
  }

  async #toOnDemand(from: ConfiguredSet | undefined): Promise<Ending> {
    if (from === undefined) return { state: 'done', kind: 'none' };
    try {
      await this.#owner.readyOnDemand();
    } catch (error) {
      return { state: 'failed', kind: 'switch', reason: (error as Error).message };
    }
    // It may have been dropped meanwhile.
    if (this.#active !== from) return { state: 'done', kind: 'none' };
    this.#active = undefined;
    this.#drain(from, 'reconfigured');
    this.#owner.activated();
    return { state: 'done', kind: 'switch' };
  }

  async #scale(set: ConfiguredSet, to: PoolConfiguration): Promise<Ending> {
    const kind = 'scale';
    const added = threadsToAdd(set.configuration, to);
    if (added.length === 0) {
      set.shrink(to);
      return { state: 'done', kind };
    }
    const leases = this.#owner.cores.lease(this.#owner.pool.spec.key, added);
    if (leases === undefined) return { state: 'refused', kind, reason: this.#tooFewCores(to) };
    this.#target = to;
    try {
      await set.grow(to, leases);
    } catch (error) {
      return { state: 'failed', kind, reason: (error as Error).message };
    }
    return { state: 'done', kind };
  }

  async #switch(from: ConfiguredSet | undefined, to: PoolConfiguration): Promise<Ending> {
    const kind = 'switch';
    const leases = this.#leasesFor(to);
    if (leases === undefined) return { state: 'refused', kind, reason: this.#tooFewCores(to) };
    const set = new ConfiguredSet(to, leases, this.#owner);
    this.#starting = set;
    this.#target = to;
    try {
      await set.start();
    } catch (error) {
      this.#drain(set, 'reconfigured');
      return { state: 'failed', kind, reason: (error as Error).message };
    } finally {
      this.#starting = undefined;
    }
    this.#active = set;
    if (from !== undefined) this.#drain(from, 'reconfigured');
    this.#owner.activated();
    return { state: 'done', kind };
  }

  /** On free cores if that can be, else on the pool's own as well. */
  #leasesFor(to: PoolConfiguration): CoreLease[] | undefined {
    const threads = instancesOf(to).map((each) => each.threads);
    const { cores, pool } = this.#owner;
    return cores.lease(pool.spec.key, threads) ?? cores.lease(pool.spec.key, threads, { beside: true });
  }

  #tooFewCores(to: PoolConfiguration): string {
    const { cores, pool } = this.#owner;
    const usable = cores.available(pool.spec.key, true);
    return (
      `its instances need ${threadsOf(to)} cores, none of them across sockets, but ` +
      `${usable.join(' + ')} by socket are free or its own (the others are leased to other functions)`
    );
  }

  #drain(set: ConfiguredSet, cause: GiveUpCause): void {
    this.#draining.add(set);
    void set.drain(cause).then(() => this.#draining.delete(set));
  }

  #all(): ConfiguredSet[] {
    return [this.#active, this.#starting, ...this.#draining].filter((set) => set !== undefined);
  }
}
