/** Knows arrivals in advance. Only a replay does. */
import type { Given, FunctionId } from './ids.ts';
export interface Foresight {
  /** When the function's next invocation comes, among those that have not arrived; Infinity: there is none. */
  readonly nextUseMs: (functionIndex: Given<FunctionId>) => number;
}

/** Settings of the scheduler. Each can be switched on its own. */
export interface Policy {
  /**
   * `modulo`: function number modulo GPUs, as in the DeepPlan artifact. `resident-first`: where the function is
   * resident, else where it costs least in total; see routing.ts.
   */
  readonly routing: Choice<'routing'>;
  /**
   * `lru`: whole functions, least recently used first. `lru-suffix`: first the layers behind the hiding prefix,
   * function by function in that order, then whole functions. `gdsf`: whole functions by use, cost of loading and size
   * (Cherkasova 1998, "Greedy Dual Size Frequency"). `value-suffix`: suffixes and prefixes in one order, by how often
   * the function is used, and what a missing byte costs it; the prefix costs more, since it hides
   * the rest. A foresight: what is used furthest in the future; only a replay has one.
   */
  readonly eviction: Choice<'eviction'> | Foresight;
  /**
   * When the CPU pool is used: never; when a GPU would miss the SLO and the CPU pool would not; or wherever the call
   * ends earliest.
   */
  readonly offload: Choice<'offload'>;
  /** `shed` refuses an invocation that would miss its SLO before any work is done for it. */
  readonly admission: Choice<'admission'>;
  /**
   * Which of a GPU's waiting invocations is next: the first one; or, among those that can still meet their SLO, by
   * deadline and residency. Priority goes first.
   */
  readonly order: Choice<'order'>;
  /**
   * An invocation that has waited this long gets a share of its place's turns, even if others could meet their SLO or
   * have priority.
   */
  readonly waitBoundMs: number;
  /** Loading starts while an invocation waits for the GPU, instead of when its turn comes. */
  readonly loadAhead: boolean;
  /** Other GPUs' links: `always` as the plan has it, queueing for them; `when-idle` only those that carry nothing. */
  readonly borrow: Choice<'borrow'>;
  /** For a function that is on a GPU already: no second GPU; or one where that costs less in total than the wait. */
  readonly copies: Choice<'copies'>;
}

/** The values of each setting that is one of several. */
export const policyChoices = {
  routing: ['modulo', 'resident-first'],
  eviction: ['lru', 'lru-suffix', 'gdsf', 'value-suffix'],
  offload: ['never', 'on-overload', 'earliest-finish'],
  admission: ['best-effort', 'shed'],
  order: ['fifo', 'slo-first'],
  borrow: ['always', 'when-idle'],
  copies: ['never', 'weighed'],
} as const;

type Choice<Setting extends keyof typeof policyChoices> = (typeof policyChoices)[Setting][number];

/**
 * Bundles of settings by name. `artifact` does as the DeepPlan artifact's server. `lru` serves as the paper describes
 * (5.3): whole functions, least recently used evicted first, first come first served, on the GPU that is free first.
 */
export const policies = {
  lru: {
    routing: 'resident-first',
    eviction: 'lru',
    offload: 'never',
    admission: 'best-effort',
    order: 'fifo',
    waitBoundMs: Infinity,
    loadAhead: false,
    borrow: 'always',
    copies: 'never',
  },
  artifact: {
    routing: 'modulo',
    eviction: 'lru',
    offload: 'never',
    admission: 'best-effort',
    order: 'fifo',
    waitBoundMs: Infinity,
    loadAhead: false,
    borrow: 'always',
    copies: 'never',
  },
  best: {
    routing: 'resident-first',
    eviction: 'value-suffix',
    offload: 'on-overload',
    admission: 'best-effort',
    order: 'slo-first',
    waitBoundMs: 1000,
    loadAhead: true,
    borrow: 'when-idle',
    copies: 'weighed',
  },
} as const satisfies Record<string, Policy>;

export type PolicyName = keyof typeof policies;
export const policyNames = Object.keys(policies) as PolicyName[];
