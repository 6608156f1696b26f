/** What the live scheduler stores about a function and an invocation. */
import type { PoolFacts } from '../cpu/index.ts';
import {
  wholePrefix,
  withBatches,
  type CpuOffer,
  type GpuOffer,
  type HostBlock,
  type OfferSheet,
  type Scheduler,
  type SideId,
  type SideOffer,
  type FunctionId,
  type GpuId,
  type InvocationId,
} from '../schedule/index.ts';
import type { Tensor } from '../tensor/index.ts';
import { Correction } from './correction.ts';
import type { PlannedLayer, SharedLayers } from './families.ts';
import { WarmTimes } from './short-runs.ts';
import {
  toSchedulerPriority,
  type FunctionPlans,
  type InvocationTerms,
  type JoinedSizes,
  type LoadAhead,
  type OwnCause,
  type Placed,
  type ScheduledSettings,
} from './types.ts';

/** A layer as the GPU process tells of it. */
export interface FunctionLayer {
  readonly bytes: number;
  /** In host memory, where it is coded. */
  readonly codedBytes?: number;
  /** Equal in functions that have the same bytes up to its end. */
  readonly id?: string;
}

const hostBytesOf = ({ bytes, codedBytes }: FunctionLayer): number => codedBytes ?? bytes;

export const noSession = { bytes: 0, spares: 0 } as const;

export class LiveFunction {
  /** Its number with the scheduler. */
  readonly index: FunctionId;
  readonly key: string;
  settings: ScheduledSettings;
  isPinned = false;
  sheet: OfferSheet;
  cpu: CpuOffer | null = null;
  /** Those of the other places, by their names. */
  others: Readonly<Record<SideId, SideOffer | null>> = {};
  /** When these offers were last asked for. */
  refreshedMs = -Infinity;
  /** As they were made for it; undefined while it may not use GPUs. */
  ownPlans: FunctionPlans | undefined;
  /** The same with what it shares. */
  plans: FunctionPlans | undefined;
  /** The plans' offers, corrected by observations. */
  offers: readonly (GpuOffer | null)[] = [];
  correction = new Correction();
  /** When the offers were last corrected. */
  correctedMs = -Infinity;
  readonly warmTimes = new WarmTimes();
  /** Its layers; undefined before the GPU process ever knew it. */
  layers: readonly FunctionLayer[] | undefined;
  /** By GPU: what it shares there. */
  shared: readonly (SharedLayers | undefined)[] = [];
  /** The layers of each base that it shares or has shared, by its name. */
  readonly sharedLayers = new Map<string, readonly number[]>();
  /** Its weights for host memory; undefined while the GPU process does not know it. */
  hostBlocks: readonly HostBlock[] | undefined;
  /** Undefined while its calls run one by one. */
  joined: JoinedSizes | undefined;
  lastUseMs: number | undefined;
  /** Invocations that wait for a place, and invocations that have not ended. */
  waiting = 0;
  outstanding = 0;
  isRemoved = false;
  /** How often it shrank to a smaller plan, and grew to a larger one. */
  shrinks = 0;
  growths = 0;
  /** By GPU, when its first layers began to arrive; undefined where it has none. */
  readonly sinceMs: (number | undefined)[] = [];
  /** By GPU, when the latest load was ordered, and how much it loaded before the run. */
  readonly loadOrderedMs: number[] = [];
  readonly ahead: (LoadAhead | undefined)[] = [];
  /** While all its GPU memory is being freed: why; the scheduler has no GPU offers for it meanwhile. */
  withdrawal: { readonly cause: OwnCause; readonly over: Promise<void> } | undefined;
  /** What it has on the CPU, as its pool reported. */
  session: Pick<PoolFacts, 'bytes' | 'spares'> = noSession;
  /** Recent time of its runs on the CPU. */
  ownMs: number | undefined;
  /** Runs on the CPU that are making its session now, and how long the last such load took. */
  loadingRuns = 0;
  cpuLoadMs = 0;

  constructor(index: FunctionId, key: string, settings: ScheduledSettings, gpuCount: number) {
    this.index = index;
    this.key = key;
    this.settings = settings;
    this.sheet = sheetOf(this, gpuCount);
  }
}

