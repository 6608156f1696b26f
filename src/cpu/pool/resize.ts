/**
 * How a pool gets from one list of instances to another (Packrat, 3.7). If instances are only added or only dropped,
 * the change happens in place. Otherwise it goes active-passive: the passive list starts beside the active one, on free
 * cores and, if these do not suffice, on the active list's own. Then it takes over all calls, and the old list drains.
 * Until that moment the old list serves as before, so no request waits for a change and a failed change costs none. Cores
 * and memory of both are reserved at once, before anything starts: a change that does not fit is refused.
 */
import {
  stoppedText,
  type CpuError,
  type GiveUpCause,
  type PoolConfiguration,
  type PoolState,
  type Reconfiguration,
  type ReconfigurationKind,
} from '../types.ts';
import { stepTo, withoutOne } from './configuration.ts';
import { coresIn } from '../../schedule/index.ts';
import type { Reservation } from '../instance/index.ts';
import type { CoreLease } from './cores.ts';
import { InstanceList, noRoomText } from './instance-list.ts';
import type { ListOwner } from './list-owner.ts';

type Ending =
  | { readonly state: 'done'; readonly kind: ReconfigurationKind }
  | { readonly state: 'refused' | 'failed'; readonly kind: ReconfigurationKind; readonly reason: string };

export class PoolLists {
  readonly #pool: ListOwner;
  /** What serves. */
  active: InstanceList;
  /** The passive list, until it takes over. */
  #starting: InstanceList | undefined;
  /** The configuration that is being started, in place or beside. */
  #target: PoolConfiguration | undefined;
  readonly #draining = new Set<InstanceList>();

  constructor(pool: ListOwner) {
    this.#pool = pool;
    this.active = new InstanceList(pool);
  }

  /** Being started beside it. */
  get starting(): PoolConfiguration | undefined {
    return this.#target;
  }

  get instances(): number {
    return this.#all().reduce((sum, list) => sum + list.slots.instances, 0);
  }

