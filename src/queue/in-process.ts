/** The overflow queue without Redis: bounded, in memory, its takers in this process. It ends with the process. */
import { CpuError, type InvokeOptions, type PoolInput, type PoolResult } from '../cpu/index.ts';
import { predictedMs, shareMs } from './predict.ts';
import { QueueError } from './types.ts';
import type { OverflowOffer, OverflowQueue, OverflowResult, QueueState, Taker, WorkerState } from './types.ts';

export interface InProcessQueueOptions {
  readonly takers: readonly Taker[];
  /** Invocations that may wait; more are refused with {@link QueueError} `queue-full`. */
  readonly waitingMax: number;
}

interface Waiting {
  readonly key: string;
  readonly input: PoolInput;
  readonly options: InvokeOptions;
  readonly resolve: (result: OverflowResult) => void;
  readonly reject: (error: Error) => void;
  /** Takers that were gone when it was theirs. */
  readonly refusedBy: Set<Taker>;
  readonly onAbort: () => void;
}

const lowestPriority = 2 ** 31;

export function createInProcessQueue(options: InProcessQueueOptions): OverflowQueue {
  return new InProcessQueue(options);
}

class InProcessQueue implements OverflowQueue {
  readonly #takers: readonly Taker[];
  readonly #waitingMax: number;
  /** In the order in which they are handed out. */
  readonly #waiting: Waiting[] = [];
  readonly #running = new Map<Taker, Map<string, number>>();
  readonly #answered: Record<string, number> = {};
  readonly #sinceMs = Date.now();
  readonly #quiet: (() => void)[] = [];
  #runningCount = 0;
  #movedElsewhere = 0;
  #stopping = false;

  constructor({ takers, waitingMax }: InProcessQueueOptions) {
    this.#takers = takers;
    this.#waitingMax = waitingMax;
    for (const taker of takers) this.#running.set(taker, new Map());
  }

