/** What the parts of the scheduler's model share: invocations, functions, the clock, and what is due. */
import type {
  CpuPlace,
  Join,
  HostTier,
  LoadOrder,
  OfferSheet,
  Policy,
  Scheduler,
  SchedulerEvent,
  SchedulerGpu,
  SchedulerOptions,
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
  gpu: number;
}

export interface Due {
  readonly atMs: number;
  readonly order: number;
  readonly event: SchedulerEvent;
  /** Still true when it is due. */
  readonly isValid: () => boolean;
}

export interface ModelOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  readonly cpu: CpuPlace | null;
  readonly workers?: WorkersPlace | null;
  readonly host?: HostTier | undefined;
  /** How long what is ordered takes, over what the offer says; drawn anew each time. */
  readonly stretch: () => number;
  /** Another scheduler than the real one: to plant a fault that the model has to find. */
  readonly makeScheduler?: (options: SchedulerOptions) => Scheduler;
  /** Whether events and actions are written down as text, which takes most of the time. Default true. */
  readonly keepsLog?: boolean;
  /** Shown the account after each event has been dealt with; throws at what cannot be right. */
  readonly watch?: (view: ModelView) => void;
}

/** The account as others may read it. */
export interface ModelView {
  readonly nowMs: number;
  readonly options: ModelOptions;
  readonly invocations: ReadonlyMap<number, ModelInvocation>;
  readonly sheets: ReadonlyMap<number, OfferSheet>;
  /** By GPU. */
  readonly isUp: readonly boolean[];
  readonly running: readonly (Running | undefined)[];
  readonly resident: readonly ReadonlyMap<
    number,
    { readonly prefix: number; readonly bytes: number; readonly plan: string | undefined }
  >[];
  readonly loading: readonly ReadonlyMap<number, LoadOrder>[];
  /** Functions that are in host memory, or on their way from the disk; without a host tier all are. */
  readonly inHost: ReadonlyMap<number, { readonly isStaged: boolean }>;
  /** Invocations that run there. */
  readonly onCpu: ReadonlyMap<number, { readonly functionIndex: number; readonly cores: number }>;
  readonly onWorkers: ReadonlyMap<number, number>;
}

export function refuse(what: string): never {
  throw new Error(what);
}

export class ModelLedger {
  readonly options: ModelOptions;
  readonly sheets = new Map<number, OfferSheet>();
  readonly invocations = new Map<number, ModelInvocation>();
  readonly up: boolean[];
  /** By function in host memory: its bytes, and whether all of it has been read. */
  readonly inHost = new Map<number, { readonly bytes: number; isStaged: boolean }>();
  due: Due[] = [];
  nowMs = 0;
  #order = 0;

  constructor(options: ModelOptions) {
    this.options = options;
    this.up = options.gpus.map(() => true);
  }

  plan(atMs: number, event: SchedulerEvent, isValid: () => boolean): void {
    this.due.push({ atMs, order: this.#order++, event, isValid });
  }

  /** Takes out what is due next, if it is so by then. */
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
