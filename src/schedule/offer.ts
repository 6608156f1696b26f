import type { Policy } from './policy.ts';

/**
 * The offer sheet: all that the scheduler knows of a function. Planners and engines fill it, the scheduler only reads
 * it. Sheets of functions that share a model share its parts; a sheet is plain data and can travel as JSON.
 */
export interface OfferSheet {
  /** By GPU; null where it cannot run on a GPU. */
  readonly gpus: readonly (GpuOffer | null)[];
  readonly cpu: CpuOffer | null;
  readonly workers?: WorkersOffer | null;
  /** Of its weights in pinned host memory, from where GPUs are loaded; left out: it takes no part in the host tier. */
  readonly hostBytes?: number;
  /** Milliseconds from arrival to answer. */
  readonly sloMs: number;
  /** Of waiting invocations the higher goes first, as far as the queue's bound allows. */
  readonly priority: number;
  /** Once on a GPU it stays there. */
  readonly pinned: boolean;
  /** In place of the policy's. */
  readonly admission?: Policy['admission'];
}

/**
 * A function on one GPU. Residency goes by layers in the order of execution: a *prefix* is a count of the layers that
 * the plan loads, from the first on. All tables below are indexed by the prefix that a start finds on the GPU.
 */
export interface GpuOffer {
  /** Which of the function's plans this is; only a function with a single one may leave it out. */
  readonly plan?: string;
  /** CPU cores that a run takes beside the GPU; 0 where it is left out. */
  readonly cores?: number;
  /**
   * The next rung of the function's ladder: a plan with less on the GPU, all of it layers that this one has there too.
   * See rungs.ts for what is done with it.
   */
  readonly smaller?: GpuOffer;
  /** With every layer that the plan loads on the GPU. */
  readonly warmMs: number;
  /** Sizes of joined runs, ascending. Left out: calls run one by one. */
  readonly batches?: readonly BatchTime[];
  /** Bytes of each prefix, from 0 for nothing to those of everything. */
  readonly prefixBytes: readonly number[];
  /** The least prefix with which a start takes hardly longer than a warm one. */
  readonly hidingPrefix: number;
  /** Ways to load what is missing, the fastest first; the last takes no other link than the GPU's own. */
  readonly ways: readonly [ColdWay, ...ColdWay[]];
}

/** A size of joined runs. Fewer rows run in it as well, padded, and take as long. */
export interface BatchTime {
  readonly rows: number;
  /** Of a run with every layer there. */
  readonly ms: number;
}

/** What a joined run of so many rows takes over a single run. */
export interface BatchShare {
  readonly rows: number;
  readonly share: number;
}

/** One way to start with layers missing, when nothing else uses its links. */
export interface ColdWay {
  /** The plan's mode: 'pipeswitch', 'dha', 'interleave', ... */
  readonly mode: string;
  /** By prefix, from the start of the loading to the answer. */
  readonly coldMs: readonly number[];
  /** The GPU's own link first. */
  readonly transfers: readonly [LinkTransfer, ...LinkTransfer[]];
}

/** What one PCIe link carries for a start. */
export interface LinkTransfer {
  /** The GPU whose link it is. */
  readonly link: number;
  /** By prefix. */
  readonly bytes: readonly number[];
  /** By prefix, how long the link is busy when it has its switch to itself. */
  readonly ms: readonly number[];
  /** By prefix, what is still to be executed once the link's last byte has arrived. */
  readonly tailMs: readonly number[];
}

/** A function on the CPU. What was never measured is undefined: it is learnt from the first runs. */
export interface CpuOffer {
  /** Of a run, once it has its cores and its session is there. */
  readonly latencyMs: number | undefined;
  readonly cores: number;
  /** Of making its session; left out: there is nothing to make. */
  readonly loadMs?: number | undefined;
  /** Of its session; left out: it counts nothing. */
  readonly bytes?: number | undefined;
  /** Runs that instances of its own take at once, with cores and sessions of their own. */
  readonly slots?: number;
}

/** A function on the workers. */
export interface WorkersOffer {
  /** Of a run there, the round trip left out. */
  readonly latencyMs: number | undefined;
}

/** The sizes of joined runs of up to so many rows: 2, 4, 8 and so on, and the most. */
export function batchSizes(rowsMax: number): number[] {
  const sizes: number[] = [];
  for (let rows = 2; rows < rowsMax; rows *= 2) sizes.push(rows);
  return rowsMax > 1 ? [...sizes, rowsMax] : [];
}

export const withBatches = (offer: GpuOffer, shares: readonly BatchShare[]): GpuOffer =>
  Object.assign({}, offer, { batches: shares.map(({ rows, share }) => ({ rows, ms: share * offer.warmMs })) });

/** What a joined run of so many rows takes; Infinity where no size has room for them. */
export function batchMs(batches: readonly BatchTime[], rows: number): number {
  for (let index = 0; index < batches.length; index++) if (batches[index]!.rows >= rows) return batches[index]!.ms;
  return Infinity;
}

/**
 * A joined run that saves less than a quarter of the time is not worth it: the calls in it end together, at its end,
 * and one by one the first of them would end sooner.
 */
const worthShare = 0.75;

/** @param oneByOneMs what the calls take without */
export const isWorthJoining = (joinedMs: number, oneByOneMs: number): boolean => joinedMs <= worthShare * oneByOneMs;

/** What says how long waiting calls take a lane. */
export interface LaneTimes {
  readonly warmMs: number;
  readonly batches?: readonly BatchTime[] | undefined;
}

/** Lane milliseconds of so many waiting calls, of a row each, when they are joined wherever that is shorter. */
export function laneMs({ warmMs, batches }: LaneTimes, calls: number): number {
  const largest = batches?.at(-1);
  if (batches === undefined || largest === undefined) return calls * warmMs;
  const full = Math.floor(calls / largest.rows);
  const rest = calls - full * largest.rows;
  const joined = (rows: number): number => {
    const ms = batchMs(batches, rows);
    return isWorthJoining(ms, rows * warmMs) ? ms : rows * warmMs;
  };
  return full * joined(largest.rows) + (rest === 0 ? 0 : joined(rest));
}

/** The prefix that is everything. */
export const wholePrefix = ({ prefixBytes }: GpuOffer): number => prefixBytes.length - 1;

/** Bytes of everything that the plan puts on the GPU. */
export const wholeBytes = ({ prefixBytes }: GpuOffer): number => prefixBytes[prefixBytes.length - 1]!;

/** The least that a start takes which finds nothing, with idle links, on any of the GPUs and under any of the plans. */
export function leastColdMs(gpus: OfferSheet['gpus']): number {
  let leastMs = Infinity;
  for (const top of gpus) {
    for (let rung = top ?? undefined; rung !== undefined; rung = rung.smaller) {
      const { ways } = rung;
      const coldMs = wholePrefix(rung) === 0 ? 0 : Math.min(ways[0].coldMs[0]!, ways[ways.length - 1]!.coldMs[0]!);
      if (coldMs < leastMs) leastMs = coldMs;
    }
  }
  return leastMs;
}