  submit(key: string, input: PoolInput, options: InvokeOptions = {}): Promise<OverflowResult> {
    return new Promise((resolve, reject) => {
      if (this.#stopping) throw new QueueError('stopping', 'the overflow queue is stopping and takes no new work');
      if (options.signal?.aborted) throw new CpuError('cancelled', 'the client is gone');
      if (!this.#takers.some((taker) => taker.capacity(key) !== undefined)) {
        throw new QueueError('no-worker', `nobody takes invocations of ${key}`);
      }
      const onAbort = (): void => {
        const at = this.#waiting.indexOf(waiting);
        if (at === -1) return; // It runs: whoever runs it has the same signal.
        this.#waiting.splice(at, 1);
        reject(new CpuError('cancelled', 'the client is gone'));
      };
      const waiting: Waiting = { key, input, options, resolve, reject, refusedBy: new Set(), onAbort };
      if (this.#startNow(waiting)) return;
      if (this.#waiting.length >= this.#waitingMax) {
        throw new QueueError('queue-full', `${this.#waitingMax} invocations wait for overflow already, the limit`);
      }
      this.#enqueue(waiting);
    });
  }

  offer(key: string): OverflowOffer | undefined {
    let best: OverflowOffer | undefined;
    for (const taker of this.#takers) {
      const capacity = taker.capacity(key);
      if (capacity === undefined) continue;
      const ms = predictedMs(capacity, this.#backlogMs(taker), 0);
      if (best === undefined || ms < best.predictedMs) best = { worker: taker.name, predictedMs: ms };
    }
    return best;
  }

  workers(): readonly WorkerState[] {
    return this.#takers.map((taker) => {
      const keys = new Set([...(this.#running.get(taker)?.keys() ?? []), ...this.#waiting.map(({ key }) => key)]);
      const functions = Array.from(keys, (key) => [key, taker.capacity(key)] as const).filter(
        ([, capacity]) => capacity !== undefined,
      );
      return {
        id: taker.name,
        name: taker.name,
        cores: taker.cores,
        startedAtMs: this.#sinceMs,
        draining: this.#stopping,
        outstanding: sum(this.#running.get(taker)),
        backlogMs: this.#backlogMs(taker),
        cacheBytes: 0,
        cacheBytesMax: 0,
        functions: Object.fromEntries(functions) as WorkerState['functions'],
      };
    });
  }

  state(): QueueState {
    return {
      kind: 'in-process',
      health: { status: 'up', sinceMs: this.#sinceMs },
      outstanding: this.#waiting.length + this.#runningCount,
      answered: { ...this.#answered },
      movedElsewhere: this.#movedElsewhere,
      // Nobody but the one that runs an invocation has it here.
      lateAnswers: 0,
    };
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([
      new Promise<void>((resolve) => {
        this.#quiet.push(resolve);
        this.#checkQuiet();
      }),
      new Promise<void>((resolve) => {
        timer = setTimeout(resolve, graceMs);
      }),
    ]);
    clearTimeout(timer);
    for (const waiting of this.#waiting.splice(0)) {
      this.#settle(waiting);
      waiting.reject(new QueueError('stopping', 'the overflow queue is stopping'));
    }
  }

  #backlogMs(taker: Taker): number {
    let backlogMs = 0;
    for (const [key, count] of this.#running.get(taker) ?? []) {
      const capacity = taker.capacity(key);
      if (capacity !== undefined) backlogMs += count * shareMs(capacity, taker.cores);
    }
    for (const { key } of this.#waiting) {
      const capacity = taker.capacity(key);
      if (capacity !== undefined) backlogMs += shareMs(capacity, taker.cores) / this.#takers.length;
    }
    return backlogMs;
  }

  /** By priority, then by arrival. */
  #enqueue(waiting: Waiting): void {
    const priority = waiting.options.priority ?? lowestPriority;
    const at = this.#waiting.findIndex(({ options }) => (options.priority ?? lowestPriority) > priority);
    if (at === -1) this.#waiting.push(waiting);
    else this.#waiting.splice(at, 0, waiting);
    waiting.options.signal?.addEventListener('abort', waiting.onAbort, { once: true });
  }

  #startNow(waiting: Waiting): boolean {
    const taker = this.#freeTaker(waiting);
    if (taker === undefined) return false;
    void this.#run(waiting, taker);
    return true;
  }

  #freeTaker({ key, refusedBy }: Waiting): Taker | undefined {
    let free: { taker: Taker; ms: number } | undefined;
    for (const taker of this.#takers) {
      const capacity = refusedBy.has(taker) ? undefined : taker.capacity(key);
      if (capacity === undefined || (this.#running.get(taker)?.get(key) ?? 0) >= capacity.slots) continue;
      const ms = predictedMs(capacity, this.#backlogMs(taker), 0);
      if (free === undefined || ms < free.ms) free = { taker, ms };
    }
    return free?.taker;
  }

  async #run(waiting: Waiting, taker: Taker): Promise<void> {
    const { key, input, options, resolve, reject } = waiting;
    const running = this.#running.get(taker) ?? new Map<string, number>();
    running.set(key, (running.get(key) ?? 0) + 1);
    this.#runningCount++;
    let outcome: PoolResult | Error;
    try {
      if (options.deadlineMs !== undefined && options.deadlineMs <= performance.now()) {
        throw new CpuError('deadline-passed', 'the deadline passed while the invocation was waiting');
      }
      outcome = await taker.run(key, input, options);
    } catch (error) {
      outcome = error instanceof Error ? error : new Error(String(error));
    }
    const left = (running.get(key) ?? 1) - 1;
    if (left === 0) running.delete(key);
    else running.set(key, left);
    this.#runningCount--;
    if (!(outcome instanceof Error)) {
      this.#answered[taker.name] = (this.#answered[taker.name] ?? 0) + 1;
      resolve({ result: outcome, worker: taker.name });
    } else if (outcome instanceof CpuError && outcome.code === 'stopping') this.#moveElsewhere(waiting, taker);
    else reject(outcome);
    this.#pump();
    this.#checkQuiet();
  }

  #moveElsewhere(waiting: Waiting, gone: Taker): void {
    waiting.refusedBy.add(gone);
    const others = this.#takers.some(
      (taker) => !waiting.refusedBy.has(taker) && taker.capacity(waiting.key) !== undefined,
    );
    if (!others) {
      waiting.reject(new QueueError('worker-gone', `${gone.name} is gone, and nobody else takes ${waiting.key}`));
      return;
    }
    this.#movedElsewhere++;
    if (!this.#startNow(waiting)) this.#enqueue(waiting);
  }

  #pump(): void {
    for (let at = 0; at < this.#waiting.length;) {
      const waiting = this.#waiting[at];
      if (waiting !== undefined && this.#startNow(waiting)) {
        this.#waiting.splice(at, 1);
        this.#settle(waiting);
      } else at++;
    }
  }

  #settle({ options, onAbort }: Waiting): void {
    options.signal?.removeEventListener('abort', onAbort);
  }

  #checkQuiet(): void {
    if (this.#waiting.length > 0 || this.#runningCount > 0) return;
    for (const resolve of this.#quiet.splice(0)) resolve();
  }
}

function sum(counts: ReadonlyMap<string, number> | undefined): number {
  let total = 0;
  for (const count of counts?.values() ?? []) total += count;
  return total;
}
