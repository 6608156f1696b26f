/**
 * What the host and the GPU process say to each other: messages of the wire codec over the Unix socket that the process
 * inherits as file descriptor 3. Requests carry a number, answers come in any order.
 */
import type { ColdStartPlan } from '../../plan/index.ts';
import type { GraphProfile, LayerProfile } from '../../profile/index.ts';
import type { LayerKind } from '../../onnx/index.ts';
import type { HybridPlan, HybridPromise } from '../hybrid/types.ts';
import type { MeasuredTopology } from '../measure/topology-types.ts';
import type { InputShapes, Obstacle, ProgramSettings } from '../program/types.ts';
import type { GpuErrorCode, GpuMemoryState, HostStoreState, HostTier, ResidencyState, RunResult } from '../types.ts';

/** The file descriptor of the socket in the GPU process. */
export const socketFd = 3;

/** What the process is started with, as its first message. */
export interface GpuProcessSettings {
  /** Pinned host memory for weights. */
  readonly hostBytes: number;
  /** Bytes pinned at a time. */
  readonly slabBytes?: number;
  /** Of each GPU; by default most of what is free. */
  readonly gpuBytes?: number;
  /** Compiled programs, kernels and folded graphs. */
  readonly cacheFolder: string;
  readonly graphs?: boolean;
  /** Most input shapes of one function whose programs are kept; the shapes of its registration stay in any case. Default 8. */
  readonly shapesMax?: number;
  /** Threads for the CPU's share of plans over GPU and CPU. Default 0: there are no such plans. */
  readonly hybridCores?: number;
  /** The operating system's numbers of the cores to pin them to. */
  readonly hybridCoreNumbers?: readonly number[];
}

export interface GpuFunctionSpec {
  /** `name@version`, unique among everything a host serves. */
  readonly key: string;
  /** Absolute path of the ONNX file; external data lies beside it. */
  readonly modelPath: string;
  /** The shapes to compile for at once. Others are compiled when they are first run. */
  readonly shapes: InputShapes;
  readonly settings?: ProgramSettings;
  /**
   * Present for functions that may have plans over GPU and CPU. Then operators that the engine lacks do not keep it from the GPUs.
   */
  readonly hybrid?: {
    /** How many cells the longest recurrent operator is unrolled into; shorter ones into fewer, with as many steps each. */
    readonly cells: number;
  };
}

/** What became of a registration. */
export type GpuCoverage =
  | {
      readonly covered: true;
      /** In execution order: what plans are made of. */
      readonly layers: readonly { readonly name: string; readonly kind: LayerKind; readonly bytes: number }[];
      readonly weightBytes: number;
      readonly arenaBytes: number;
      readonly workspaceBytes: number;
      readonly launches: number;
    }
  /** It can only run elsewhere. */
  | {
      readonly covered: false;
      readonly obstacles: readonly Obstacle[];
      /** What its plans over GPU and CPU are made of; only where the spec allows such plans. */
      readonly layers?: readonly { readonly name: string; readonly kind: LayerKind; readonly bytes: number }[];
    };

export interface GpuDeviceInfo {
  readonly index: number;
  readonly name: string;
  readonly uuid: string;
  readonly pciBusId: string;
  readonly computeCapability: { readonly major: number; readonly minor: number };
  readonly multiprocessors: number;
  readonly totalBytes: number;
  /** What the engine has of it for weights, activations and all else. */
  readonly limitBytes: number;
}

export interface GpuProcessInfo {
  readonly driverVersion: number;
  /** The driver is a test double on the CPU: no time that it takes means anything. */
  readonly isEmulated: boolean;
  readonly compilerVersion: string;
  readonly devices: readonly GpuDeviceInfo[];
}

export interface GpuProcessState {
  readonly memory: readonly GpuMemoryState[];
  readonly host: HostStoreState;
  readonly residencies: readonly ResidencyState[];
}

