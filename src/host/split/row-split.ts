/**
 * SERF's third parallelism: one request of many rows runs in parts on several lanes at the same time, on the CPU here,
 * at the workers and at other hosts of the fleet, and is put together again in order. Where a part runs here is the
 * scheduler's decision, as for any invocation; lanes beyond those here are other hosts, one each.
 */
import { invokeParts, type InvokeOptions, type PoolInput } from '../../cpu/index.ts';
import type { PartTold, Ran } from '../placement.ts';
import type { FunctionVersion } from '../types.ts';
import { evenParts, nodesFor } from './nodes.ts';
import { RowCost } from './row-cost.ts';

/** Runs of one length that are enough to try what half of the rows take. */
const runsBeforeTrial = 3;
/** Of what is counted: the share that the latest has. */
const share = 0.2;
/** The last part that is out is tried a second time once it takes so many times what a second try would. */
const patience = 2;

export interface RowSplitOptions {
  /** See LiveScheduler.lanesOf. */
  readonly lanesOf: (key: string) => Lanes;
  readonly now?: () => number;
  /** Resolves after so many milliseconds; rejects when the signal aborts. */
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

/** What is known of one version. */
interface Learnt {
  readonly cost: RowCost;
  /** What a part takes beside its run; undefined before the first. */
  overheadMs: number | undefined;
  /** Smoothed time between requests of several rows. */
  gapMs: number;
  lastMs: number | undefined;
  /** Its outputs have a row for each row. */
  isSeparable: boolean;
}

export interface Lanes {
  readonly lanes: number;
  readonly roundTripMs: number;
}

/** @param lane of a part, counted from 0; undefined for a request that is not split */
export type RunPart = (input: PoolInput, options: InvokeOptions, lane?: number) => Promise<Ran>;

export class RowSplit {
  readonly #options: RowSplitOptions;
  readonly #now: () => number;
  readonly #learnt = new Map<string, Learnt>();
  /** Requests that ran in parts, and parts that were tried a second time. */
  requests = 0;
  hedged = 0;

  constructor(options: RowSplitOptions) {
    this.#options = options;
    this.#now = options.now ?? ((): number => performance.now());
  }

  forget(key: string): void {
    this.#learnt.delete(key);
  }

  /** Runs a request by `run`, in parts where that is faster by what has been seen. */
  run(
    version: FunctionVersion,
    input: PoolInput,
    rows: number,
    options: InvokeOptions,
    run: RunPart,
    elsewhere: Lanes = { lanes: 0, roundTripMs: 0 },
  ): Promise<Ran> {
    if (!canSplit(version, input)) return run(input, options);
    return this.#runSplit(version, input, rows, options, run, elsewhere);
  }

  async #runSplit(
    version: FunctionVersion,
    input: PoolInput & { kind: 'tensors' },
    rows: number,
    options: InvokeOptions,
    run: RunPart,
    elsewhere: Lanes,
  ): Promise<Ran> {
    const learnt = this.#of(version.key);
    const parts = rows > 1 ? this.#partsFor(version.key, learnt, rows, elsewhere) : [rows];
    if (parts.length > 1) {
      const ran = await this.#inParts(input, parts, learnt, options, run);
      if (ran !== undefined) return ran;
      learnt.isSeparable = false;
    }
    const ran = await run(input, options);
    this.#observe(learnt, rows, ran, undefined);
    return ran;
  }

