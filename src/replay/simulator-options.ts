/** What a simulation is given, and what it gives. Nothing here runs. */
import type { CpuPlace, HostTier, OfferSheet, Policy, SchedulerGpu, WorkersPlace } from '../schedule/index.ts';
import type { ReplayObserver } from './types.ts';

export interface SimulatorOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  readonly cpu: CpuPlace | null;
  readonly workers?: WorkersPlace | null;
  /** Left out: everything is in host memory. */
  readonly host?: HostTier | undefined;
  /** Asked once for each function, when it is first invoked. */
  readonly sheetOf: (functionIndex: number, name: string) => OfferSheet;
  readonly observer: ReplayObserver;
  /** So many invocations first, of which the observer is told nothing. */
  readonly warmupInvocations?: number;
  /** Told of each arrival, before the scheduler is. */
  readonly onArrival?: ((functionIndex: number) => void) | undefined;
  /** GPUs that fail and come back. */
  readonly gpuChanges?: readonly GpuChange[];
}

export interface GpuChange {
  readonly atMs: number;
  readonly gpu: number;
  readonly kind: 'gpu-lost' | 'gpu-back';
}

export interface SimulatedRun {
  /** Those of the warm-up included. */
  readonly invocations: number;
  /** Arrival of the first invocation after the warm-up; undefined when there was none. */
  readonly measuredFromMs: number | undefined;
  /** When the last invocation had ended. */
  readonly endMs: number;
  /** Since the warm-up: functions that went to a smaller plan for room, and to a larger one with the room that there was. */
  readonly shrinks: number;
  readonly growths: number;
  /** Since the warm-up: invocations that had to wait for something to be loaded, over all. 0 when there were none. */
  readonly swapRate: number;
}
