/** What the parts of the live scheduler share: the scheduler itself, and its functions and invocations by number. */
import {
  Scheduler,
  type CpuPlace,
  type SchedulerEvent,
  type SchedulerGpu,
  type WorkersPlace,
} from '../../schedule/index.ts';
import type { GpuPlace } from './gpu-place.ts';
import type { LiveFunction, Pending } from './live-function.ts';
import { Tally } from './tally.ts';
import type { LiveSchedulerOptions, ScheduledSettings } from './types.ts';

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
  scheduler: Scheduler;
  gpus: readonly SchedulerGpu[] = [];
  /** Undefined until the GPUs are known. */
  place: GpuPlace | undefined;
  cpu: CpuPlace | null;
  workers: WorkersPlace | null = null;

  constructor(options: LiveSchedulerOptions, tell: (event: SchedulerEvent) => void) {
    this.options = options;
    this.now = options.now ?? ((): number => performance.now());
    this.tell = tell;
    this.cpu = options.cpu;
    this.scheduler = this.newScheduler();
  }

  newScheduler(): Scheduler {
    const { gpus, cpu, workers } = this;
    return new Scheduler({ gpus, policy: this.options.policy, cpu, workers });
  }
}
