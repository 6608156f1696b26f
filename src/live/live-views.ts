/** The live scheduler's state for headers, metrics and pages. Reading is never a use. */
import {
  type GpuOffer,
  type OfferSheet,
  type SchedulerGpu,
  Scheduler,
  type CpuPlace,
  instancesIn,
  named,
  type SideId,
  type SchedulerEvent,
  type Start,
  type Lanes,
  type HostTier,
  type HostWait,
  type Given,
  type GpuId,
} from '../schedule/index.ts';
import type {
  FunctionPlans,
  GpuEviction,
  GpuResident,
  LivePlace,
  LiveSchedulerOptions,
  ScheduledSettings,
} from './types.ts';
import { Families } from './families.ts';
import type { GpuPlace } from './gpu-place.ts';
import type { HostPlace } from './host-place.ts';
import type { LiveFunction, Pending } from './live-function.ts';

export abstract class LiveViews {
  protected readonly state: LiveState;

  protected constructor(state: LiveState) {
    this.state = state;
  }

  get counts(): LiveCounts {
    return this.state.tally.counts();
  }

  get gpus(): readonly SchedulerGpu[] {
    return this.state.gpus;
  }

  /**
   * Runs of the function that this CPU and the other places could do at once, and the longest way to one of these. None
   * while calls wait there, or if it may use GPUs: a GPU takes all rows of a request at once.
   */
  lanesOf(key: string): { readonly lanes: number; readonly here: number; readonly roundTripMs: number } {
    const { cpu, others, scheduler } = this.state;
    const sheet = this.sheetOf(key);
    const isCrowded = this.state.sides.some((place) => scheduler.waitingCount(place) > 0);
    if (this.has(key) || isCrowded) return { lanes: 0, here: 0, roundTripMs: 0 };
    // An offer for joined calls counts the cores of one call, but a part is a run of its own.
    const runs = cpu && sheet?.cpu ? Math.min(cpu.cores, Math.floor(cpu.cores / sheet.cpu.cores)) : 0;
    const here = Math.max(instancesIn(sheet?.cpu?.list), runs);
    let [lanes, roundTripMs] = [here, 0];
    for (const place of others) {
      const there = sheet?.others?.[place.id] ? this.state.laneCount(place.id) : 0;
      if (there === 0) continue;
      lanes += there;
      roundTripMs = Math.max(roundTripMs, place.roundTripMs);
    }
    return { lanes, here, roundTripMs };
  }

  /** Whether the function may use GPUs. */
  has(key: string): boolean {
    return this.state.functions.get(key)?.plans !== undefined;
  }

  plansOf(key: string): FunctionPlans | undefined {
    return this.state.functions.get(key)?.plans;
  }

  /** Milliseconds until the answer of an invocation that arrived now, at the best place; Infinity if none takes it. */
  predictMs(key: string, places: readonly (Given<GpuId> | SideId)[] = this.state.places): number {
    const fn = this.state.functions.get(key);
    if (fn === undefined) return Infinity;
    const nowMs = this.state.now();
    return Math.min(...places.map((place) => this.state.scheduler.predictEnd(fn.index, place, nowMs))) - nowMs;
  }

  /** See {@link Scheduler.cpuBacklogMs}. */
  get cpuBacklogMs(): number {
    return this.state.scheduler.cpuBacklogMs(this.state.now());
  }

  /** The scheduler's current offer sheet. */
  sheetOf(key: string): OfferSheet | undefined {
    return this.state.functions.get(key)?.sheet;
  }

  /**
   * Milliseconds of a run in the CPU pool and of a warm run on the best GPU; undefined: unknown, Infinity: no such
   * place.
   */
  runMsOf(key: string): { readonly cpu: number | undefined; readonly gpu: Given<GpuId> } {
    const fn = this.state.functions.get(key);
    const onGpus = fn?.offers.flatMap((offer) => offer?.warmMs ?? []) ?? [];
    const cpu = fn?.cpu === null ? Infinity : (fn?.cpu.latencyMs ?? fn?.ownMs);
    return { cpu, gpu: Math.min(Infinity, ...onGpus) };
  }

  /** A function's number with the scheduler, and the time since its latest invocation; undefined before the first. */
  placeOf(key: string) {
    const fn = this.state.functions.get(key);
    if (fn === undefined) return undefined;
    return {
      index: fn.index,
      /** It is known before it has plans, since its weights are held for checks and measurements. */
      isPlanned: fn.plans !== undefined,
      idleMs: fn.lastUseMs === undefined ? undefined : this.state.now() - fn.lastUseMs,
    };
  }

  /** What the function waits for that something needs in host memory. */
  hostWait(key: string): HostWait {
    const fn = this.state.functions.get(key);
    return fn === undefined ? 'nothing' : this.state.scheduler.hostWait(fn.index);
  }

  residentBytes(gpu: Given<GpuId>): number {
    return this.state.scheduler.residentBytes(gpu);
  }

  /** Bytes of weights in host memory as the scheduler knows them, including those being read. */
  get hostBytes(): number {
    return this.state.scheduler.hostBytes;
  }

  /** Share of the last seconds in which the GPU executed, including loads that executions waited for. */
  utilization(gpu: Given<GpuId>): number {
    return this.state.place?.utilization(named(gpu)) ?? 0;
  }

