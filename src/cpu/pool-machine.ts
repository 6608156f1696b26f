/** What the pools of a machine share, as each of them sees it. */
import type { CoreAllocator } from './cores.ts';
import type { Instance } from './instance.ts';
import type { Pool } from './pool.ts';
import type { Reconfigured } from './types.ts';

/**
 * Why an instance is no more: its function was idle, another function needed room, it was unloaded, another configuration
 * came into force, or it died.
 */
export type GiveUpCause = 'idle' | 'room' | 'unload' | 'reconfigured' | 'died';

export interface TakeOptions {
  /** A process that starts now: one that was blank has failed. */
  readonly anew: boolean;
  /** Instances of the pool that the new one, with those begun before it, takes the place of: they count no longer. */
  readonly replaced: number;
}

/** What a pool asks of the machine that it shares with the other pools. */
export interface PoolMachine {
  readonly cores: CoreAllocator;
  /** Asks for `threads` cores for one more run; the first run of a function is always granted. */
  takeCores(pool: Pool): boolean;
  giveCores(pool: Pool): void;
  /** Cores for a run that had given them back while its model ran elsewhere: granted in any case. */
  retakeCores(pool: Pool): void;
  /** An instance to make a function of; undefined when there are too many and none can be taken from another pool yet. */
  takeInstance(pool: Pool, options: TakeOptions): Instance | undefined;
  /** Whether another pool has waited in vain for its first instance, so that this one should give up the one it holds. */
  wantsBack(pool: Pool): boolean;
  /** Where the prepared form of a model is that its instances share, made if need be; undefined where there is none. */
  sharedModelPath(pool: Pool): Promise<string | undefined>;
  /** The same, of a form that is there already; undefined at once where it is not. */
  sharedModelAtHand(pool: Pool): Promise<string | undefined> | undefined;
  sharedModelRefused(pool: Pool, problem: string): void;
  reconfigured(outcome: Reconfigured): void;
  /** Keeps an instance on demand off the cores that are leased. */
  pinOnDemand(instance: Instance): void;
  /** A model is loaded into one more instance. */
  loaded(pool: Pool, loadMs: number): void;
  /** A ready instance is no more; `reason` in words. */
  givenUp(pool: Pool, cause: GiveUpCause, ageMs: number, reason: string): void;
  /** A load is over, or an instance is gone: room for others. */
  instanceSettled(): void;
}
