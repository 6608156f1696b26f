/** Runs models on NVIDIA GPUs: driver, operators, programs, transfers. */
export { CudaError, type Cuda, type CudaDevice, type CudaErrorKind, type LiveCounts } from './driver/types.ts';
export { openCuda, type CudaOptions } from './driver/open.ts';
export { probeCuda, type CudaProbe } from './driver/probe.ts';
export { operators, type Operator } from './operators/index.ts';
export {
  compileModel,
  defaultSettings,
  modelObstacles,
  ProgramError,
  type CompileModelOptions,
  type InputShapes,
  type Obstacle,
  type Program,
  type ProgramErrorCode,
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
export { profileOperatorsOnCpu, type ProfileOnCpuOptions } from './hybrid/operators-on-cpu.ts';
export * from './process/index.ts';
export {
  GpuError,
  type GpuErrorCode,
  type GpuMemoryState,
  type HostStoreState,
  type HostTier,
  type ResidencyState,
  type RunOptions,
  type RunResult,
  type RunTimings,
  type StartKind,
} from './types.ts';
