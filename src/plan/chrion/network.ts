import { resolveEdges, type GraphProfile } from '../../profile/index.ts';

/** A graph profile with positions instead of names, and both directions of its edges, ready for planning. */
export interface Network {
  readonly names: readonly string[];
  readonly count: number;
  /** Tensors that flow between operators, each numbered once however many operators take it. */
  readonly tensorCount: number;
  /** Milliseconds on the GPU; Infinity for an operator that only the CPU can run. */
  readonly gpuMs: Float64Array;
  /** cpuMs[j]: milliseconds of each operator on one core while j + 1 cores are at work. */
  readonly cpuMs: readonly Float64Array[];
  /** Milliseconds of a call on a core beside its operators. */
  readonly callMs: number;
  /** GPU memory of the operator when it runs there, its weights left out, in bytes: output and ephemeral. */
  readonly ownBytes: Float64Array;
  /** GPU memory that the operator's output takes when it is copied there, in bytes. */
  readonly copiedBytes: Float64Array;
  /** Which weights the operator reads; {@link noWeights} for none. */
  readonly weightsOf: Int32Array;
  /** Bytes of each of those weights; they count once however many operators read them. */
  readonly weightBytes: Float64Array;
  /** Whether any weights have more than one reader, as those of unrolled recurrent layers do. */
  readonly sharesWeights: boolean;
  readonly predecessors: readonly (readonly Link[])[];
  readonly successors: readonly (readonly Link[])[];
}

/** An edge as seen from one of its ends. */
export interface Link {
  /** Position of the operator at the other end. */
  readonly node: number;
  readonly tensor: number;
  /** Milliseconds of copying the tensor between host and GPU. */
  readonly copyMs: number;
}

export const noWeights = -1;

const bytesPerMsAtOneGbPerSecond = 1e6;

/** Throws ProfileError when the edges name unknown operators or make a cycle. */
export function networkOf(profile: GraphProfile): Network {
  const { nodes, bandwidth, latency, activations = 'own', callMs = 0 } = profile;
  const predecessors: Link[][] = nodes.map(() => []);
  const successors: Link[][] = nodes.map(() => []);
  let tensorCount = 0;
  const takers = new Set<string>();
  for (const { from, to, bytes, tensor } of resolveEdges(profile)) {
    tensorCount = Math.max(tensorCount, tensor + 1);
    // An operator that takes a tensor twice still gets it once.
    const taker = `${tensor}:${to}`;
    if (takers.has(taker)) continue;
    takers.add(taker);
    const copyMs = latency + bytes / (bandwidth * bytesPerMsAtOneGbPerSecond);
    predecessors[to]?.push({ node: from, tensor, copyMs });
    successors[from]?.push({ node: to, tensor, copyMs });
  }
  const own = activations === 'own';
  return {
    names: nodes.map(({ name }) => name),
    count: nodes.length,
    tensorCount,
    gpuMs: Float64Array.from(nodes, ({ gpu }) => gpu ?? Infinity),
    cpuMs: Array.from({ length: coreCountOf(profile) }, (_, cores) =>
      Float64Array.from(nodes, ({ cpu }) => cpu[cores] ?? Infinity),
    ),
    callMs,
    ownBytes: Float64Array.from(nodes, ({ bytes }) => (own ? bytes.output + bytes.ephemeral : 0)),
    copiedBytes: Float64Array.from(nodes, ({ bytes }) => (own ? bytes.output : 0)),
    ...weightsIn(nodes),
    predecessors,
    successors,
  };
}

function weightsIn(nodes: GraphProfile['nodes']): Pick<Network, 'weightsOf' | 'weightBytes' | 'sharesWeights'> {
  const numbers = new Map<string, number>();
  const weightBytes: number[] = [];
  let sharesWeights = false;
  const weightsOf = Int32Array.from(nodes, ({ shares, bytes }) => {
    const known = shares === undefined ? undefined : numbers.get(shares);
    if (known !== undefined) {
      sharesWeights = true;
      return known;
    }
    if (shares === undefined && bytes.weights === 0) return noWeights;
    const number = weightBytes.push(bytes.weights) - 1;
    if (shares !== undefined) numbers.set(shares, number);
    return number;
  });
  return { weightsOf, weightBytes: Float64Array.from(weightBytes), sharesWeights };
}

/** The most cores that every operator has a time for. */
export function coreCountOf({ nodes }: GraphProfile): number {
  return nodes.reduce((least, { cpu }) => Math.min(least, cpu.length), Infinity);
}
