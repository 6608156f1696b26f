/** What the host asks of the GPU process, and what it answers, in any order. */
import type { GraphProfile } from '../../profile/index.ts';
import type { CudaDevice } from '../driver/types.ts';
import type { EngineOptions } from '../engine/engine.ts';
import type { Precision } from '../gate/compare.ts';
import type { HybridPlan, HybridPromise, HybridSpec, MeasureOperatorsOptions } from '../hybrid/index.ts';
import type { MeasuredLayerProfile, MeasuredTopology, MeasureOptions } from '../measure/types.ts';
import type { InputShapes, Obstacle, WeightLayer } from '../program/types.ts';
import type { GpuErrorCode, GpuLinkState, RunOptions, RunResult } from '../types.ts';
import type { HostStoreState } from '../engine/host-store.ts';
import type { ResidencyState } from '../engine/residency.ts';
import type { GpuMemoryState } from '../engine/lane.ts';

/** The first request, which starts the process. */
export interface GpuProcessSettings extends Pick<EngineOptions, 'hostBytes' | 'slabBytes' | 'gpuBytes'> {
  /** Compiled programs, kernels and folded graphs. */
  readonly cacheFolder: string;
  /** Whether GPUs are tested before their first use. Default: those that are not emulated. */
  readonly selfTest?: boolean;
  /** Limit of a function's input shapes whose programs are kept, besides those of its registration. Default 16. */
  readonly shapesMax?: number;
  /** Threads for the CPU's share of plans over GPU and CPU. Default 0: there are no such plans. */
  readonly hybridCores?: number;
  /** The cores to pin them to, by the operating system's numbers. */
  readonly hybridCoreNumbers?: readonly number[];
}

export interface GpuFunctionSpec extends HybridSpec {
  /** Tried in order if ONNX Runtime refuses the graph with `shapes`; see {@link trialShapes}. */
  readonly alternatives?: readonly InputShapes[];
}

export type GpuLayer = Pick<WeightLayer, 'name' | 'kind' | 'bytes'>;

/** What became of a registration. */
export type GpuCoverage =
  | {
      readonly covered: true;
      /** If the program is not for the spec's shapes: the alternative that it is for. */
      readonly shapes?: InputShapes;
      /** In execution order: what plans are made of. */
      readonly layers: readonly GpuLayer[];
      readonly weightBytes: number;
      readonly launches: number;
    }
  /** It can only run elsewhere. */
  | {
      readonly covered: false;
      readonly obstacles: readonly Obstacle[];
      /** The values of these inputs decide about sizes: it may be covered for those of a call. */
      readonly sizing?: readonly string[];
      /** What its plans over GPU and CPU are made of; only where the spec allows such plans. */
      readonly layers?: readonly GpuLayer[];
    };

/** The result for further shapes of a function: says nothing about its other shapes. */
export type ShapeCoverage =
  | { readonly covered: true }
  | { readonly covered: false; readonly reason: string; readonly obstacles: readonly Obstacle[] }
  /** They cannot run in the program of other shapes; a program of their own may work. */
  | { readonly covered: false; readonly reason: string; readonly isExactOnly: true };

/** Further shapes of a function to prepare. */
export interface ShapeOrder {
  readonly shapes: InputShapes;
  /** The shapes in whose program they are to run. Default: their own. */
  readonly program?: InputShapes;
  /** Shapes whose programs are freed first. */
  readonly instead?: InputShapes;
}

export interface GpuDeviceInfo extends Pick<
  CudaDevice,
  'index' | 'name' | 'uuid' | 'pciBusId' | 'computeCapability' | 'multiprocessors' | 'totalBytes'
> {
  /** The engine's share of it, for weights, activations and the rest. */
  readonly limitBytes: number;
}