  /** Without those of the list that is about to take over: its memory is reserved beside them. */
  get bytes(): number {
    const lists = [this.active, ...this.#draining];
    return lists.reduce((sum, list) => sum + list.slots.bytes(this.#pool.resources.processes), 0);
  }

  state(): PoolState['instances'] {
    return this.#all().flatMap((list) => list.slots.state(this.#pool.resources.processes));
  }

  async configure(to: PoolConfiguration, cause: string): Promise<Reconfiguration> {
    const startMs = performance.now();
    const from = this.active.configuration;
    let ending: Ending;
    if (this.#target !== undefined) ending = { state: 'refused', kind: 'none', reason: 'another change is under way' };
    else {
      this.#target = to;
      try {
        ending = await this.#change(to);
      } catch (error) {
        ending = { state: 'failed', kind: 'none', reason: (error as Error).message };
      }
      this.#target = undefined;
    }
    const ms = performance.now() - startMs;
    const outcome = { ...ending, ms, configuration: this.active.configuration };
    this.#tell(outcome, cause, from, to);
    return outcome;
  }

  /** Ends one of several instances. */
  giveOne(cause: 'room' | 'idle'): void {
    const from = this.active.configuration;
    if (from === undefined) {
      this.active.giveOne(cause);
      return;
    }
    const to = withoutOne(from);
    if (to === undefined) return;
    this.active.shrink(to, cause);
    this.#tell({ state: 'done', kind: 'scale', ms: 0, configuration: to }, cause, from, to);
  }

  /**
   * Releases everything at once, without starting an on-demand instance: the next caller waits for a load. Resolves
   * when the last run has ended and all memory is free.
   */
  async drop(cause: GiveUpCause): Promise<void> {
    const from = this.active;
    this.#starting?.end(cause);
    const startMs = performance.now();
    this.#activate(new InstanceList(this.#pool), cause);
    if (from.configuration !== undefined) {
      const ms = performance.now() - startMs;
      this.#tell({ state: 'done', kind: 'switch', ms, configuration: undefined }, cause, from.configuration, undefined);
    }
    await Promise.all([...this.#draining].map((list) => list.whenEmpty()));
  }

  /** Ends everything now. */
  end(reason: string): void {
    for (const list of this.#all()) list.end(reason);
  }

  #tell(
    outcome: Reconfiguration,
    cause: string,
    from: PoolConfiguration | undefined,
    to: PoolConfiguration | undefined,
  ): void {
    const { resources } = this.#pool;
    resources.events.onReconfigured?.({ ...outcome, key: this.#pool.spec.key, cause, from, to });
    resources.factsChanged(this.#pool.spec.key);
  }

  async #change(to: PoolConfiguration): Promise<Ending> {
    const from = this.active;
    const stopped = this.#pool.conduct.stopped(performance.now());
    if (stopped !== undefined)
      return { state: 'refused', kind: 'none', reason: stoppedText(stopped, performance.now()) };
    const { batchFixed } = this.#pool.limits;
    const odd = to.groups.find(({ batch }) => batchFixed !== undefined && batch !== batchFixed);
    if (odd !== undefined) {
      const reason = `its instances take ${odd.batch} rows each, but the model's batch dimension is fixed to ${batchFixed}`;
      return { state: 'refused', kind: 'none', reason };
    }
    const step = stepTo(from.configuration, to);
    const { kind } = step;
    if (kind === 'none') return { state: 'done', kind };
    if (kind === 'scale' && step.added.length === 0) {
      from.shrink(to);
      return { state: 'done', kind };
    }
    const leases = this.#pool.resources.cores.leaseFor(this.#pool.spec.key, step);
    if (leases === undefined) return { state: 'refused', kind, reason: this.#tooFewCores(to) };
    const reservation = await this.#reserve(leases);
    if (reservation === undefined) return { state: 'refused', kind, reason: noRoomText };
    if (this.active !== from) return givenBack(kind, leases, reservation);
    if (kind === 'switch') return this.#switch(from, to, leases, reservation);
    try {
      await from.extend(to, leases, reservation);
    } catch (error) {
      return { state: 'failed', kind, reason: (error as CpuError).message };
    }
    return { state: 'done', kind };
  }

  async #switch(
    from: InstanceList,
    to: PoolConfiguration,
    leases: readonly CoreLease[],
    reservation: Reservation,
  ): Promise<Ending> {
    const kind = 'switch';
    const list = new InstanceList(this.#pool, to, leases);
    this.#starting = list;
    try {
      await list.start(reservation);
    } catch (error) {
      this.#drain(list, 'reconfigured');
      return { state: 'failed', kind, reason: (error as CpuError).message };
    } finally {
      this.#starting = undefined;
    }
    // The list may have been dropped meanwhile.
    if (this.active !== from) {
      this.#drain(list, 'reconfigured');
      return givenBack(kind);
    }
    this.#activate(list, 'reconfigured', () => this.#pool.resources.tookOver(this.#pool.spec.key));
    return { state: 'done', kind };
  }

  /** @param begun called before anything of the old list ends */
  #activate(list: InstanceList, cause: GiveUpCause, begun?: () => void): void {
    const from = this.active;
    this.active = list;
    this.#draining.add(from);
    begun?.();
    this.#drain(from, cause);
    this.#pool.pump();
  }

  /** The memory of an instance for each lease, beside those that serve; else the leases end. */
  async #reserve(leases: readonly CoreLease[]): Promise<Reservation | undefined> {
    const { facts, resources, spec } = this.#pool;
    const bytes = facts.sessionBytes(spec) + facts.runBytes(spec);
    const sessionsBytes = leases.map(() => bytes);
    const reservation = await resources.processes.reserve(spec.key, sessionsBytes);
    if (reservation === undefined) for (const lease of leases) lease[Symbol.dispose]();
    return reservation;
  }

  #tooFewCores(to: PoolConfiguration): string {
    const usable = this.#pool.resources.cores.available(this.#pool.spec.key, true);
    return (
      `its instances need ${coresIn(to)} cores, none of them across sockets, but ` +
      `${usable.join(' + ')} by socket are free or its own (the others are leased to other functions)`
    );
  }

  #drain(list: InstanceList, cause: GiveUpCause): void {
    this.#draining.add(list);
    void list.drain(cause).then(() => this.#draining.delete(list));
  }

  #all(): InstanceList[] {
    return [this.active, this.#starting, ...this.#draining].filter((list) => list !== undefined);
  }
}

/** The list that was to change was dropped meanwhile: what the change holds goes back. */
function givenBack(kind: ReconfigurationKind, ...held: readonly (readonly Disposable[] | Disposable)[]): Ending {
  for (const each of held.flat()) each[Symbol.dispose]();
  return { state: 'failed', kind, reason: 'its instances were given back meanwhile' };
}
