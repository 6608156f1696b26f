/** The CPU pools as a place of the scheduler: what they offer, whose session goes, and runs that it has placed there. */
import {
  CpuError,
  createCpuPools,
  heldUpMs,
  type CpuPools,
  type CpuPoolsOptions,
  type InvokeOptions,
  type PoolInput,
  type PoolResult,
} from '../cpu/index.ts';
import { sessionBytesOf } from '../hardware/index.ts';
import type { CpuOffer, CpuPlace, Observation } from '../schedule/index.ts';
import type { LiveScheduler } from './live-scheduler.ts';
import type { Scheduled } from './live-views.ts';
import type { InvocationTerms, LiveSchedulerOptions, Placed, ScheduledSettings } from './types.ts';
import { cpuRefusal } from './words.ts';

/** A little more than the time for an answer to go out and the next call to come in. */
const handedAheadMs = 2;

/** What a run of a function asks of the CPU, as far as its pool does not know. */
export interface CpuNeed {
  readonly settings: ScheduledSettings;
  readonly threads: number;
  readonly modelBytes: number;
  /** Predicted time of a run; undefined: learnt from runs. */
  readonly latencyMs: number | undefined;
}

/** The function whose session goes, and the one that gets its memory. */
export interface MakesRoom {
  readonly key: string;
  readonly by: string;
}

export interface LiveCpuOptions extends Omit<CpuPoolsOptions, 'onShort' | 'onIdle' | 'onMeasured'> {
  /** Undefined: there is no such function. */
  readonly needOf: (key: string) => CpuNeed | undefined;
  /** Called before a session ends to make room for another function. */
  readonly onMakesRoom?: (room: MakesRoom) => void;
}

export class LiveCpu {
  readonly pools: CpuPools;
  readonly #options: LiveCpuOptions;
  #live: LiveScheduler | undefined;
  /** As last asked for: while a session comes or goes, it would be in neither of the books, or in both. */
  #takenBytes = 0;
  /** Functions whose instances have changed. */
  readonly #toAsk = new Set<string>();

  constructor(options: LiveCpuOptions) {
    this.#options = options;
    this.pools = createCpuPools({
      ...options,
      onFacts: (facts) => {
        options.onFacts?.(facts);
        this.#know(facts.key)?.session(facts.key, facts);
        this.#changed();
        this.#askSoon(facts.key);
      },
      onMeasured: () => this.#measured(),
      onIdle: (idle) => this.#know(idle.key)?.sessionIdle(idle),
      onShort: (wanted) => {
        this.#measured();
        this.#know(wanted.key)?.roomWanted(wanted);
      },
    });
  }

  /** What a scheduler needs to have this place; it is told of changes once {@link join} has been called. */
  get asPlace(): Pick<LiveSchedulerOptions, 'cpu' | 'cpuOffer' | 'evictCpu' | 'makeSession'> {
    return {
      cpu: this.place(),
      cpuOffer: (key) => this.offer(key),
      evictCpu: ({ key, isSpare, isIdle, by }) => {
        if (by !== undefined) this.#options.onMakesRoom?.({ key, by });
        // A function that has just been removed has none.
        void this.pools.evict(key, { isSpare, isIdle }).catch(() => undefined);
      },
      makeSession: async (key) => {
        // Why it could not be made stands in the function's log; its next call tries again.
        await this.pools.load(key, { isForgiving: false }).catch(() => undefined);
        return this.pools.facts(key) ?? { bytes: 0, spares: 0 };
      },
    };
  }

  /** From now on it is a place of this scheduler. */
  join(live: LiveScheduler): void {
    this.#live = live;
  }

  /** Cores without a lease, and the memory of all functions. */
  place(): CpuPlace {
    return {
      cores: this.pools.coresShared,
      memoryBytes: this.pools.resources().memoryBytes,
      takenBytes: this.#takenBytes,
      aheadMs: handedAheadMs,
      holdMsMax: heldUpMs,
    };
  }

