import { mapped } from '../tools/index.ts';
import type { PoolConfiguration } from './batches.ts';
import type { Given, GpuId } from './ids.ts';
import type { Policy } from './policy.ts';
import { tuning } from './tuning.ts';

const { worthShare } = tuning.joining;

/**
 * The offer sheet: all that the scheduler knows about a function. Planners and engines fill it, the scheduler only
 * reads it. Functions that share a model share the parts of their sheets. A sheet is plain data and can travel as JSON.
 */
export interface OfferSheet {
  /** By GPU; null where it cannot run on a GPU. */
  readonly gpus: readonly (GpuOffer | null)[];
  readonly cpu: CpuOffer | null;
  /** On other places beside the GPUs, by their names. */
  readonly others?: Readonly<Record<string, SideOffer | null>>;
  /**
   * Its weights in pinned host memory, from which GPUs are loaded; left out: the function takes no part in the host tier.
   */
  readonly hostBlocks?: readonly HostBlock[];
  /** Milliseconds from arrival to answer. */
  readonly sloMs: number;
  /** The higher goes first among waiting invocations, within the policy's bound on waiting. */
  readonly priority: number;
  /** Once on a GPU it stays there. */
  readonly pinned: boolean;
  /** Overrides the policy's. */
  readonly admission?: Policy['admission'];
}

/** A part of a function's weights that is in host memory as a whole or not at all. */
export interface HostBlock {
  /** Names its content. Functions with the same block share it; left out: no other function has it. */
  readonly id?: string;
  /** The function's layers that it is made of, for the place that reads it; the same in each function that has it. */
  readonly layers?: readonly number[];
  readonly bytes: number;
  /** Layers execute from it, so it stays as long as anything of the function is on a GPU. Default false. */
  readonly isExecuted?: boolean;
}

/**
 * A function on one GPU. Residency is counted in layers in the order of execution: a *prefix* is how many of the layers
 * that the plan loads are there, from the first on. All tables below are indexed by the prefix that a start finds.
 */
export interface GpuOffer {
  /** Name of the plan; only a function with a single plan may leave it out. */
  readonly plan?: string;
  /** CPU cores that a run takes beside the GPU; 0 where it is left out. */
  readonly cores?: number;
  /** The next plan variant: it has less on the GPU, and all of its layers are in this variant too. See plan-variants.ts. */
  readonly smaller?: GpuOffer;
  /** Run time with every layer of the plan on the GPU. */
  readonly warmMs: number;
  /** Sizes of joined runs, ascending. Left out: calls run one by one. */
  readonly batches?: readonly BatchTime[];
  /** What other functions have as well; left out: nothing. The same in all variants, of which each has more than that. */
  readonly shared?: SharedPrefix;
  /** Bytes of each prefix, from 0 for nothing to those of everything. */
  readonly prefixBytes: readonly number[];
  /** The least prefix with which a start takes hardly longer than a warm one. */
  readonly overlapPrefix: number;
  /** Ways to load missing layers, the fastest first; the last uses only the GPU's own link. */
  readonly ways: readonly [LoadOption, ...LoadOption[]];
}

/**
 * The first layers of a function that are the same, byte for byte, as the first of other functions: a GPU has them once
 * for all of these. The bytes of their prefixes are the same in each of the functions' offers.
 */
export interface SharedPrefix {
  /** Its name. The functions that name it may share more or less of it. */
  readonly base: string;
  /** How many of the layers that the plan loads; all of them where the functions are twins. At least 1. */
  readonly layers: number;
}

/** A size of joined runs. A run with fewer rows is padded to it and takes as long. */
export interface BatchTime {
  readonly rows: number;
  /** Milliseconds of a run with all layers resident. */
  readonly ms: number;
}

/** How long a joined run of so many rows takes, relative to a single run. */
export interface BatchShare {
  readonly rows: number;
  readonly share: number;
}

/** One way to start with layers missing, as if nothing else used its links. */
export interface LoadOption {
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
  readonly link: Given<GpuId>;
  /** By prefix. */
  readonly bytes: readonly number[];
  /** By prefix, how long the link is busy when it has its switch to itself. */
  readonly ms: readonly number[];
  /** By prefix, the execution time left once the link's last byte has arrived. */
  readonly tailMs: readonly number[];
}

/** A function on the CPU. Times that were never measured are undefined, and learnt from the first runs. */
export interface CpuOffer {
  /** Milliseconds of a run that has its cores and its session. */
  readonly latencyMs: number | undefined;
  readonly cores: number;
  /** Time to make its session; left out: none is needed. */
  readonly loadMs?: number | undefined;
  /** Bytes of its session; left out: not counted. */
  readonly bytes?: number | undefined;
  /** Its own instances, with cores and sessions of their own; rows are calls here. */
  readonly list?: PoolConfiguration | undefined;
  /** Its session is closed after all others. */
  readonly isPinned?: boolean;
}

