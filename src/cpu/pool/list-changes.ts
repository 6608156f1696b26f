/**
 * Changes of a pool's list of instances, as list-swaps.ts says, and what is told of them. Cores and memory of both lists are
 * reserved at once, before anything starts: a change that does not fit is refused.
 */
import {
  stoppedText,
  type CpuError,
  type GiveUpCause,
  type PoolConfiguration,
  type Reconfiguration,
} from '../types.ts';
import type { Reservation } from '../instance/index.ts';
import { noRoomText, type InstanceList } from './instance-list.ts';
import type { ListOwner } from './list-owner.ts';
import type { SwapEnding } from './list-swaps.ts';

export class ListChanges {
  readonly #pool: ListOwner;
  readonly #list: InstanceList;

  constructor(pool: ListOwner, list: InstanceList) {
    this.#pool = pool;
    this.#list = list;
  }

  async configure(to: PoolConfiguration, cause: string): Promise<Reconfiguration> {
    const startMs = performance.now();
    const from = this.#list.configuration;
    const ending = await this.#change(to);
    const ms = performance.now() - startMs;
    const outcome = { ...ending, ms, configuration: this.#list.configuration };
    this.#tell(outcome, cause, from, to);
    return outcome;
  }

  /** Ends one of several instances. */
  giveOne(cause: 'room' | 'idle'): void {
    const from = this.#list.configuration;
    if (from === undefined) {
      this.#list.giveOne(cause);
      return;
    }
    const to = this.#list.slots.giveOne(cause);
    if (to !== undefined) this.#tell({ state: 'done', kind: 'scale', ms: 0, configuration: to }, cause, from, to);
  }

  /**
   * Releases everything at once, without starting an on-demand instance: the next caller waits for a load. Resolves
   * when the last run has ended and all memory is free.
   */
  async drop(cause: GiveUpCause): Promise<void> {
    const from = this.#list.configuration;
    this.#list.slots.drop(cause);
    this.#pool.pump();
    if (from !== undefined)
      this.#tell({ state: 'done', kind: 'switch', ms: 0, configuration: undefined }, cause, from, undefined);
    await this.#list.whenDrained();
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

  async #change(to: PoolConfiguration): Promise<SwapEnding> {
    const { slots } = this.#list;
    const refusal = this.#refusal(to);
    if (refusal !== undefined) return { state: 'refused', kind: 'none', reason: refusal };
    const begun = slots.begin(to);
    if ('state' in begun) {
      this.#pool.pump();
      return begun;
    }
    const { kind, passive } = begun;
    try {
      const reservation = await this.#reserve(passive.length);
      if (reservation === undefined) {
        slots.giveUp(begun);
        return { state: 'refused', kind, reason: noRoomText };
      }
      await this.#list.start(passive, reservation);
    } catch (error) {
      slots.giveUp(begun);
      return { state: 'failed', kind, reason: (error as CpuError).message };
    }
    if (!slots.takeOver(begun, () => this.#pool.resources.tookOver(this.#pool.spec.key)))
      return { state: 'failed', kind, reason: 'its instances were given back meanwhile' };
    this.#pool.pump();
    return { state: 'done', kind };
  }

  /** Why the function cannot have this list, whatever is free. */
  #refusal({ groups }: PoolConfiguration): string | undefined {
    const stopped = this.#pool.conduct.stopped(performance.now());
    if (stopped !== undefined) return stoppedText(stopped, performance.now());
    const { batchFixed } = this.#pool.limits;
    const odd = groups.find(({ batch }) => batchFixed !== undefined && batch !== batchFixed);
    return (
      odd && `its instances take ${odd.batch} rows each, but the model's batch dimension is fixed to ${batchFixed}`
    );
  }

  /** The memory of so many instances, beside those that serve. */
  #reserve(instances: number): Promise<Reservation | undefined> {
    const { facts, resources, spec } = this.#pool;
    const bytes = facts.sessionBytes(spec) + facts.runBytes(spec);
    return resources.processes.reserve(spec.key, Array<number>(instances).fill(bytes));
  }
}
