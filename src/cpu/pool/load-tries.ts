/** Whether a load that failed is tried again with another process: a model may be fine where the process was not. */
import { LoadTimeout } from '../instance/index.ts';
import type { CpuError } from '../types.ts';

/** Processes that may end in the middle of a load, one after the other, before the load counts as failed. */
const deathsMax = 3;
/** The same for a model that has been loaded before: something else ends them, memory that is short for one. */
const deathsMaxOfLoaded = 8;
/** Before the try after `deathsMax` deaths; doubled with each death that follows. */
const pauseMs = 100;
/** Loads of a model known to take less that may run into their limit: whoever waits for one has waited for long. */
const timeoutsMax = 2;

/** The tries of one load. */
export class LoadTries {
  #deaths = 0;
  #timeouts = 0;

  /** Whether one has failed, so that the next is worth a process that nothing has happened to. */
  get any(): boolean {
    return this.#deaths + this.#timeouts > 0;
  }

  /**
   * Counts a try that has failed.
   *
   * @param loadedBefore an instance has loaded the model within its limit: it is not the model that takes too long
   * @param isBystander its process ended under another function
   */
  mayGoOn(error: CpuError, loadedBefore: boolean, isBystander: boolean): boolean {
    if (isBystander) return true;
    if (error instanceof LoadTimeout) return ++this.#timeouts < timeoutsMax && loadedBefore;
    return error.code === 'instance-died' && ++this.#deaths < (loadedBefore ? deathsMaxOfLoaded : deathsMax);
  }

  /** Before the next try. */
  get pauseMs(): number {
    return this.#deaths < deathsMax ? 0 : pauseMs * 2 ** (this.#deaths - deathsMax);
  }
}
