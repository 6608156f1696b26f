/**
 * SERF's third parallelism: one request of many rows runs in parts on several lanes at once, on this CPU and on workers,
 * and the answers are joined in order. The scheduler picks the place of each part, as for any invocation.
 */
import { givesOptional, type InvokeOptions, type PoolInput } from '../../cpu/index.ts';
import { getOrMake, smoothed } from '../../tools/index.ts';
import type { PartTold, Ran } from '../calls/placement.ts';
import type { FunctionVersion } from '../types.ts';
import { rowsJoinedMax } from '../rollout/versions.ts';
import { evenParts, nodesFor } from './nodes.ts';
import { invokeParts } from './parts.ts';
import { RowCost } from './row-cost.ts';

/** Runs of one length after which the split tries halves. */
const runsBeforeTrial = 3;

export interface RowSplitOptions {
  /** See LiveScheduler.lanesOf. */
  readonly lanesOf: (key: string) => Lanes;
  /** How much longer a run takes as one of so many on this CPU; undefined: as long as alone. */
  readonly slowdownAt?: ((key: string, running: number) => number) | undefined;
  readonly now?: () => number;
}

/** What was learned about one version. */
interface Learnt {
  readonly cost: RowCost;
  /** Of the lanes, when they were last asked for. */
  here: number;
  /** Time that a part takes beside its run; undefined before the first part. */
  overheadMs: number | undefined;
  /** Smoothed time between requests of several rows. */
  gapMs: number;
  lastMs: number | undefined;
  /** Whether its outputs have one row for each row of input. */
  isSeparable: boolean;
}

export interface Lanes {
  readonly lanes: number;
  /** Those of this CPU. */
  readonly here: number;
  readonly roundTripMs: number;
}

export type RunPart = (input: PoolInput, options: InvokeOptions) => Promise<Ran>;

export class RowSplit {
  readonly #options: RowSplitOptions;
  readonly #now: () => number;
  readonly #learnt = new Map<string, Learnt>();
  /** Requests that ran in parts. */
  requests = 0;

  constructor(options: RowSplitOptions) {
    this.#options = options;
    this.#now = options.now ?? ((): number => performance.now());
  }

  forget(key: string): void {
    this.#learnt.delete(key);
  }

  /** Runs a request with `run`, in parts if earlier runs show that this is faster. */
  run(version: FunctionVersion, input: PoolInput, rows: number, options: InvokeOptions, run: RunPart): Promise<Ran> {
    if (!canSplit(version, input)) return run(input, options);
    return this.#runSplit(version, input, rows, options, run);
  }

  async #runSplit(
    version: FunctionVersion,
    input: PoolInput & { kind: 'tensors' },
    rows: number,
    options: InvokeOptions,
    run: RunPart,
  ): Promise<Ran> {
    const learnt = this.#of(version.key);
    const parts = rows > 1 ? this.#partsFor(version.key, learnt, rows) : [rows];
    if (parts.length > 1) {
      // The others of the request run beside each part.
      const slowdown = this.#slowdownAt(version.key, Math.min(parts.length, learnt.here));
      const ran = await this.#inParts(input, parts, { learnt, slowdown }, options, run);
      if (ran !== undefined) return ran;
      learnt.isSeparable = false;
    }
    const ran = await run(input, options);
    this.#observe(learnt, rows, ran, { slowdown: 1 });
    return ran;
  }

  #of(key: string): Learnt {
    return getOrMake(this.#learnt, key, () => ({
      cost: new RowCost(),
      here: 0,
      overheadMs: undefined,
      gapMs: Infinity,
      lastMs: undefined,
      isSeparable: true,
    }));
  }

  #partsFor(key: string, learnt: Learnt, rows: number): readonly number[] {
    const nowMs = this.#now();
    if (learnt.lastMs !== undefined) {
      const gapMs = nowMs - learnt.lastMs;
      learnt.gapMs = learnt.gapMs === Infinity ? gapMs : smoothed(learnt.gapMs, gapMs);
    }
    learnt.lastMs = nowMs;
    const { lanes, here, roundTripMs } = this.#options.lanesOf(key);
    learnt.here = here;
    if (!learnt.isSeparable || lanes < 2) return [rows];
    const { cost } = learnt;
    // If all requests have one length, only a part shows how long fewer rows take.
    if (cost.ms(rows) === undefined) return evenParts(rows, cost.count < runsBeforeTrial ? 1 : 2);
    const nodes = nodesFor({
      rows,
      msOf: (count) => cost.ms(count)!,
      overheadMs: learnt.overheadMs ?? roundTripMs,
      ratePerSecond: learnt.gapMs === Infinity ? 0 : 1000 / Math.max(learnt.gapMs, 1e-3),
      lanes,
      here,
      slowdownAt: (running) => this.#slowdownAt(key, running),
    });
    return evenParts(rows, nodes);
  }

  /** Undefined if the outputs cannot be joined. */
  async #inParts(
    input: PoolInput & { kind: 'tensors' },
    parts: readonly number[],
    { learnt, slowdown }: { readonly learnt: Learnt; readonly slowdown: number },
    options: InvokeOptions,
    run: RunPart,
  ): Promise<Ran | undefined> {
    const ran: Ran[] = [];
    let last = 0;
    let begun = 0;
    const result = await invokeParts(input, parts, options, async (part, own) => {
      const index = begun++;
      const startMs = this.#now();
      const one = await run(part, own);
      this.#observe(learnt, parts[index]!, one, { slowdown, elapsedMs: this.#now() - startMs });
      ran[index] = one;
      last = index;
      return one.result;
    });
    if (result === undefined) return undefined;
    this.requests++;
    const placements = ran.map(({ placement }, index): PartTold => ({ rows: parts[index]!, placement }));
    // The placement of the request is that of the part that took longest.
    return { result, placement: { ...ran[last]!.placement, parts: placements } };
  }

  #slowdownAt(key: string, running: number): number {
    return running < 2 ? 1 : (this.#options.slowdownAt?.(key, running) ?? 1);
  }

  /**
   * @param slowdown by what ran beside it
   * @param elapsedMs of a part, from its start to its answer
   */
  #observe(
    learnt: Learnt,
    rows: number,
    { result }: Ran,
    { slowdown, elapsedMs }: { readonly slowdown: number; readonly elapsedMs?: number },
  ): void {
    const { timings, batchSize } = result;
    // A run shared with other requests, or one with a cold session, tells nothing about these rows.
    if (batchSize !== 1 || result.coldStart) return;
    learnt.cost.observe(rows, timings.inferMs / slowdown);
    if (elapsedMs === undefined) return;
    const besideMs = Math.max(0, elapsedMs - timings.inferMs - timings.queueMs);
    learnt.overheadMs = smoothed(learnt.overheadMs, besideMs);
  }
}

/** Rows may be split where they may be joined. */
function canSplit(version: FunctionVersion, input: PoolInput): input is PoolInput & { kind: 'tensors' } {
  if (rowsJoinedMax(version) <= 1 || input.kind !== 'tensors') return false;
  if (givesOptional(input.tensors, version.metadata?.opening)) return false;
  return input.tensors.every(({ datatype }) => datatype !== 'BYTES');
}
