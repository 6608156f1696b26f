/** Inputs and results of a simulation. */
import type { LogicalCore } from '../hardware/index.ts';
import type { HostTier, OfferSheet, SchedulerOptions, Given, FunctionId, GpuId } from '../schedule/index.ts';
import type { DemandOptions } from './simulator-demand.ts';
import type { ReplayObserver } from './types.ts';

export interface SimulatorOptions extends Omit<SchedulerOptions, 'host' | 'explains' | 'others'> {
  /** Left out: everything is in host memory. */
  readonly host?: SimulatedHostTier | undefined;
  /** Read once for each function, at its first invocation; functions of one model should share its offers. */
  readonly sheetOf: (functionIndex: Given<FunctionId>, name: string) => OfferSheet;
  /** How a function's instances on demand join calls; undefined: its calls run one by one. Read as {@link sheetOf}. */
  readonly demandOf?: ((functionIndex: Given<FunctionId>) => DemandOptions | undefined) | undefined;
  /** For lists that follow their load (`swaps` of {@link DemandOptions}): the cores that `cpu.cores` counts. */
  readonly cores?: readonly LogicalCore[] | undefined;
  readonly observer: ReplayObserver;
  /** Called for each arrival, before the scheduler gets it. */
  readonly onArrival?: ((functionIndex: Given<FunctionId>) => void) | undefined;
  /** GPUs that fail and come back. */
  readonly gpuChanges?: readonly GpuChange[];
}

export interface SimulatedHostTier extends HostTier {
  /** What it holds at the start, as far as there is room, with the shares of the calls before; left out: nothing. */
  readonly filledWith?: readonly { readonly functionIndex: Given<FunctionId>; readonly share: number }[];
}

/** A GPU that is lost, and comes back unless `backMs` is Infinity. */
export const gpuFailure = (gpu: Given<GpuId>, atMs: number, backMs: number): GpuChange[] => [
  { kind: 'gpu-lost', gpu, atMs },
  ...(backMs === Infinity ? [] : [{ kind: 'gpu-back', gpu, atMs: backMs } as const]),
];

export interface GpuChange {
  readonly atMs: number;
  readonly gpu: Given<GpuId>;
  readonly kind: 'gpu-lost' | 'gpu-back';
}
