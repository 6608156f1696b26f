/** The engine in a separate process, which can be restarted. */
export {
  GpuClient,
  startGpuProcess,
  type GpuCheckOptions,
  type GpuProcessOptions,
  type GpuProcessStatus,
} from './client.ts';
export type {
  GpuCheck,
  GpuCoverage,
  GpuDeviceInfo,
  GpuFunctionSpec,
  GpuProcessInfo,
  GpuProcessSettings,
  GpuProcessState,
  GpuRunOptions,
  ShapeCoverage,
  ShapeOrder,
} from './protocol.ts';
export type { MeasuredLayerProfile, MeasuredSpread, MeasureOptions } from '../measure/types.ts';
export { inputShape, shapeIn, shapesKey, shapesOf, sizingOf } from '../program/input-shapes.ts';
export { bytesOfValues } from '../program/sizing-inputs.ts';
export type { HybridPlan, HybridPromise, HybridSegment, MeasureOperatorsOptions } from '../hybrid/index.ts';
