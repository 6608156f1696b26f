/** What the host asks of the GPU process, and what it answers, in any order. */
import type { WithTensors } from '../../process/index.ts';
import type { GraphProfile } from '../../profile/index.ts';
import { elements, tensorOf, type Tensor } from '../../tensor/index.ts';
import type { CancelSignal } from '../../tools/index.ts';
import type { CudaDevice } from '../driver/types.ts';
import type { EngineOptions } from '../engine/engine.ts';
import type { Precision } from '../gate/compare.ts';
import type { HybridPlan, HybridPromise, HybridSpec, MeasureOperatorsOptions } from '../hybrid/index.ts';
import type { MeasuredLayerProfile, MeasuredTopology, MeasureOptions } from '../measure/types.ts';
import type { InputShapes, Obstacle, WeightLayer } from '../program/types.ts';
import type { Capability, GpuLinkState, LoadResult, RunOptions, RunResult, RunTimings, Staged } from '../types.ts';
import type { PlacedPlan } from './sent-plans.ts';
import type { HostStoreState } from '../engine/host-store.ts';
import type { ResidencyState } from '../engine/residency.ts';
import type { GpuMemoryState } from '../engine/lane.ts';

/** The first request, which starts the process. */
export interface GpuProcessSettings extends Pick<EngineOptions, 'hostBytes' | 'slabBytes' | 'gpuBytes'> {
  /** Compiled programs, kernels and folded graphs. */
  readonly cacheFolder: string;
  /** Whether GPUs are tested before their first use. Default: those that are not emulated. */
  readonly selfTest?: boolean;
  /** Capabilities that are not used, besides those that the self-test finds missing. */
  readonly without?: readonly Capability[];
  /** Limit of a function's input shapes whose programs are kept, besides those of its registration. Default 16. */
  readonly shapesMax?: number;
  /** Threads for the CPU's share of plans over GPU and CPU. Default 0: there are no such plans. */
  readonly hybridCores?: number;
  /** `auto`: layers are coded without loss where that gains 5%; default: `off`. */
  readonly coding?: 'off' | 'auto';
  /** The cores to pin them to, by the operating system's numbers. */
  readonly hybridCoreNumbers?: readonly number[];
}

export interface GpuFunctionSpec extends HybridSpec {
  /** Tried in order if ONNX Runtime refuses the graph with `shapes`, or if the engine lacks something only for these. */
  readonly alternatives?: readonly InputShapes[];
}

export interface GpuLayer extends Pick<WeightLayer, 'name' | 'kind' | 'bytes'> {
  /** In host memory and on the link, where it is coded. */
  readonly codedBytes?: number;
  /** Functions with a layer of the same id have the same bytes up to its end, and share them; left out: none has. */
  readonly id?: string;
}

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
      /** Those of the spec or of an alternative, for which its plans over GPU and CPU are made; with `layers`. */
      readonly shapes?: InputShapes;
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
  /** Coded layers whose bytes had changed on their way, and that were loaded again as they are. */
  readonly layersRepaired: number;
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
      /** The largest that was seen, relative to the same; undefined where operators that jump kept it from being told. */
      readonly difference?: number;
    }
  | { readonly kind: 'disagreed'; readonly output: string; readonly why: string; readonly precision: Precision }
  /** ONNX Runtime does not run these inputs, none could be drawn, or the outputs are too small: those of a call decide. */
  | { readonly kind: 'undecided'; readonly why: string };

export interface GpuRunOptions extends Omit<RunOptions, 'signal'> {
  readonly signal?: CancelSignal;
  /** One of the function's plans over GPU and CPU; all of it on the GPU when left out. */
  readonly variant?: string | undefined;
}

interface OfFunction {
  readonly key: string;
}

/** A function under a plan on one GPU. */
export type OnGpu = OfFunction & Omit<GpuRunOptions, 'trace' | 'signal' | 'onLaneFree'>;

/** A run under a plan that the process may have already. */
export interface RunOrder extends Omit<OnGpu, 'plan'> {
  readonly plan: PlacedPlan;
  readonly trace: boolean;
  /** Whether it notes when the GPU is free for the next run. Otherwise the host counts it as free from then on. */
  readonly notes: boolean;
}

/** As a tensor, so that the header of an answer says the same each time and need not be read again. */
export const timingsTensor = ({ waitMs, gpuMs, totalMs }: RunTimings): Tensor =>
  tensorOf('timings', 'FP64', [3], Float64Array.of(waitMs, gpuMs, totalMs));

/** @param tensor a {@link timingsTensor} */
export function timingsOf(tensor: Tensor): RunTimings {
  const [waitMs = NaN, gpuMs = NaN, totalMs = NaN] = elements(tensor) as Float64Array;
  return { waitMs, gpuMs, totalMs };
}

/** What the host asks of the process. */
export interface GpuApi {
  open(settings: GpuProcessSettings): GpuProcessInfo;
  register(order: { readonly spec: GpuFunctionSpec }): GpuCoverage;
  unregister(order: OfFunction): void;
  /** The answer's tensors are the outputs and a {@link timingsTensor}. */
  run(order: RunOrder, inputs: readonly Tensor[]): WithTensors<Omit<RunResult, 'outputs' | 'timings'>>;
  load(order: Omit<OnGpu, 'variant'>): LoadResult;
  /** Answers with the bytes freed, as `keep` does. Runs and loads on the GPU that are asked for later find them free. */
  trim(order: OfFunction & { readonly gpu: number; readonly layers: number }): number;
  keep(order: OfFunction & { readonly gpu: number; readonly layers: readonly number[] }): number;
  /** Frees layers that functions share, for all of these. */
  release(order: OfFunction & { readonly gpu: number; readonly layers: readonly number[] }): number;
  addPlan(order: OfFunction & { readonly plan: HybridPlan }): HybridPromise;
  dropPlan(order: OfFunction & { readonly plan: string }): void;
  operators(order: OfFunction & { readonly options: MeasureOperatorsOptions }): GraphProfile;
  /** Reads layers from disk into pinned memory; all that is missing where none are named. */
  stage(order: OfFunction & { readonly layers?: readonly number[] }): Staged;
  /** Frees pinned memory of layers, of one function or of all that share them, once nothing reads from it. Answers with the bytes; a `stage` behind it finds them. */
  drop(order: OfFunction & { readonly layers: readonly number[]; readonly ofAll: boolean }): number;
  resizeHost(order: { readonly hostBytes: number }): void;
  state(): GpuProcessState;
  measure(order: OfFunction & { readonly options: MeasureOptions }): MeasuredLayerProfile;
  topology(order: { readonly copyBytes?: number }): MeasuredTopology;
  /** `tensors`: the inputs (none: random ones), then those of an existing answer. */
  check(
    order: OnGpu & {
      readonly inputs: number | 'drawn';
      /** The answer is from an earlier run: then nothing runs on the GPU. */
      readonly isAnswered: boolean;
    },
    tensors: readonly Tensor[],
  ): GpuCheck;
  /** Compiles all programs for further input shapes and loads them on every GPU, so that no run waits for that. */
  prepare(order: OfFunction & { readonly order: ShapeOrder }): ShapeCoverage;
  close(): void;
}
