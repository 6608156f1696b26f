/** The instances of one function that come and go on demand: which hold the model, which are idle, and the cores of those at work. */
import type { Instance } from './instance.ts';
import type { PoolMachine } from './pool-machine.ts';
import type { Pool } from './pool.ts';

/** Messages that an instance may hold: the one that it is at and the one that lies ready. */
const messagesMax = 2;

export class OnDemandInstances {
  readonly #pool: Pool;
  readonly #machine: PoolMachine;
  /** Since when each is ready (performance.now()). */
  readonly #ready = new Map<Instance, number>();
  /** The most recently used last: the others can then grow old and be given back. */
  readonly #idle: Instance[] = [];
  /** Busy ones that wait for models that run elsewhere: their cores are lent to others. */
  readonly #lending = new Set<Instance>();
  #busy = 0;

  constructor(pool: Pool, machine: PoolMachine) {
    this.#pool = pool;
    this.#machine = machine;
  }

  get size(): number {
    return this.#ready.size;
  }

  /** How many are at work. */
  get busy(): number {
    return this.#busy;
  }

  get idle(): number {
    return this.#idle.length;
  }

  [Symbol.iterator](): IterableIterator<Instance> {
    return this.#ready.keys();
  }

  /** One that has become ready. */
  add(instance: Instance): void {
    this.#ready.set(instance, performance.now());
    this.#idle.push(instance);
  }

  /** How long it has been ready. */
  ageMs(instance: Instance, nowMs: number): number {
    return nowMs - (this.#ready.get(instance) ?? nowMs);
  }

  /** The one that has been idle for longest and could be given up, keeping `keep` ready ones. */
  longestIdle(keep: number): Instance | undefined {
    return this.#ready.size > keep ? this.#idle[0] : undefined;
  }

  /** An idle one, with cores to run on. */
  takeIdle(): Instance | undefined {
    if (this.#idle.length === 0 || !this.#machine.takeCores(this.#pool)) return undefined;
    this.#busy++;
    return this.#idle.pop();
  }

  /** A busy one that may have more work lying ready, or that only waits for models that run elsewhere. */
  takeAhead(callsPerMessage: number): Instance | undefined {
    let least: Instance | undefined;
    for (const instance of this.#ready.keys()) {
      if (instance.state !== 'busy') continue;
      const mayWait = callsPerMessage > 1 && instance.queued < messagesMax;
      if (!instance.hasFreeHand && !mayWait) continue;
      if (least === undefined || instance.queued < least.queued) least = instance;
    }
    return least;
  }

  /** Takes it out of the idle ones. */
  takeOut(instance: Instance): void {
    const at = this.#idle.indexOf(instance);
    if (at !== -1) this.#idle.splice(at, 1);
  }

  takeAllIdle(): readonly Instance[] {
    return this.#idle.splice(0);
  }

  /** It has been given work. */
  atWork(instance: Instance): void {
    if (this.#lending.delete(instance)) this.#machine.retakeCores(this.#pool);
  }

  /** Nothing is left for it to do until a model that runs elsewhere has been run. */
  waits(instance: Instance): void {
    if (instance.state !== 'busy' || instance.queued > 0 || this.#lending.has(instance)) return;
    if (!this.#ready.has(instance)) return;
    this.#lending.add(instance);
    this.#machine.giveCores(this.#pool);
  }

  /** It has nothing more to do; whether it is kept is for the pool to say. */
  rested(): void {
    this.#busy--;
    this.#machine.giveCores(this.#pool);
  }

  keep(instance: Instance): void {
    this.#idle.push(instance);
  }

  /**
   * It is gone. Gives since when it was ready, undefined where it was not.
   *
   * @param isExpected it was given back, and had no work then
   */
  lost(instance: Instance, isExpected: boolean): number | undefined {
    const readySinceMs = this.#ready.get(instance);
    if (readySinceMs === undefined) return undefined;
    this.#ready.delete(instance);
    const isLending = this.#lending.delete(instance);
    if (this.#idle.includes(instance)) {
      this.takeOut(instance);
    } else if (!isExpected) {
      this.#busy--;
      if (!isLending) this.#machine.giveCores(this.#pool);
    }
    return readySinceMs;
  }
}