  /** Invocations that wait for a place. */
  get waitingCount(): number {
    return this.state.places.reduce<number>((sum, place) => sum + this.state.scheduler.waitingCount(place), 0);
  }

  /** The layers of a function on a GPU. */
  resident(key: string, gpu: Given<GpuId>): GpuResident {
    const fn = this.state.functions.get(key);
    const isThere = fn !== undefined && gpu < this.state.gpus.length;
    const resident = isThere ? this.state.scheduler.residentOffer(fn.index, gpu) : undefined;
    const offer = resident ?? fn?.sheet.gpus[gpu];
    if (!isThere || !offer) return { prefix: 0, whole: 0, bytes: 0, variant: undefined, shared: undefined };
    const prefix = this.state.scheduler.residentPrefix(fn.index, gpu);
    const bytes = offer.prefixBytes[prefix] ?? 0;
    const shared = prefix === 0 ? undefined : this.#sharedOf(fn, gpu, offer, prefix);
    return { prefix, whole: offer.prefixBytes.length - 1, bytes, variant: resident?.plan, shared };
  }

  #sharedOf(fn: LiveFunction, gpu: number, { shared, prefixBytes }: GpuOffer, prefix: number): GpuResident['shared'] {
    if (shared === undefined) return undefined;
    const keys = this.state.families.with(fn, gpu).map(({ key }) => key);
    return { base: shared.base, bytes: prefixBytes[Math.min(prefix, shared.layers)]!, keys };
  }

  /** How often a function shrank to a smaller plan, and grew to a larger one. */
  planChanges(key: string): { readonly shrinks: number; readonly growths: number } {
    return this.state.functions.get(key) ?? { shrinks: 0, growths: 0 };
  }

  /** Whether any layers of the function are being loaded to the GPU. */
  isLoading(key: string, gpu: Given<GpuId>): boolean {
    const index = this.state.functions.get(key)?.index;
    return index !== undefined && this.state.place?.isBusyWith(index, named(gpu)) === true;
  }

  keys(): IterableIterator<string> {
    return this.state.functions.keys();
  }
}

// What the parts of the live scheduler share: the scheduler itself, and its functions and invocations by number.

/** A version of a function, with what the scheduler goes by. */
export interface Scheduled {
  readonly key: string;
  readonly settings: ScheduledSettings;
}

export class LiveState {
  readonly options: LiveSchedulerOptions;
  readonly now: () => number;
  /** Tells the scheduler, and has its actions carried out. */
  readonly tell: (event: SchedulerEvent) => void;
  readonly functions = new Map<string, LiveFunction>();
  readonly byIndex: (LiveFunction | undefined)[] = [];
  readonly pending: (Pending | undefined)[] = [];
  readonly tally = new Tally();
  /** Which functions share their first layers. */
  readonly families = new Families<LiveFunction>();
  scheduler: Scheduler;
  gpus: readonly SchedulerGpu[] = [];
  /** Undefined until the GPUs are known. */
  place: GpuPlace | undefined;
  /** Pinned host memory; undefined until the GPUs are known. */
  host: { tier: HostTier; readonly place: HostPlace } | undefined;
  cpu: CpuPlace | null;
  /** Beside the CPU. */
  readonly others: readonly LivePlace[];
  readonly sides: readonly SideId[];
  /** What the scheduler runs calls on there. */
  #lanes: readonly Lanes[] = [];

  constructor(options: LiveSchedulerOptions, tell: (event: SchedulerEvent) => void) {
    this.options = options;
    this.now = options.now ?? performance.now.bind(performance);
    this.tell = tell;
    this.cpu = options.cpu;
    this.others = options.others ?? [];
    this.sides = ['cpu', ...this.others.map(({ id }) => id)];
    this.scheduler = this.newScheduler();
  }

  newScheduler(): Scheduler {
    const { gpus, cpu, host } = this;
    const others = this.others.map((place) => place.lanes());
    this.#lanes = others;
    return new Scheduler({ gpus, policy: this.options.policy, cpu, others, ...(host && { host: host.tier }) });
  }

  get places(): (Given<GpuId> | SideId)[] {
    return [...this.gpus.keys(), ...this.sides];
  }

  /** How many calls a place beside the CPU runs at once now. */
  laneCount(place: SideId): number {
    return this.#lanes.find(({ id }) => id === place)?.count ?? 0;
  }
}

/** Counts the scheduler's decisions. */
class Tally {
  /** Executions on GPUs that found all layers, some, or none there, or waited for the disk. */
  readonly starts: Record<Start, number> = { warm: 0, partial: 0, cold: 0, disk: 0 };
  readonly evictions = new Map<GpuEviction['cause'], number>();
  /** Resident functions that shrank for room, and that grew when there was room. */
  shrinks = 0;
  growths = 0;

  evicted(cause: GpuEviction['cause']): void {
    this.evictions.set(cause, (this.evictions.get(cause) ?? 0) + 1);
  }

  /** A snapshot: later decisions do not change it. */
  counts(): LiveCounts {
    return structuredClone(this);
  }
}

type LiveCounts = Readonly<Omit<Tally, 'evicted' | 'counts'>>;