export interface GpuProcessInfo {
  readonly driverVersion: number;
  /** The driver is a test double on the CPU: its times mean nothing. */
  readonly isEmulated: boolean;
  readonly compilerVersion: string;
  /** Changes with the engine's kernels and rules: verdicts about another version's answers do not count. */
  readonly engineVersion: string;
  readonly devices: readonly GpuDeviceInfo[];
}

export interface GpuProcessState {
  readonly memory: readonly GpuMemoryState[];
  readonly links: readonly GpuLinkState[];
  readonly host: HostStoreState;
  readonly residencies: readonly ResidencyState[];
}

/** Whether a program's answer equals ONNX Runtime's. Only after `agreed` may it serve. */
export type GpuCheck =
  | {
      readonly kind: 'agreed';
      /** `drawn`: random, because no call's inputs were given. */
      readonly inputs: 'given' | 'drawn';
      readonly precision: Precision;
      /** Relative to the largest magnitude of an output. */
      readonly tolerance: number;
    }
  | { readonly kind: 'disagreed'; readonly output: string; readonly why: string; readonly precision: Precision }
  /** ONNX Runtime does not run these inputs, none could be drawn, or the outputs are too small: those of a call decide. */
  | { readonly kind: 'undecided'; readonly why: string };

export interface GpuRunOptions extends RunOptions {
  /** One of the function's plans over GPU and CPU; all of it on the GPU when left out. */
  readonly variant?: string;
}

/** A function under a plan on one GPU. */
type OnGpu = Omit<GpuRunOptions, 'trace' | 'signal'> & { readonly key: string };

export type GpuRequest =
  | { readonly op: 'open'; readonly settings: GpuProcessSettings }
  | { readonly op: 'register'; readonly spec: GpuFunctionSpec }
  | { readonly op: 'unregister'; readonly key: string }
  | (OnGpu & { readonly op: 'run'; readonly trace: boolean })
  | (Omit<OnGpu, 'variant'> & { readonly op: 'load' })
  | { readonly op: 'trim'; readonly key: string; readonly gpu: number; readonly layers: number }
  | { readonly op: 'keep'; readonly key: string; readonly gpu: number; readonly variant: string }
  | { readonly op: 'add-plan'; readonly key: string; readonly plan: HybridPlan }
  | { readonly op: 'drop-plan'; readonly key: string; readonly plan: string }
  | { readonly op: 'operators'; readonly key: string; readonly options: MeasureOperatorsOptions }
  | { readonly op: 'prefetch'; readonly key: string }
  | { readonly op: 'state' }
  | { readonly op: 'measure'; readonly key: string; readonly options: MeasureOptions }
  | { readonly op: 'topology'; readonly bytes?: number }
  /** The tensors of `inputs` (none: random ones) follow, then those of an existing answer. */
  | (OnGpu & {
      readonly op: 'check';
      readonly inputs: number | 'drawn';
      /** The answer is from an earlier run: then nothing runs on the GPU. */
      readonly isAnswered: boolean;
    })
  /** Compiles all programs for further input shapes and loads them on every GPU, so that no run waits for that. */
  | { readonly op: 'prepare'; readonly key: string; readonly order: ShapeOrder }
  | { readonly op: 'close' };

export interface GpuAnswers {
  readonly open: GpuProcessInfo;
  readonly register: GpuCoverage;
  readonly unregister: null;
  /** The outputs' tensors follow, request by request. */
  readonly run: Omit<RunResult, 'outputs'>;
  readonly load: { readonly loadedBytes: number };
  readonly trim: { readonly freedBytes: number };
  readonly keep: { readonly freedBytes: number };
  readonly 'add-plan': HybridPromise;
  readonly 'drop-plan': null;
  readonly operators: GraphProfile;
  readonly prefetch: null;
  readonly state: GpuProcessState;
  readonly measure: MeasuredLayerProfile;
  readonly topology: MeasuredTopology;
  readonly check: GpuCheck;
  readonly prepare: ShapeCoverage;
  readonly close: null;
}

export interface GpuFailure {
  readonly code: GpuErrorCode;
  readonly message: string;
}
