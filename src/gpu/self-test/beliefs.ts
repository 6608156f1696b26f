/**
 * Beliefs: claims about GPUs, driver and libraries that the engine relies on, and what it does if one does not hold.
 */
import type { Capability } from '../types.ts';

export type Belief =
  | 'copies'
  | 'kernels'
  | 'registered-memory'
  | 'host-reads-by-kernels'
  | 'products'
  | 'graphs'
  | 'peer-copies'
  | 'events-across-devices';

export interface BeliefSpec {
  readonly belief: Belief;
  /** 'copies between pinned memory and a GPU keep every byte' */
  readonly claim: string;
  /** What is not used if it does not hold; by default the GPUs. */
  readonly without?: Capability;
  /** What the engine does instead: 'every layer is loaded before it is executed' */
  readonly otherwise: string;
}

/** In the order of the tests: later beliefs depend on earlier ones. */
export const beliefs: readonly BeliefSpec[] = [
  {
    belief: 'copies',
    claim: 'copies between pinned memory and a GPU keep every byte',
    otherwise: 'no function runs on the GPUs',
  },
  {
    belief: 'kernels',
    claim: 'compiled kernels compute what they say',
    otherwise: 'no function runs on the GPUs',
  },
  {
    belief: 'registered-memory',
    claim: 'memory of the system can be pinned, and copies from and to it keep every byte',
    without: 'registered-memory',
    otherwise: 'the driver makes pinned memory, and calls wait meanwhile',
  },
  {
    belief: 'host-reads-by-kernels',
    claim: 'kernels read pinned host memory',
    without: 'host-reads-by-kernels',
    otherwise: 'every layer is loaded before it is executed',
  },
  {
    belief: 'products',
    claim: 'cuBLASLt multiplies right, three products at once with a bias each among them',
    without: 'products',
    otherwise: "the engine's own kernels make all matrix products, which is slower",
  },
  {
    belief: 'graphs',
    claim: 'captured graphs replay what was captured',
    without: 'graphs',
    otherwise: 'warm runs are submitted launch by launch',
  },
  {
    belief: 'peer-copies',
    claim: 'copies from GPU to GPU keep every byte',
    without: 'helping-gpus',
    otherwise: 'no GPU helps another one to load',
  },
  {
    belief: 'events-across-devices',
    claim: 'a GPU waits for what another one has reached',
    without: 'helping-gpus',
    otherwise: 'no GPU helps another one to load',
  },
];

export type BeliefResult = { readonly belief: Belief } &
  /** `detail`: a measured bandwidth, or why there was nothing to test. */
  ({ readonly holds: true; readonly detail: string } | { readonly holds: false; readonly reason: string });

export interface SelfTestReport {
  /** See identityOf. */
  readonly identity: string;
  readonly results: readonly BeliefResult[];
}

/** What a machine's GPUs cannot do. */
export interface Lacks {
  /** Why the GPUs cannot be used at all. */
  readonly unusable: string | undefined;
  readonly without: ReadonlySet<Capability>;
}

export function lacksOf(results: readonly BeliefResult[]): Lacks {
  const without = new Set<Capability>();
  let unusable: string | undefined;
  for (const result of results) {
    if (result.holds) continue;
    const spec = specOf(result.belief);
    if (spec.without !== undefined) without.add(spec.without);
    else unusable ??= sentenceOf(result);
  }
  return { unusable, without };
}

/** "the GPU self-test failed: 'kernels read pinned host memory' does not hold (...); every layer is loaded ..." */
export function sentenceOf({ belief, reason }: BeliefResult & { readonly holds: false }): string {
  const { claim, otherwise } = specOf(belief);
  return `the GPU self-test failed: '${claim}' does not hold (${reason}); ${otherwise}`;
}

export const specOf = (belief: Belief): BeliefSpec => beliefs.find((spec) => spec.belief === belief)!;
