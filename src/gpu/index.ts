/** Runs models on NVIDIA GPUs: driver, operators, programs, transfers. */
import type * as Hybrid from './hybrid/index.ts';
export { CudaError, type Cuda } from './driver/types.ts';
export { openCuda } from './driver/open.ts';
export { probeCuda } from './driver/probe.ts';
export { operators } from './operators/index.ts';
export {
  compileModel,
  ProgramError,
  type InputShapes,
  type Program,
  type ProgramPrecision,
  type ProgramSettings,
} from './program/index.ts';
export { Engine } from './engine/engine.ts';
export { loadAllPlan } from './measure/layer-profile.ts';
export { measureTopology } from './measure/topology.ts';
export type { MeasuredLayerProfile, MeasuredTopology } from './measure/types.ts';
export type { HybridPlan, HybridPromise } from './hybrid/index.ts';
export { tolerances, type Precision } from './gate/compare.ts';
export { Rechecks, type AnsweredCall } from './gate/rechecks.ts';
export { shapeClasses } from './padding/classes.ts';
export { beliefs, lacksOf, specOf, type SelfTestReport } from './self-test/beliefs.ts';
export { selfTest } from './self-test/self-test.ts';
export { GpuClient, startGpuProcess, type GpuProcessOptions } from './process/client.ts';
export type {
  GpuCheck,
  GpuCoverage,
  GpuLayer,
  GpuFunctionSpec,
  GpuProcessInfo,
  GpuProcessSettings,
  GpuProcessState,
  GpuRunOptions,
} from './process/protocol.ts';
export { inputShape, shapeIn, shapesKey, shapesOf, sizingOf } from './program/input-shapes.ts';
export { bytesOfValues } from './program/sizing-inputs.ts';
export { GpuError, type Capability, type GpuErrorCode, type LoadResult, type RunResult, type Staged } from './types.ts';

/** The runtime of plans over GPU and CPU, imported at its first use. */
export const loadHybrid = (): Promise<typeof Hybrid> => import('./hybrid/index.ts');
