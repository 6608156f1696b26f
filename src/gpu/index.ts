/** Runs models on NVIDIA GPUs: driver, operators, programs, transfers. */
import type * as Hybrid from './hybrid/index.ts';
export { CudaError, type Cuda, type CudaDevice, type LiveCounts } from './driver/types.ts';
export { openCuda, type CudaOptions } from './driver/open.ts';
export { probeCuda, type CudaProbe } from './driver/probe.ts';
export { operators, type Operator } from './operators/index.ts';
export {
  compileModel,
  defaultSettings,
  ProgramError,
  type CompileModelOptions,
  type InputShapes,
  type Obstacle,
  type Program,
  type ProgramErrorCode,
  type ProgramPrecision,
  type ProgramSettings,
} from './program/index.ts';
export { Engine, type EngineOptions, type LoadOptions } from './engine/engine.ts';
export { loadAllPlan, measureLayers } from './measure/layer-profile.ts';
export { measureTopology, type TopologyOptions } from './measure/topology.ts';
export type { MeasuredLayerProfile, MeasuredSpread, MeasuredTopology, MeasureOptions } from './measure/types.ts';
export type {
  HybridPlan,
  HybridPromise,
  HybridSegment,
  MeasureOperatorsOptions,
  ProfileOnCpuOptions,
} from './hybrid/index.ts';
export { disagreementOf, tolerances, type Disagreement, type Precision } from './gate/compare.ts';
export { Rechecks, type AnsweredCall, type RechecksOptions } from './gate/rechecks.ts';
export { shapeClasses } from './padding/classes.ts';
export { beliefs, lacksOf, specOf, type Belief, type SelfTestReport } from './self-test/beliefs.ts';
export { selfTest } from './self-test/self-test.ts';
export {
  GpuClient,
  startGpuProcess,
  type GpuCheckOptions,
  type GpuProcessOptions,
  type GpuProcessStatus,
} from './process/client.ts';
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
} from './process/protocol.ts';
export { inputShape, shapeIn, shapesKey, shapesOf, sizingOf } from './program/input-shapes.ts';
export { bytesOfValues } from './program/sizing-inputs.ts';
export {
  GpuError,
  type Capability,
  type CudaErrorKind,
  type GpuErrorCode,
  type GpuLinkState,
  type HostTier,
  type LoadResult,
  type RunOptions,
  type RunResult,
  type RunTimings,
  type Staged,
  type StartKind,
} from './types.ts';
export type { HostStoreState } from './engine/host-store.ts';
export type { ResidencyState } from './engine/residency.ts';
export type { GpuMemoryState } from './engine/lane.ts';

/** The runtime of plans over GPU and CPU, imported at its first use. */
export const loadHybrid = (): Promise<typeof Hybrid> => import('./hybrid/index.ts');
