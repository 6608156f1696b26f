import { resolveEdges, type GraphProfile, type ResolvedEdge } from '../../profile/index.ts';

/** A graph profile with positions instead of names, and both directions of its edges, ready for planning. */
export type Network = ReturnType<typeof networkOf>;

/** Edges by one of their ends: rows of operator n are from `startOf[n]` to before `startOf[n + 1]`. */
export interface Links {
  readonly startOf: Int32Array;
  /** Position of the operator at the other end. */
  readonly node: Int32Array;
  readonly tensor: Int32Array;
  /** Milliseconds to copy the tensor between host and GPU. */
  readonly copyMs: Float64Array;
}

export const noWeights = -1;

const bytesPerMsAtOneGbPerSecond = 1e6;

/** @throws ProfileError if the edges name unknown operators or form a cycle */
export function networkOf(profile: GraphProfile) {
  const { nodes, bandwidth, latency, activations = 'own', callMs = 0 } = profile;
  // An operator that takes a tensor twice gets it once.
  const takers = new Set<number>();
  const edges = resolveEdges(profile).filter(({ to, tensor }) => {
    const taker = tensor * nodes.length + to;
    return !takers.has(taker) && takers.add(taker);
  });
  const tensorCount = edges.reduce((most, { tensor }) => Math.max(most, tensor + 1), 0);
  const copyMs = edges.map(({ bytes }) => latency + bytes / (bandwidth * bytesPerMsAtOneGbPerSecond));
  const own = activations === 'own';
  return {
    names: nodes.map(({ name }) => name),
    count: nodes.length,
    /** Tensors between operators; each counts once even if several operators take it. */
    tensorCount,
    /** Milliseconds on the GPU; Infinity for an operator that only the CPU can run. */
    gpuMs: Float64Array.from(nodes, ({ gpu }) => gpu ?? Infinity),
    /** cpuMs[j]: milliseconds of each operator on one core while j + 1 cores are busy. */
    cpuMs: Array.from({ length: coreCountOf(profile) }, (_, cores) =>
      Float64Array.from(nodes, ({ cpu }) => cpu[cores] ?? Infinity),
    ),
    /** Milliseconds of a call on a core beside its operators. */
    callMs,
    /** GPU memory of the operator without its weights, in bytes: output and ephemeral. */
    ownBytes: Float64Array.from(nodes, ({ bytes }) => (own ? bytes.output + bytes.ephemeral : 0)),
    /** GPU memory of the operator's output if it is copied there, in bytes. */
    copiedBytes: Float64Array.from(nodes, ({ bytes }) => (own ? bytes.output : 0)),
    ...weightsIn(nodes),
    /** Inputs of each operator. */
    into: linksBy('to', 'from', nodes.length, edges, copyMs),
    /** Outputs of each operator. */
    outOf: linksBy('from', 'to', nodes.length, edges, copyMs),
  };
}

/** Edges in rows by one end, in their original order within a row. */
function linksBy(
  end: 'from' | 'to',
  otherEnd: 'from' | 'to',
  count: number,
  edges: readonly ResolvedEdge[],
  copyMs: readonly number[],
): Links {
  const startOf = new Int32Array(count + 1);
  for (const edge of edges) startOf[edge[end] + 1] = (startOf[edge[end] + 1] as number) + 1;
  for (let node = 0; node < count; node++) {
    startOf[node + 1] = (startOf[node + 1] as number) + (startOf[node] as number);
  }
  const next = startOf.slice();
  const links = {
    startOf,
    node: new Int32Array(edges.length),
    tensor: new Int32Array(edges.length),
    copyMs: new Float64Array(edges.length),
  };
  for (const [index, edge] of edges.entries()) {
    const row = next[edge[end]] as number;
    next[edge[end]] = row + 1;
    links.node[row] = edge[otherEnd];
    links.tensor[row] = edge.tensor;
    links.copyMs[row] = copyMs[index] as number;
  }
  return links;
}

function weightsIn(nodes: GraphProfile['nodes']) {
  const numbers = new Map<string, number>();
  const weightBytes: number[] = [];
  /** Whether any weights have several readers, as in unrolled recurrent layers. */
  let sharesWeights = false;
  /** Which weights the operator reads; {@link noWeights} for none. */
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
  return {
    weightsOf,
    /** Bytes of each of those weights; they count once even with several readers. */
    weightBytes: Float64Array.from(weightBytes),
    sharesWeights,
  };
}

/** The most cores for which every operator has a time. */
export function coreCountOf({ nodes }: GraphProfile): number {
  return nodes.reduce((least, { cpu }) => Math.min(least, cpu.length), Infinity);
}
