/** The shared state of the scheduler's model: invocations, functions, the clock, and pending events. */
import type {
  CpuPlace,
  HostBlock,
  Join,
  HostTier,
  OfferSheet,
  PlaceId,
  Policy,
  Scheduler,
  SchedulerEvent,
  SchedulerGpu,
  SchedulerOptions,
  SharedPrefix,
  WorkersPlace,
} from '../../src/schedule/index.ts';

export interface Running {
  readonly invocation: number;
  readonly functionIndex: number;
  readonly companions: readonly number[];
}

export interface ModelInvocation {
  readonly functionIndex: number;
  readonly arrivalMs: number;
  readonly order: number;
  join: Join | undefined;
  state: 'arriving' | 'waiting' | 'running' | 'offloaded' | 'ended';
  /** Where it waits or runs. */
  place: PlaceId | undefined;
}

export interface Due {
  readonly atMs: number;
  readonly order: number;
  readonly event: SchedulerEvent;
  /** Whether the event is still valid when it is due. */
  readonly isValid: () => boolean;
}

export interface ModelOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  readonly cpu: CpuPlace | null;
  readonly workers?: WorkersPlace | null;
  readonly host?: HostTier | undefined;
  /** Actual over offered durations; drawn each time. */
  readonly stretch: () => number;
  /** Replaces the real scheduler, to plant a fault that the model must find. */
  readonly makeScheduler?: (options: SchedulerOptions) => Scheduler;
  /** Whether events and actions are logged as text, which takes most of the time. Default true. */
  readonly keepsLog?: boolean;
  /** Called with the account after each event; throws on an error. */
  readonly watch?: (view: ModelView) => void;
}

/** Layers on a GPU: how many from the first on, their bytes, and under which plan. */
export interface Resident {
  prefix: number;
  bytes: number;
  plan: string | undefined;
  /** What it shared of its layers when they came, or has shared since. */
  shared?: SharedPrefix | undefined;
  /** Bytes of its prefixes then. */
  prefixBytes?: readonly number[];
}

/** What host memory has of a function. */
export interface InHost {
  /** With those that are being read. */
  bytes: number;
  /** Bytes under way from the disk; 0: none are. */
  readBytes: number;
  /** The read under way. */
  read?: object | undefined;
}

/** Bytes of a function in host memory. */
export const hostBytesOf = (sheet: OfferSheet | undefined): number =>
  sheet?.hostBlocks?.reduce((sum, { bytes }) => sum + bytes, 0) ?? 0;

/** In the `layers` of those blocks that a function executes from, and of no others. */
export const executedLayer = 0;

/** One block of what is loaded, and one of what a function executes from. */
export const hostBlocksOf = (loadedBytes: number, executedBytes: number): HostBlock[] =>
  [{ bytes: loadedBytes }, { bytes: executedBytes, isExecuted: true, layers: [executedLayer] }].filter(
    ({ bytes }) => bytes > 0,
  );

/** Bytes of a function that it executes from host memory. */
export const executedBytesOf = (sheet: OfferSheet | undefined): number =>
  sheet?.hostBlocks?.reduce((sum, { bytes, isExecuted }) => sum + (isExecuted === true ? bytes : 0), 0) ?? 0;

/** The account, read-only. */
export interface ModelView {
  readonly nowMs: number;
  readonly options: ModelOptions;
  readonly invocations: ReadonlyMap<number, ModelInvocation>;
  readonly sheets: ReadonlyMap<number, OfferSheet>;
  /** By GPU. */
  readonly isUp: readonly boolean[];
  readonly running: readonly (Running | undefined)[];
  /** What a GPU has of a function, with what that shares. */
  readonly there: (functionIndex: number, gpu: number) => Resident | undefined;
  readonly isLoading: (functionIndex: number, gpu: number) => boolean;
  /** Functions with something in host memory, or on its way from the disk; without a host tier all of them. */
  readonly inHost: ReadonlyMap<number, InHost>;
  /** Functions of which a read did not come to its end. */
  readonly unread: ReadonlySet<number>;
  /** Invocations that run there. */
  readonly onCpu: ReadonlyMap<number, { readonly functionIndex: number; readonly cores: number }>;
  readonly onWorkers: ReadonlyMap<number, number>;
  /** Functions of which the CPU makes a session that no call runs in yet. */
  readonly making: ReadonlyMap<number, unknown>;
}

export function refuse(what: string): never {
  throw new Error(what);
}

export class ModelLedger {
  readonly options: ModelOptions;
  readonly sheets = new Map<number, OfferSheet>();
  /** The latest that named what the function shares: what nobody shares any more goes under its number. */
  readonly formerly = new Map<number, OfferSheet>();
  readonly invocations = new Map<number, ModelInvocation>();
  readonly up: boolean[];
  /** By function with something in host memory, or on its way there. */
  readonly inHost = new Map<number, InHost>();
  hostBytes: number;
  /** Functions of which a read did not come to its end: which of their blocks are there, only the scheduler knows. */
  readonly unread = new Set<number>();
  due: Due[] = [];
  nowMs = 0;
  #order = 0;

  constructor(options: ModelOptions) {
    this.options = options;
    this.up = options.gpus.map(() => true);
    this.hostBytes = options.host?.capacityBytes ?? Infinity;
  }

  plan(atMs: number, event: SchedulerEvent, isValid: () => boolean): void {
    this.due.push({ atMs, order: this.#order++, event, isValid });
  }

  /** Removes and returns the next event that is due by then. */
  takeDue(untilMs: number): Due | undefined {
    let first = 0;
    for (let index = 1; index < this.due.length; index++) {
      const a = this.due[index]!;
      const b = this.due[first]!;
      if (a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order)) first = index;
    }
    const next = this.due[first];
    if (next === undefined || next.atMs > untilMs) return undefined;
    this.due.splice(first, 1);
    return next;
  }

  toRun(number: number, functionIndex: number): ModelInvocation {
    const invocation = this.invocations.get(number)!;
    if (invocation.state !== 'arriving' && invocation.state !== 'waiting') {
      refuse(`invocation ${number} is to run, and is ${invocation.state}`);
    }
    if (invocation.functionIndex !== functionIndex) refuse(`invocation ${number} is of another function`);
    return invocation;
  }
}
