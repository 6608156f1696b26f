/** Whether a failed load is tried again in another process: the model may be fine although the process was not. */
import { LoadTimeout } from '../instance/index.ts';
import { backoffMs } from '../../tools/index.ts';
import type { CpuError } from '../types.ts';

/** Deaths in the middle of a load, in a row, before the load counts as failed. */
const deathsMax = 3;
/** The same for a model that has been loaded before: the cause is something else, for example short memory. */
const deathsMaxOfLoaded = 8;
/** Pause after `deathsMax` deaths; doubled with each further death. */
const pauseMs = 100;
/** Timeouts allowed for a model that is known to load faster: its callers have waited long by then. */
const timeoutsMax = 2;

/** The tries of one load. */
export class LoadTries {
  #deaths = 0;
  #timeouts = 0;

  /** Whether one has failed, so that the next should get a fresh process. */
  get any(): boolean {
    return this.#deaths + this.#timeouts > 0;
  }

  /**
   * Counts a failed try.
   *
   * @param loadedBefore an instance has loaded the model within its limit, so the model is not too slow
   * @param isBystander its process ended because of another function
   */
  mayGoOn(error: CpuError, loadedBefore: boolean, isBystander: boolean): boolean {
    if (isBystander) return true;
    if (error instanceof LoadTimeout) return ++this.#timeouts < timeoutsMax && loadedBefore;
    return error.code === 'instance-died' && ++this.#deaths < (loadedBefore ? deathsMaxOfLoaded : deathsMax);
  }

  /** Before the next try. */
  get pauseMs(): number {
    return this.#deaths < deathsMax ? 0 : backoffMs(pauseMs, this.#deaths - deathsMax);
  }
}