export interface Pending {
  readonly id: InvocationId;
  readonly fn: LiveFunction;
  /** Undefined: its model cannot run before its handler. */
  readonly tensors: readonly Tensor[] | undefined;
  readonly arrivalMs: number;
  /** See {@link InvocationTerms}. */
  readonly sinceMs: number;
  readonly terms: InvocationTerms;
  /** Of its latest place. */
  resolve: (placed: Placed) => void;
  reject: (error: Error) => void;
  stage: 'waiting' | 'running' | 'over';
  /** The scheduler that has it; an earlier scheduler is told nothing more. */
  home: Scheduler | undefined;
  /** Stops watching whether its caller leaves. */
  settle: (() => void) | undefined;
  isCounted: boolean;
  hasWaited: boolean;
  /** It waited while another invocation loaded the session that it needs. */
  isBehindLoad: boolean;
  readonly refusals: string[];
  /** No GPU is to have it any more. */
  isKeptOff: boolean;
  /** Places beside the GPUs that have refused it. */
  refusedBy: readonly SideId[];
  /** A GPU found its input invalid. If another place answers it, the function was at fault. */
  invalid: unknown;
}

/** Its plans' current offers, with the sizes of joined runs. */
export function offersOf({ plans, joined, correction }: LiveFunction): readonly (GpuOffer | null)[] {
  if (plans === undefined) return [];
  return correction.offers(joined === undefined ? plans.offers : plans.offers.map((offer) => joining(offer, joined)));
}

/** By GPU: the layers of its plan, of several the largest, if others may have them. */
export function plannedLayers({
  ownPlans: plans,
  layers,
}: LiveFunction): readonly (readonly PlannedLayer[] | undefined)[] {
  if (plans === undefined || layers === undefined || layers.some(({ id }) => id === undefined)) return [];
  return plans.offers.map((offer, gpu) => {
    const planned = plans.planOf(gpu, plans.mode, offer.plan).layers.flatMap(({ method }, index) => {
      const { bytes, id } = layers[index]!;
      return bytes === 0 ? [] : [{ index, id: id!, bytes, isLoaded: method === 'load' }];
    });
    // Its prefixes are counted in these.
    return planned.filter(({ isLoaded }) => isLoaded).length === wholePrefix(offer) ? planned : undefined;
  });
}

/** The layers that a plan of its loads to a GPU, as its prefixes count them. */
export function loadedLayers(
  { plans, layers = [] }: LiveFunction,
  gpu: GpuId,
  variant: string | undefined,
): readonly (FunctionLayer & { readonly index: number })[] {
  const planned = plans?.planOf(gpu, plans.mode, variant).layers ?? [];
  return layers
    .map((layer, index) => ({ ...layer, index }))
    .filter(({ bytes, index }) => bytes > 0 && planned[index]?.method === 'load');
}

function joining(offer: GpuOffer, joined: JoinedSizes): GpuOffer {
  const { smaller } = offer;
  const variant = offer.plan === joined.variant ? withBatches(offer, joined.shares) : offer;
  return smaller === undefined ? variant : { ...variant, smaller: joining(smaller, joined) };
}

/**
 * Its layers in blocks: those that every GPU loads, and those that some GPU reads from host memory, of each those that it
 * shares and its own.
 */
export function hostBlocksOf({ plans, layers = [], shared }: LiveFunction): readonly HostBlock[] {
  const executed = new Set<number>();
  for (const gpu of plans?.offers.keys() ?? []) {
    for (const [layer, { method }] of plans!.planOf(gpu, plans!.mode).layers.entries())
      if (method === 'dha') executed.add(layer);
  }
  // Where GPUs share more or less of it, the first one's says.
  const [first] = shared;
  const sharedTo = first?.layers.at(-1)?.index;
  return [true, false].flatMap((isShared) =>
    [false, true].flatMap((isExecuted): HostBlock[] => {
      const own = layers.flatMap(({ bytes }, layer) =>
        bytes > 0 && (sharedTo !== undefined && layer <= sharedTo) === isShared && executed.has(layer) === isExecuted
          ? [layer]
          : [],
      );
      if (own.length === 0) return [];
      const bytes = own.reduce((sum, layer) => sum + hostBytesOf(layers[layer]!), 0);
      const id = isShared ? { id: `${layers[sharedTo!]!.id} ${isExecuted} ${own.join()}` } : {};
      return [{ ...id, bytes, isExecuted, layers: own }];
    }),
  );
}

/** The current offer sheet of a function. */
export function sheetOf(fn: LiveFunction, gpuCount: number): OfferSheet {
  const { settings, cpu, others, isPinned, offers, hostBlocks } = fn;
  const isOnGpus = fn.plans !== undefined && fn.withdrawal === undefined && offers.length === gpuCount;
  return {
    gpus: isOnGpus ? offers : Array.from({ length: gpuCount }, () => null),
    cpu,
    others,
    sloMs: settings.sloMs,
    priority: toSchedulerPriority(settings.priority),
    pinned: isPinned,
    ...(hostBlocks === undefined ? {} : { hostBlocks }),
    ...(settings.admission === undefined ? {} : { admission: settings.admission }),
  };
}
