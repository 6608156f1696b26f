/** What the scheduler can be told to do otherwise. Every setting can be switched on its own. */
export interface Policy {
  /**
   * `modulo`: function number modulo GPUs, as the DeepPlan artifact has it. `resident-first`: where the function is
   * resident, else where there is room; a second copy only when its backlog costs more than the load.
   */
  readonly routing: (typeof routings)[number];
  /**
   * `lru`: whole functions, least recently used first. `lru-suffix`: first the layers behind the hiding prefix, function by
   * function in that order, then whole functions. `gdsf`: whole functions by use, cost of loading and size (Cherkasova
   * 1998, "Greedy Dual Size Frequency"). `value-suffix`: suffixes and prefixes in one order, by how often the function is
   * used and what a missing byte costs it; the prefix costs more, since it hides the rest.
   */
  readonly eviction: (typeof evictions)[number];
  /** To the CPU pool: never; when a GPU would miss the SLO and the CPU pool would not; or wherever it ends earliest. */
  readonly offload: (typeof offloads)[number];
  /** `shed` refuses an invocation that would miss its SLO, before any work is done for it. */
  readonly admission: (typeof admissions)[number];
  /** Which of a GPU's waiting invocations is next: the first, or the first whose function is resident. Priority goes first. */
  readonly order: (typeof orders)[number];
  /** An invocation that has waited so long is next on its GPU, whatever else is resident or has priority. */
  readonly waitBoundMs: number;
  /** Loading starts while an invocation waits for the GPU, instead of when its turn comes. */
  readonly loadAhead: boolean;
  /** Other GPUs' links: `always` as the plan has it, queueing for them; `when-idle` only those that carry nothing. */
  readonly borrow: (typeof borrowings)[number];
  /** A second copy of a function is made when its backlog exceeds another GPU's by so many times the loading. */
  readonly copyThreshold: number;
}

export const routings = ['modulo', 'resident-first'] as const;
export const evictions = ['lru', 'lru-suffix', 'gdsf', 'value-suffix'] as const;
export const offloads = ['never', 'on-overload', 'earliest-finish'] as const;
export const admissions = ['best-effort', 'shed'] as const;
export const orders = ['fifo', 'resident-first'] as const;
export const borrowings = ['always', 'when-idle'] as const;

/** Bundles of settings by name; `artifact` does as the DeepPlan artifact's server does. */
export const policies = {
  artifact: {
    routing: 'modulo',
    eviction: 'lru',
    offload: 'never',
    admission: 'best-effort',
    order: 'fifo',
    waitBoundMs: Infinity,
    loadAhead: false,
    borrow: 'always',
    copyThreshold: Infinity,
  },
  best: {
    routing: 'resident-first',
    eviction: 'value-suffix',
    offload: 'on-overload',
    admission: 'best-effort',
    order: 'resident-first',
    waitBoundMs: 1000,
    loadAhead: true,
    borrow: 'when-idle',
    copyThreshold: 3,
  },
} as const satisfies Record<string, Policy>;

export type PolicyName = keyof typeof policies;
export const policyNames = Object.keys(policies) as PolicyName[];