  /** The pool's offer for a function; unmeasured figures are left undefined, and learnt. */
  offer(key: string): CpuOffer | null {
    const need = this.#options.needOf(key);
    if (need === undefined) return null;
    const { modelBytes, latencyMs } = need;
    const { loadMs, list, isPinned = false, callsPerRun = 1, sessionBytes } = this.pools.facts(key) ?? {};
    // While others have leased cores, its threads share those that are left.
    const threads = Math.min(need.threads, this.pools.coresShared);
    const bytes = sessionBytes ?? sessionBytesOf(modelBytes);
    return { latencyMs, cores: threads / callsPerRun, loadMs, bytes, list, isPinned };
  }

  /** Why the pools can never run the function, as things are; undefined if they can. */
  refusal(key: string, { threads, modelBytes }: Pick<CpuNeed, 'threads' | 'modelBytes'>): string | undefined {
    const { list, sessionBytes: bytes = sessionBytesOf(modelBytes) } = this.pools.facts(key) ?? {};
    const place = this.place();
    const cores = Math.min(threads, place.cores);
    return list !== undefined ? undefined : cpuRefusal(key, { bytes, cores }, place);
  }

  /**
   * Runs an invocation here when the scheduler says so, for machines that have no other place.
   *
   * @throws CpuError
   */
  async run(version: Scheduled, input: PoolInput, terms: InvocationTerms, options: InvokeOptions): Promise<PoolResult> {
    const placed = await this.#placed(version, terms);
    const startMs = performance.now();
    try {
      const result = await this.pools.invoke(version.key, input, options);
      placed.done(observationOf(result, performance.now() - startMs));
      return waited(result, placed);
    } catch (error) {
      placed.done();
      throw error;
    }
  }

  async #placed({ key, settings }: Scheduled, terms: InvocationTerms): Promise<Extract<Placed, { kind: 'cpu' }>> {
    if (this.#live === undefined) throw new CpuError('stopping', 'there is no scheduler yet');
    const placed = await this.#live.submit({ key, settings }, undefined, terms);
    if (placed.kind === 'cpu') return placed;
    const refusal = placed.kind === 'nowhere' ? placed.refusals.at(-1) : undefined;
    throw new CpuError('queue-full', refusal ?? `${key} has no place on this CPU`);
  }

  /** The scheduler, which knows the function from here on: one that nobody has called can have a session too. */
  #know(key: string): LiveScheduler | undefined {
    const need = this.#options.needOf(key);
    if (need !== undefined) this.#live?.functions.of(key, need.settings);
    return this.#live;
  }

  #measured(): void {
    this.#takenBytes = this.pools.memoryTakenBytes();
    this.#changed();
  }

  #changed(): void {
    this.#live?.setCpu(this.place());
  }

  /** Not in the midst of the scheduler's actions, which may be what has changed the pool. */
  #askSoon(key: string): void {
    this.#toAsk.add(key);
    if (this.#toAsk.size > 1) return;
    queueMicrotask(() => {
      const keys = [...this.#toAsk];
      this.#toAsk.clear();
      for (const each of keys) this.#live?.functions.askAnew(each);
    });
  }
}

/**
 * What the scheduler learns from a run here.
 *
 * @param elapsedMs from the call of the pool to its answer @param awayMs of it, how long its handler waited for others
 */
export function observationOf(
  { timings, coldStart }: PoolResult,
  elapsedMs: number,
  awayMs = 0,
): Observation & { readonly coreMs: number } {
  const { loadMs, preprocessMs, inferMs, postprocessMs } = timings;
  const coreMs = Math.max(0, preprocessMs + inferMs + postprocessMs - awayMs);
  return { runMs: Math.max(0, elapsedMs - awayMs - loadMs), coreMs, loadMs: coldStart ? loadMs : undefined };
}

/** Waiting for a place counts as waiting too; behind a load of the same session it was a cold start. */
export function waited(
  result: PoolResult,
  { queueMs, loadMs }: { readonly queueMs: number; readonly loadMs: number },
): PoolResult {
  if (queueMs === 0 && loadMs === 0) return result;
  const { timings, coldStart } = result;
  return {
    ...result,
    timings: { ...timings, queueMs: timings.queueMs + queueMs, loadMs: timings.loadMs + loadMs },
    coldStart: coldStart || loadMs > 0,
  };
}
