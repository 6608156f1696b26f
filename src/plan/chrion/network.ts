import { resolveEdges, type GraphProfile } from '../../profile/index.ts';

/** A graph profile with positions instead of names, and both directions of its edges, ready for planning. */
export interface Network {
  readonly names: readonly string[];
  readonly count: number;
  readonly edgeCount: number;
  /** Milliseconds on the GPU; Infinity for an operator that only the CPU can run. */
  readonly gpuMs: Float64Array;
  /** cpuMs[j]: milliseconds of each operator on one core while j + 1 cores are at work. */
  readonly cpuMs: readonly Float64Array[];
  /** GPU memory of the operator itself when it runs there: output, ephemeral and weights, in bytes. */
  readonly ownBytes: Float64Array;
  readonly outputBytes: Float64Array;
  readonly predecessors: readonly (readonly Link[])[];
  readonly successors: readonly (readonly Link[])[];
}

/** An edge as seen from one of its ends. */
export interface Link {
  /** Position of the operator at the other end. */
  readonly node: number;
  readonly edge: number;
  /** Milliseconds of copying the edge's bytes between host and GPU. */
  readonly copyMs: number;
}

const bytesPerMsAtOneGbPerSecond = 1e6;

/** Throws ProfileError when the edges name unknown operators or make a cycle. */
export function networkOf(profile: GraphProfile): Network {
  const { nodes, bandwidth, latency } = profile;
  const predecessors: Link[][] = nodes.map(() => []);
  const successors: Link[][] = nodes.map(() => []);
  const edges = resolveEdges(profile);
  for (const [edge, { from, to, bytes }] of edges.entries()) {
    const copyMs = latency + bytes / (bandwidth * bytesPerMsAtOneGbPerSecond);
    predecessors[to]?.push({ node: from, edge, copyMs });
    successors[from]?.push({ node: to, edge, copyMs });
  }
  return {
    names: nodes.map(({ name }) => name),
    count: nodes.length,
    edgeCount: edges.length,
    gpuMs: Float64Array.from(nodes, ({ gpu }) => gpu ?? Infinity),
    cpuMs: Array.from({ length: coreCountOf(profile) }, (_, cores) =>
      Float64Array.from(nodes, ({ cpu }) => cpu[cores] ?? Infinity),
    ),
    ownBytes: Float64Array.from(nodes, ({ bytes }) => bytes.output + bytes.ephemeral + bytes.weights),
    outputBytes: Float64Array.from(nodes, ({ bytes }) => bytes.output),
    predecessors,
    successors,
  };
}

/** The most cores that every operator has a time for. */
export function coreCountOf({ nodes }: GraphProfile): number {
  return nodes.reduce((least, { cpu }) => Math.min(least, cpu.length), Infinity);
}
