/**
 * Host memory as a place: carries out the scheduler's orders to read weights from disk and to free them, and holds
 * functions there for work that the scheduler did not order.
 */
import type { Staged } from '../gpu/index.ts';
import type { Action, SchedulerEvent, FunctionId } from '../schedule/index.ts';
import { once } from '../tools/index.ts';
import type { LiveFunction } from './live-function.ts';
import { gpuErrorCode } from './types.ts';

/** Requests to the GPU process, which holds the memory. What `drop` frees is free for a later `stage`. */
export interface HostRunner {
  stage(key: string, layers: readonly number[]): Promise<Staged>;
  /** @param ofAll whichever functions have them */
  drop(key: string, layers: readonly number[], ofAll: boolean): Promise<number>;
}

export interface HostPlaceOptions {
  readonly runner: HostRunner;
  readonly tell: (event: SchedulerEvent) => void;
  /** Whether nothing of the function is on disk, and whether there can ever be room for it. */
  readonly isHere: (functionIndex: FunctionId) => boolean;
  readonly fits: (functionIndex: FunctionId) => boolean;
  /** Its weights cannot be read. */
  readonly onFailed: (fn: LiveFunction, error: unknown) => void;
  /** Work that held it is over. */
  readonly onReleased: (fn: LiveFunction) => void;
  readonly onDefect: (message: string) => void;
}

/**
 * What became of an attempt to bring a function to host memory. `too large`: there can never be room for it. `gone`: the
 * process with the memory has ended, or no longer knows the function.
 */
export type Holding = Disposable | 'too large' | 'gone';

type Outcome = 'here' | 'too large' | 'gone';

/**
 * Work that waits until its function is in host memory. The scheduler knows each: it reads what is held, so none waits
 * for a read that nobody orders.
 */
interface Waiting {
  readonly fn: LiveFunction;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (error: unknown) => void;
}

export class HostPlace {
  readonly #options: HostPlaceOptions;
  readonly #waiting = new Set<Waiting>();
  /** Counts lost processes: nothing is told of the orders to an earlier one. */
  #epoch = 0;
  isUp = false;

  constructor(options: HostPlaceOptions) {
    this.#options = options;
  }

  /** While it reads, no other function gets its number: what came of the read would be told of that one. */
  async stage(action: Extract<Action, { kind: 'stage' }>, fn: LiveFunction): Promise<void> {
    fn.outstanding++;
    await this.#read(action, fn);
    fn.outstanding--;
    this.#options.onReleased(fn);
  }

  async #read({ functionIndex, layers, bytes }: Extract<Action, { kind: 'stage' }>, fn: LiveFunction): Promise<void> {
    // A lost process reads nothing, and the scheduler is about to hear that all is lost.
    if (!this.isUp) return;
    const { runner, tell, onFailed } = this.#options;
    const epoch = this.#epoch;
    let staged: Staged;
    try {
      staged = await runner.stage(fn.key, layers);
    } catch (error) {
      if (epoch !== this.#epoch || gpuErrorCode(error) === 'died') return;
      tell({ kind: 'stage-failed', functionIndex });
      this.#end(fn, ({ reject }) => reject(error));
      // A function that the process does not know any more is being removed.
      if (gpuErrorCode(error) !== 'unknown-function') onFailed(fn, error);
      return;
    }
    if (epoch !== this.#epoch) return;
    if (staged.kind === 'refused') tell({ kind: 'stage-refused', functionIndex });
    else if (staged.bytes < bytes) {
      // Others had some of it: that tells nothing about the disk.
      tell({ kind: 'staged', functionIndex });
    } else tell({ kind: 'staged', functionIndex, observed: { ms: staged.ms, isCached: staged.isCached } });
  }

  drop({ layers, isShared = false }: Extract<Action, { kind: 'evict-host' }>, { key }: LiveFunction): void {
    // A lost process has freed everything already.
    if (!this.isUp) return;
    const epoch = this.#epoch;
    this.#options.runner.drop(key, layers, isShared).catch((error: unknown) => {
      const isOver = gpuErrorCode(error) === 'unknown-function' || epoch !== this.#epoch;
      if (!isOver && gpuErrorCode(error) !== 'died')
        this.#options.onDefect(`${key} could not free bytes of host memory: ${String(error)}`);
    });
  }

  /** Has the function in host memory until the result is disposed of; waits for room, and for the disk. */
  async hold(fn: LiveFunction): Promise<Holding> {
    const { tell, onReleased } = this.#options;
    const { index: functionIndex } = fn;
    if (!this.isUp || fn.hostBlocks === undefined) return 'gone';
    fn.outstanding++;
    const release = once(() => {
      tell({ kind: 'host-held', functionIndex, isHeld: false });
      fn.outstanding--;
      onReleased(fn);
    });
    try {
      const outcome = await new Promise<Outcome>((resolve, reject) => {
        this.#waiting.add({ fn, resolve, reject });
        tell({ kind: 'host-held', functionIndex, isHeld: true });
      });
      if (outcome === 'here') {
        await this.#confirm(fn);
        return { [Symbol.dispose]: release };
      }
      release();
      return outcome;
    } catch (error) {
      release();
      throw error;
    }
  }

  /**
   * Functions with the same layers may have given up some of its for all, before the scheduler knew that it has them too:
   * these are read again. The scheduler counts them as here.
   */
  async #confirm({ key, layers = [], hostBlocks = [] }: LiveFunction): Promise<void> {
    if (layers.every(({ id }) => id === undefined)) return;
    await this.#options.runner.stage(
      key,
      hostBlocks.flatMap((block) => block.layers ?? []),
    );
  }

  /** After each event of the scheduler: some of what waits may be here now, or can never be. */
  settle(): void {
    for (const waiting of this.#waiting) {
      const { index } = waiting.fn;
      const isHere = this.#options.isHere(index);
      if (!isHere && this.#options.fits(index)) continue;
      this.#waiting.delete(waiting);
      waiting.resolve(isHere ? 'here' : 'too large');
    }
  }

  /** @param fn undefined: of all functions */
  #end(fn: LiveFunction | undefined, end: (waiting: Waiting) => void): void {
    for (const waiting of this.#waiting) {
      if (fn !== undefined && waiting.fn !== fn) continue;
      this.#waiting.delete(waiting);
      end(waiting);
    }
  }

  /** The process knows the function no more. */
  forget(fn: LiveFunction): void {
    this.#end(fn, ({ resolve }) => resolve('gone'));
  }

  /** The process is gone, with all that it had. */
  lost(): void {
    this.isUp = false;
    this.#epoch++;
    this.#end(undefined, ({ resolve }) => resolve('gone'));
  }
}
