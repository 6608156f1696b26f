import type { Policy } from './policy.ts';
import type { CpuPlace, HostTier, SchedulerGpu, Shell, WorkersPlace } from './types.ts';

export interface SchedulerOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  /** null: nothing runs on the CPU. */
  readonly cpu: CpuPlace | null;
  readonly workers?: WorkersPlace | null;
  /** Left out: everything is in host memory. */
  readonly host?: HostTier;
  /**
   * Whether decisions also name the best of the other places; default true. Without it, GPUs that cannot be the best
   * are skipped early.
   */
  readonly explains?: boolean;
  /** Left out: `handle` returns what is to be done. */
  readonly shell?: Shell;
}
