import { GpuError } from '../types.ts';

/** Lets one in at a time, in the order in which they came. */
export class Mutex {
  #isTaken = false;
  readonly #waiting: (() => void)[] = [];

  get isTaken(): boolean {
    return this.#isTaken;
  }

  /** Resolves with a lease when it is the caller's turn. @throws GpuError 'cancelled' when the signal is aborted before */
  async lock(signal?: AbortSignal): Promise<Disposable> {
    if (signal?.aborted === true) throw cancelled();
    if (!this.#isTaken) this.#isTaken = true;
    else await this.#turn(signal);
    let isOver = false;
    return {
      [Symbol.dispose]: () => {
        if (isOver) return;
        isOver = true;
        const next = this.#waiting.shift();
        if (next === undefined) this.#isTaken = false;
        else next();
      },
    };
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const enter = (): void => {
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(enter), 1);
        reject(cancelled());
      };
      this.#waiting.push(enter);
      signal?.addEventListener('abort', leave, { once: true });
    });
  }
}

export const cancelled = (): GpuError => new GpuError('cancelled', 'the run was cancelled by its caller');