  #of(key: string): Learnt {
    let learnt = this.#learnt.get(key);
    if (learnt === undefined) {
      learnt = { cost: new RowCost(), overheadMs: undefined, gapMs: Infinity, lastMs: undefined, isSeparable: true };
      this.#learnt.set(key, learnt);
    }
    return learnt;
  }

  #partsFor(key: string, learnt: Learnt, rows: number, elsewhere: Lanes): readonly number[] {
    const nowMs = this.#now();
    if (learnt.lastMs !== undefined) {
      const gapMs = nowMs - learnt.lastMs;
      learnt.gapMs = learnt.gapMs === Infinity ? gapMs : learnt.gapMs + share * (gapMs - learnt.gapMs);
    }
    learnt.lastMs = nowMs;
    const here = this.#options.lanesOf(key);
    const lanes = here.lanes === 0 ? 0 : here.lanes + elsewhere.lanes;
    const roundTripMs = Math.max(here.roundTripMs, elsewhere.roundTripMs);
    if (!learnt.isSeparable || lanes < 2) return [rows];
    const { cost } = learnt;
    // Where all requests have one length, only a part tells what fewer rows take.
    if (cost.ms(rows) === undefined) return evenParts(rows, cost.count < runsBeforeTrial ? 1 : 2);
    const nodes = nodesFor({
      rows,
      msOf: (count) => cost.ms(count)!,
      overheadMs: learnt.overheadMs ?? roundTripMs,
      ratePerSecond: learnt.gapMs === Infinity ? 0 : 1000 / Math.max(learnt.gapMs, 1e-3),
      lanes,
    });
    return evenParts(rows, nodes);
  }

  /** Undefined where the outputs cannot be put together. */
  async #inParts(
    input: PoolInput & { kind: 'tensors' },
    parts: readonly number[],
    learnt: Learnt,
    options: InvokeOptions,
    run: RunPart,
  ): Promise<Ran | undefined> {
    const ran: Ran[] = [];
    let last = 0;
    let begun = 0;
    const others = new Countdown(parts.length - 1);
    const result = await invokeParts(input, parts, options, async (part, own) => {
      const index = begun++;
      const startMs = this.#now();
      const one = await this.#hedged(part, own, { rows: parts[index]!, lane: index }, learnt, others, run);
      others.count();
      this.#observe(learnt, parts[index]!, one, this.#now() - startMs);
      ran[index] = one;
      last = index;
      return one.result;
    });
    if (result === undefined) return undefined;
    this.requests++;
    const told = ran.map(({ placement }, index): PartTold => ({ rows: parts[index]!, placement }));
    // Where the request as a whole ran is where it was waited for longest.
    return { result, placement: { ...ran[last]!.placement, parts: told } };
  }

  /** One part, and a second try of it once it is the only one out and takes longer than a second try would. */
  async #hedged(
    part: PoolInput,
    options: InvokeOptions,
    { rows, lane }: { readonly rows: number; readonly lane: number },
    learnt: Learnt,
    others: Countdown,
    run: RunPart,
  ): Promise<Ran> {
    const over = new AbortController();
    const signal = options.signal === undefined ? over.signal : AbortSignal.any([options.signal, over.signal]);
    const settled = new AbortController();
    const settle = (): void => settled.abort();
    const startMs = this.#now();
    const first = run(part, { ...options, signal }, lane);
    const firstIsOver = first.then(settle, settle);
    const second = async (): Promise<Ran> => {
      await Promise.race([others.done, firstIsOver]);
      settled.signal.throwIfAborted();
      const expectedMs = (learnt.cost.ms(rows) ?? Infinity) + (learnt.overheadMs ?? 0);
      if (expectedMs === Infinity) throw new Error('what a part takes is not known yet');
      await this.#options.sleep(Math.max(0, startMs + patience * expectedMs - this.#now()), settled.signal);
      this.hedged++;
      // The lanes of the other parts are free by now.
      return await run(part, { ...options, signal }, lane === 0 ? 1 : 0);
    };
    try {
      return await Promise.any([first, second()]);
    } catch {
      // Where both failed, the first tells why.
      return await first;
    } finally {
      over.abort();
    }
  }

  /** @param elapsedMs of a part, from its start to its answer */
  #observe(learnt: Learnt, rows: number, { result }: Ran, elapsedMs: number | undefined): void {
    const { timings, batchSize } = result;
    // A run that was shared with other requests, or found the session cold, says nothing of these rows.
    if (batchSize !== 1 || result.coldStart) return;
    learnt.cost.observe(rows, timings.inferMs);
    if (elapsedMs === undefined) return;
    const besideMs = Math.max(0, elapsedMs - timings.inferMs - timings.queueMs);
    learnt.overheadMs =
      learnt.overheadMs === undefined ? besideMs : learnt.overheadMs + share * (besideMs - learnt.overheadMs);
  }
}

/** Resolves when so many have been counted. */
class Countdown {
  readonly done: Promise<void>;
  #left: number;
  #resolve!: () => void;

  constructor(count: number) {
    this.#left = count;
    this.done = new Promise((resolve) => (this.#resolve = resolve));
  }

  count(): void {
    if (--this.#left === 0) this.#resolve();
  }
}

/**
 * Its setting for batching says that rows are independent of each other, and the model has one dimension 0 for all
 * inputs.
 */
function canSplit({ settings, metadata }: FunctionVersion, input: PoolInput): input is PoolInput & { kind: 'tensors' } {
  if (settings.batching.batchMax <= 1 || input.kind !== 'tensors') return false;
  if (input.tensors.some(({ datatype }) => datatype === 'BYTES')) return false;
  return metadata?.inputs.every(({ shape }) => shape[0] === -1) ?? false;
}