/** A scheduler is told again of a figure that has changed by more than this share. */
const worthTelling = 0.2;
/** Whether the scheduler need not be told of a figure that follows another. */
export const isClose = (now: number | undefined, before: number | undefined): boolean =>
  now === before || (now !== undefined && before !== undefined && Math.abs(now - before) <= worthTelling * before);

/** A function on a place beside the GPUs. */
export interface SideOffer {
  /** Milliseconds of a run there, without what the place adds to each: the round trip to the workers, say. */
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

/** How long a joined run of so many rows takes; Infinity where no size has room for them. */
export function batchMs(batches: readonly BatchTime[], rows: number): number {
  for (let index = 0; index < batches.length; index++) if (batches[index]!.rows >= rows) return batches[index]!.ms;
  return Infinity;
}

/** @param oneByOneMs total when the calls run one by one */
export const isWorthJoining = (joinedMs: number, oneByOneMs: number): boolean => joinedMs <= worthShare * oneByOneMs;

/** What is needed to tell how long waiting calls take a lane. */
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

/**
 * The prefix that a trim leaves: the one that hides the loading of the rest, and shared layers, which are not the
 * function's to give up.
 */
export const trimmedPrefix = ({ overlapPrefix, shared }: GpuOffer): number =>
  shared === undefined ? overlapPrefix : Math.max(overlapPrefix, shared.layers);

/** The prefix of all layers. */
export const wholePrefix = ({ prefixBytes }: GpuOffer): number => prefixBytes.length - 1;

/** Bytes of everything that the plan puts on the GPU. */
export const wholeBytes = ({ prefixBytes }: GpuOffer): number => prefixBytes[prefixBytes.length - 1]!;

const baseOffers = new WeakMap<GpuOffer, GpuOffer>();

/** The offer of the layers alone that a function shares: it loads them, and is as good as there with them. */
export function baseOffer(offer: GpuOffer): GpuOffer {
  let base = baseOffers.get(offer);
  if (base !== undefined) return base;
  const layers = offer.shared!.layers;
  const upTo = (table: readonly number[]): number[] => table.slice(0, layers + 1);
  // What a start takes that finds them is not what it takes to bring them.
  const without = (table: readonly number[]): number[] => upTo(table).map((value) => value - table[layers]!);
  const ways = mapped(offer.ways, ({ mode, coldMs, transfers }): LoadOption => ({
    mode,
    coldMs: upTo(coldMs),
    transfers: mapped(transfers, ({ link, bytes, ms, tailMs }) => ({
      link,
      bytes: without(bytes),
      ms: without(ms),
      tailMs: upTo(tailMs),
    })),
  }));
  base = {
    warmMs: offer.ways[offer.ways.length - 1]!.coldMs[layers]!,
    prefixBytes: upTo(offer.prefixBytes),
    overlapPrefix: Math.min(offer.overlapPrefix, layers),
    ways,
  };
  baseOffers.set(offer, base);
  return base;
}

/** What no GPU and none of a function's plans goes below. */
export interface LeastOfOffers {
  /** A start that finds no layers of the function's own, with idle links. Infinity: no GPU can run it. */
  readonly coldMs: number;
  /** A run with everything there. Infinity: no GPU can run it. */
  readonly warmMs: number;
  /** How long a GPU's own link carries all of its largest plan. Infinity: no GPU can run it. */
  readonly linkMs: number;
  /** Whether other functions may have layers of it. */
  readonly sharesLayers: boolean;
}

/** Functions of one model have one list, of an offer for each GPU. */
const leasts = new WeakMap<OfferSheet['gpus'], LeastOfOffers>();

export function leastOf(gpus: OfferSheet['gpus']): LeastOfOffers {
  let least = leasts.get(gpus);
  if (least !== undefined) return least;
  let coldMs = Infinity;
  let warmMs = Infinity;
  let linkMs = Infinity;
  for (const top of gpus) {
    if (top !== null) linkMs = Math.min(linkMs, top.ways[top.ways.length - 1]!.transfers[0].ms[0]!);
    for (let variant = top ?? undefined; variant !== undefined; variant = variant.smaller) {
      coldMs = Math.min(coldMs, leastColdMs(variant));
      warmMs = Math.min(warmMs, variant.warmMs);
    }
  }
  least = { coldMs, warmMs, linkMs, sharesLayers: gpus.some((offer) => offer?.shared !== undefined) };
  leasts.set(gpus, least);
  return least;
}

function leastColdMs(offer: GpuOffer): number {
  if (wholePrefix(offer) === 0) return 0;
  const { ways, shared } = offer;
  const found = shared?.layers ?? 0;
  return Math.min(ways[0].coldMs[found]!, ways[ways.length - 1]!.coldMs[found]!);
}

/** Whether an offer is one of a function's plan variants. */
export function isVariantOf(top: GpuOffer | null | undefined, offer: GpuOffer): boolean {
  for (let variant = top ?? undefined; variant !== undefined; variant = variant.smaller)
    if (variant === offer) return true;
  return false;
}

/** The variant with the plan that an action names; the largest one where none is named. */
export function variantNamed(top: GpuOffer, plan: string | undefined): GpuOffer {
  for (let variant: GpuOffer | undefined = top; variant !== undefined; variant = variant.smaller)
    if (variant.plan === plan) return variant;
  return top;
}

/** The variant with the same plan and the same layers; its times may differ. */
export function sameVariant(top: GpuOffer | null | undefined, offer: GpuOffer): GpuOffer | undefined {
  for (let variant = top ?? undefined; variant !== undefined; variant = variant.smaller) {
    if (variant.plan === offer.plan && hasSameLayers(variant, offer)) return variant;
  }
  return undefined;
}

const hasSameLayers = (a: GpuOffer, b: GpuOffer): boolean =>
  a.shared?.base === b.shared?.base && a.shared?.layers === b.shared?.layers && sameBytes(a, b);

/** Whether the layers of two offers of one function can be the same. */
export function sameBytes(a: GpuOffer, b: GpuOffer): boolean {
  if (a.prefixBytes === b.prefixBytes) return true;
  return a.prefixBytes.length === b.prefixBytes.length && a.prefixBytes.every((bytes, i) => bytes === b.prefixBytes[i]);
}

/** Bytes of the smallest variant that a function can be resident under as a whole. */
export function leastBytes(top: GpuOffer): number {
  let bytes = wholeBytes(top);
  for (let variant = top.smaller; variant !== undefined; variant = variant.smaller)
    bytes = wholeBytes(variant) || bytes;
  return bytes;
}

/** @param functionName for the message @throws RangeError for an invalid list of variants, or invalid shared layers */
export function checkVariants(functionName: string, top: GpuOffer): void {
  const { shared } = top;
  if (shared !== undefined && !(shared.layers >= 1 && shared.layers <= wholePrefix(top)))
    throw new RangeError(`${functionName} shares ${shared.layers} layers, and its plan loads ${wholePrefix(top)}`);
  if (top.smaller === undefined) return;
  const plans = new Set<string>();
  for (let variant: GpuOffer | undefined = top; variant !== undefined; variant = variant.smaller) {
    if (variant.shared?.base !== shared?.base || variant.shared?.layers !== shared?.layers)
      throw new RangeError(`plan '${variant.plan}' of ${functionName} shares other layers than the plan before it`);
    if (shared !== undefined && wholePrefix(variant) === shared.layers)
      throw new RangeError(`plan '${variant.plan}' of ${functionName} has no layers beside those that it shares`);
    if (variant.plan === undefined) throw new RangeError(`a plan in the variants of ${functionName} has no name`);
    if (plans.has(variant.plan)) throw new RangeError(`${functionName} has two plans named '${variant.plan}'`);
    plans.add(variant.plan);
    if (variant.smaller !== undefined && wholeBytes(variant.smaller) >= wholeBytes(variant)) {
      throw new RangeError(
        `plan '${variant.smaller.plan}' of ${functionName} keeps no less on the GPU than '${variant.plan}', which is before it`,
      );
    }
  }
}

/** Factors for an offer's execution and loading times, and what is added to the end of every start. */
interface OfferFactors {
  readonly warm: number;
  readonly cold: number;
  /** Default 0. */
  readonly lateMs?: number;
}

/** The same offer on a machine that is slower by these factors, with later ends. */
export function scaledOffer(offer: GpuOffer, factors: OfferFactors): GpuOffer {
  const { warm, lateMs = 0 } = factors;
  const warmMs = offer.warmMs * warm;
  const batches = offer.batches?.map(({ rows, ms }) => ({ rows, ms: ms * warm + lateMs }));
  return {
    ...offer,
    ...(offer.smaller === undefined ? {} : { smaller: scaledOffer(offer.smaller, factors) }),
    ...(batches && { batches }),
    warmMs: warmMs + lateMs,
    ways: mapped(offer.ways, (way) => scaledWay(way, warmMs, factors)),
  };
}

function scaledWay(way: LoadOption, warmMs: number, { warm, cold, lateMs = 0 }: OfferFactors): LoadOption {
  const transfers = mapped(way.transfers, (transfer) => ({
    ...transfer,
    ms: transfer.ms.map((ms) => ms * cold),
    tailMs: transfer.tailMs.map((ms, prefix) => ms * warm + (transfer.bytes[prefix] === 0 ? 0 : lateMs)),
  }));
  // With all layers there a start is a warm one; no start is faster.
  const coldMs = way.coldMs.map((ms) => Math.max(warmMs, ms * cold) + lateMs);
  return { ...way, coldMs, transfers };
}
