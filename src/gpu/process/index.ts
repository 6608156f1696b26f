/** The engine in a process of its own, which can be restarted. */
export {
  GpuClient,
  startGpuProcess,
  type GpuBatchResult,
  type GpuLoadOptions,
  type GpuProcessOptions,
  type GpuProcessStatus,
  type GpuRunOptions,
} from './client.ts';
export type {
  GpuCoverage,
  GpuDeviceInfo,
  GpuFunctionSpec,
  GpuProcessInfo,
  GpuProcessSettings,
  GpuProcessState,
  MeasuredLayerProfile,
  MeasuredSpread,
  MeasureOperatorsOptions,
  MeasureOptions,
} from './protocol.ts';
export type { HybridPlan, HybridPromise, HybridSegment } from '../hybrid/types.ts';
