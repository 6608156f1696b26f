/** Inputs and results of a simulation. Types only. */
import type { HostTier, OfferSheet, SchedulerOptions } from '../schedule/index.ts';
import type { ReplayObserver } from './types.ts';

export interface SimulatorOptions extends Omit<SchedulerOptions, 'host' | 'explains' | 'shell'> {
  /** Left out: everything is in host memory. */
  readonly host?: HostTier | undefined;
  /** Read once for each function, at its first invocation; functions of one model should share its offers. */
  readonly sheetOf: (functionIndex: number, name: string) => OfferSheet;
  readonly observer: ReplayObserver;
  /** Called for each arrival, before the scheduler gets it. */
  readonly onArrival?: ((functionIndex: number) => void) | undefined;
  /** GPUs that fail and come back. */
  readonly gpuChanges?: readonly GpuChange[];
}

export interface GpuChange {
  readonly atMs: number;
  readonly gpu: number;
  readonly kind: 'gpu-lost' | 'gpu-back';
}
