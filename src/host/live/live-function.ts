/** What the live scheduler keeps of a function and of an invocation. Nothing here runs. */
import {
  withBatches,
  type CpuOffer,
  type GpuOffer,
  type OfferSheet,
  type Scheduler,
  type WorkersOffer,
} from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import { Correction } from './correction.ts';
import {
  toSchedulerPriority,
  type FunctionPlans,
  type InvocationWish,
  type JoinedSizes,
  type LoadAhead,
  type OwnCause,
  type Placed,
  type ScheduledSettings,
} from './types.ts';

export interface LiveFunction {
  /** Its number with the scheduler. */
  readonly index: number;
  readonly key: string;
  settings: ScheduledSettings;
  isPinned: boolean;
  sheet: OfferSheet;
  cpu: CpuOffer | null;
  workers: WorkersOffer | null;
  /** When the offers beside the GPUs were asked for last. */
  refreshedMs: number;
  /** Undefined while no GPU may be used for it. */
  plans: FunctionPlans | undefined;
  /** Of the plans, as they look after what was observed. */
  offers: readonly (GpuOffer | null)[];
  correction: Correction;
  /** Undefined while its calls run one by one. */
  joined: JoinedSizes | undefined;
  lastUseMs: number | undefined;
  /** Invocations that wait for a place, and all that have not ended. */
  waiting: number;
  outstanding: number;
  isRemoved: boolean;
  /** How often it went to a smaller plan for room, and to a larger one again. */
  shrinks: number;
  growths: number;
  /** By GPU, when its first layers began to arrive; undefined where it has none. */
  readonly sinceMs: (number | undefined)[];
  /** By GPU, when the latest load was ordered, and what it brought before the run. */
  readonly loadOrderedMs: number[];
  readonly ahead: (LoadAhead | undefined)[];
  /** While everything of it is being freed, and why; the scheduler has no GPU offers of it meanwhile. */
  withdrawal: { readonly cause: OwnCause; readonly over: Promise<void> } | undefined;
  /** Of its session on the CPU, as its pool told. */
  sessionBytes: number;
  /** What its runs on the CPU have taken lately. */
  ownMs: number | undefined;
  /** Runs on the CPU that make its session now, and what the last such load took. */
  loadingRuns: number;
  cpuLoadMs: number;
}

export interface Pending {
  readonly id: number;
  readonly fn: LiveFunction;
  /** Undefined: its model cannot run before its handler has. */
  readonly tensors: readonly Tensor[] | undefined;
  readonly arrivalMs: number;
  readonly wish: InvocationWish;
  /** Of its latest place. */
  resolve: (placed: Placed) => void;
  reject: (error: Error) => void;
  stage: 'waiting' | 'running' | 'over';
  /** The scheduler that has it: an earlier one is told nothing any more. */
  home: Scheduler | undefined;
  /** Ends the wait for its caller's leaving. */
  settle: (() => void) | undefined;
  isCounted: boolean;
  hasWaited: boolean;
  /** It waited while another invocation made the session that it needs. */
  isBehindLoad: boolean;
  readonly refusals: string[];
  /** Places that have refused it. */
  isRefusedByCpu: boolean;
  isRefusedByWorkers: boolean;
  /** A GPU found its input invalid: the function's fault if another place answers it. */
  invalid: unknown;
}

export function newFunction(index: number, key: string, settings: ScheduledSettings, gpuCount: number): LiveFunction {
  const fn: Omit<LiveFunction, 'sheet'> & { sheet: OfferSheet | undefined } = {
    index,
    key,
    settings,
    isPinned: false,
    sheet: undefined,
    cpu: null,
    workers: null,
    refreshedMs: -Infinity,
    plans: undefined,
    offers: [],
    correction: new Correction(),
    joined: undefined,
    lastUseMs: undefined,
    waiting: 0,
    outstanding: 0,
    isRemoved: false,
    shrinks: 0,
    growths: 0,
    sinceMs: [],
    loadOrderedMs: [],
    ahead: [],
    withdrawal: undefined,
    sessionBytes: 0,
    ownMs: undefined,
    loadingRuns: 0,
    cpuLoadMs: 0,
  };
  const made = fn as LiveFunction;
  made.sheet = sheetOf(made, gpuCount);
  return made;
}

/** What its plans offer as it looks now, with the sizes of joined runs. */
export function offersOf({ plans, joined, correction }: LiveFunction): readonly (GpuOffer | null)[] {
  if (plans === undefined) return [];
  return correction.offers(joined === undefined ? plans.offers : plans.offers.map((offer) => joining(offer, joined)));
}

function joining(offer: GpuOffer, joined: JoinedSizes): GpuOffer {
  const { smaller } = offer;
  const rung = offer.plan === joined.variant ? withBatches(offer, joined.shares) : offer;
  return smaller === undefined ? rung : { ...rung, smaller: joining(smaller, joined) };
}

/** What the scheduler is to know of a function now. */
export function sheetOf(fn: LiveFunction, gpuCount: number): OfferSheet {
  const { settings, cpu, workers, isPinned, offers } = fn;
  const isOnGpus = fn.plans !== undefined && fn.withdrawal === undefined && offers.length === gpuCount;
  return {
    gpus: isOnGpus ? offers : Array.from({ length: gpuCount }, () => null),
    cpu,
    workers,
    sloMs: settings.sloMs,
    priority: toSchedulerPriority(settings.priority),
    pinned: isPinned,
    ...(settings.admission === undefined ? {} : { admission: settings.admission }),
  };
}