export interface MeasureOptions {
  readonly gpu: number;
  /** Timed repetitions of each measurement. Default 10. */
  readonly iterations?: number;
  /** Whether layers that are no embeddings are also timed from host memory. Default true. */
  readonly allFromHost?: boolean;
}

/** How much the repetitions of one time differed. */
export interface MeasuredSpread {
  readonly medianMs: number;
  readonly minMs: number;
  readonly maxMs: number;
}

export interface MeasuredLayerProfile extends LayerProfile {
  readonly gpu: string;
  readonly iterations: number;
  /** Layer by layer, in the profile's order. */
  readonly spread: readonly {
    readonly load: MeasuredSpread;
    readonly exec: MeasuredSpread;
    readonly dha: MeasuredSpread;
  }[];
  /** One warm run from the first launch to the last, no event between. */
  readonly warm: MeasuredSpread;
}

export interface MeasureOperatorsOptions {
  readonly gpu: number;
  /** Times on the CPU are taken while 1, 2, ... so many cores are at work. Default: all that the process has for plans. */
  readonly cores?: number;
  /** Timed repetitions of each measurement. Default 5. */
  readonly iterations?: number;
}

export type GpuRequest =
  | { readonly op: 'open'; readonly settings: GpuProcessSettings }
  | { readonly op: 'register'; readonly spec: GpuFunctionSpec }
  | { readonly op: 'unregister'; readonly key: string }
  /** The tensors of all requests follow, in their order; the counts say which are whose. */
  | {
      readonly op: 'run';
      readonly key: string;
      readonly gpu: number;
      readonly plan: ColdStartPlan;
      /** One of the function's plans over GPU and CPU. */
      readonly rung?: string;
      readonly trace: boolean;
      readonly counts: readonly number[];
    }
  | {
      readonly op: 'load';
      readonly key: string;
      readonly gpu: number;
      readonly plan: ColdStartPlan;
      readonly prefix?: number;
    }
  | { readonly op: 'trim'; readonly key: string; readonly gpu: number; readonly layers: number }
  | { readonly op: 'keep'; readonly key: string; readonly gpu: number; readonly rung: string }
  | { readonly op: 'add-plan'; readonly key: string; readonly plan: HybridPlan }
  | { readonly op: 'drop-plan'; readonly key: string; readonly plan: string }
  | { readonly op: 'operators'; readonly key: string; readonly options: MeasureOperatorsOptions }
  | { readonly op: 'prefetch'; readonly key: string }
  | { readonly op: 'tier'; readonly key: string }
  | { readonly op: 'state' }
  | { readonly op: 'measure'; readonly key: string; readonly options: MeasureOptions }
  | { readonly op: 'topology'; readonly bytes?: number }
  /** Whether it listens. */
  | { readonly op: 'ping' }
  | { readonly op: 'close' };

export interface GpuAnswers {
  readonly open: GpuProcessInfo;
  readonly register: GpuCoverage;
  readonly unregister: null;
  /** The outputs' tensors follow, request by request. */
  readonly run: Omit<RunResult, 'outputs'> & { readonly counts: readonly number[] };
  readonly load: { readonly loadedBytes: number };
  readonly trim: { readonly freedBytes: number };
  readonly keep: { readonly freedBytes: number };
  readonly 'add-plan': HybridPromise;
  readonly 'drop-plan': null;
  readonly operators: GraphProfile;
  readonly prefetch: null;
  readonly tier: HostTier;
  readonly state: GpuProcessState;
  readonly measure: MeasuredLayerProfile;
  readonly topology: MeasuredTopology;
  readonly ping: null;
  readonly close: null;
}

export type ToGpuProcess =
  | { readonly id: number; readonly request: GpuRequest }
  /** The caller of a request is gone. */
  | { readonly id: number; readonly cancel: true };

export type FromGpuProcess =
  | { readonly id: number; readonly ok: true; readonly answer: unknown }
  | { readonly id: number; readonly ok: false; readonly code: GpuErrorCode; readonly message: string };
