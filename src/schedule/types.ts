/** What goes into the scheduler and what comes out. Functions, invocations and GPUs are numbers. */
import type { ColdWay, OfferSheet } from './offer.ts';

/** A GPU as the scheduler sees it. */
export interface SchedulerGpu {
  /** For weights. */
  readonly capacityBytes: number;
  /** PCIe switch that its link hangs on. */
  readonly switch: number;
  readonly linkGBps: number;
  /** What all links of the switch carry together. */
  readonly uplinkGBps: number;
}

export type SchedulerEvent =
  /**
   * The invocation's number is the caller's: a small integer, free to be used again once the invocation has ended (it
   * was shed or failed, or the caller told that it finished or departed).
   */
  | {
      readonly kind: 'arrival';
      readonly invocation: number;
      readonly functionIndex: number;
      /** Its own objective and priority, where they are not the function's. */
      readonly sloMs?: number;
      readonly priority?: number;
    }
  /** A run or an offloaded invocation has ended, well or badly. */
  | { readonly kind: 'finished'; readonly invocation: number }
  /** Everything that a `run`, `load` or `grow` ordered has arrived on the GPU. */
  | { readonly kind: 'loaded'; readonly gpu: number; readonly functionIndex: number }
  /** The instant that a `wake` asked for. */
  | { readonly kind: 'wake' }
  /** A waiting invocation's caller has gone. Of one that runs, `finished` is all that is told. */
  | { readonly kind: 'departed'; readonly invocation: number }
  | { readonly kind: 'gpu-lost'; readonly gpu: number }
  | { readonly kind: 'gpu-back'; readonly gpu: number }
  | { readonly kind: 'function-added'; readonly functionIndex: number; readonly sheet: OfferSheet }
  /** A new profile, a new plan, another SLO, a pool that has become faster. */
  | { readonly kind: 'sheet-changed'; readonly functionIndex: number; readonly sheet: OfferSheet }
  | { readonly kind: 'function-removed'; readonly functionIndex: number };

/** What an invocation's function had on the GPU when the scheduler turned to it. */
export type Start = 'warm' | 'partial' | 'cold';

export interface LoadOrder {
  readonly way: ColdWay;
  /** What of the function is there already; the way's tables are indexed by it. */
  readonly prefix: number;
  /** When an execution behind it can end, as it looks now. */
  readonly readyMs: number;
}

export type Action =
  /** Execute now; where a load is given, start it as well and execute behind it. */
  | {
      readonly kind: 'run';
      readonly invocation: number;
      readonly functionIndex: number;
      readonly gpu: number;
      readonly start: Start;
      readonly load: LoadOrder | null;
      readonly predictedEndMs: number;
      /** The rung to run under, by its plan's name; undefined for a function with a single plan that has none. */
      readonly plan: string | undefined;
    }
  /** Load for an invocation that still waits for the GPU. */
  | {
      readonly kind: 'load';
      readonly invocation: number;
      readonly functionIndex: number;
      readonly gpu: number;
      readonly load: LoadOrder;
      readonly plan: string | undefined;
    }
  /**
   * Load what a larger plan has beyond the one that the function is resident under. Nobody waits for it: until it is `loaded`,
   * runs go on under the smaller plan. What is missing is no suffix, so the order's tables have one entry: theirs.
   */
  | {
      readonly kind: 'grow';
      readonly functionIndex: number;
      readonly gpu: number;
      readonly plan: string;
      readonly load: LoadOrder;
    }
  /** Keep only the layers of this smaller plan, and run under it from now on. Stands, as evictions do, in front of the loads. */
  | {
      readonly kind: 'shrink';
      readonly functionIndex: number;
      readonly gpu: number;
      readonly plan: string;
      /** That are given back. */
      readonly bytes: number;
    }
  /** Keep no more than the prefix. Evictions stand in front of the loads that need their room. */
  | {
      readonly kind: 'evict';
      readonly functionIndex: number;
      readonly gpu: number;
      readonly prefix: number;
      readonly bytes: number;
      readonly cause: EvictionCause;
    }
  /** Give up what is being loaded, and the run of it: a GPU that takes part is gone. A run's invocation will be placed again. */
  | { readonly kind: 'abandon'; readonly functionIndex: number; readonly gpu: number }
  | { readonly kind: 'offload'; readonly invocation: number; readonly functionIndex: number }
  /** The invocation waits for this GPU. */
  | { readonly kind: 'wait'; readonly invocation: number; readonly gpu: number }
  | { readonly kind: 'wake'; readonly atMs: number }
  | { readonly kind: 'shed'; readonly invocation: number }
  | { readonly kind: 'fail'; readonly invocation: number; readonly reason: FailReason };

/**
 * `capacity`: the whole function, for room. `trim`: a suffix of its layers, for room. `migration`: for room, and another
 * GPU has the function as well. `unload`: the function was removed. `plan-changed`: its plan has other layers now.
 * `gpu-lost`: with the GPU.
 */
export type EvictionCause = 'capacity' | 'trim' | 'migration' | 'unload' | 'plan-changed' | 'gpu-lost';

/** `nowhere`: no GPU that is up can hold it, and there is no CPU pool. */
export type FailReason = 'nowhere' | 'removed';
