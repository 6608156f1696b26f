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
export { Engine, type EngineOptions, type LoadOptions } from './engine/index.ts';
export {
  loadAllPlan,
  measureLayers,
  measureTopology,
  type MeasuredTopology,
  type TopologyOptions,
} from './measure/index.ts';
export type { ProfileOnCpuOptions } from './hybrid/index.ts';
export { disagreementOf, tolerances, type Disagreement, type Precision } from './gate/compare.ts';
export { Rechecks, type AnsweredCall, type RechecksOptions } from './gate/rechecks.ts';
export { trialShapes, type OpenInput } from './gate/trial-shapes.ts';
export { shapeClasses } from './padding/index.ts';
export { beliefs, lacksOf, selfTest, specOf, type Belief, type SelfTestReport } from './self-test/index.ts';
export * from './process/index.ts';
export {
  GpuError,
  type CudaErrorKind,
  type GpuErrorCode,
  type GpuLinkState,
  type HostTier,
  type RunOptions,
  type RunResult,
  type RunTimings,
  type StartKind,
} from './types.ts';
export type { HostStoreState } from './engine/host-store.ts';
export type { ResidencyState } from './engine/residency.ts';
export type { GpuMemoryState } from './engine/lane.ts';

/** The runtime of plans over GPU and CPU, imported at its first use. */
export const loadHybrid = (): Promise<typeof Hybrid> => import('./hybrid/index.ts');
