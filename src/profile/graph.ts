import { shown } from '../hardware/index.ts';
import { profileCheck, ProfileError } from './profile-error.ts';

/** GPU memory of one operator when it runs there, in bytes: the four columns of Chrion's matrix M (section 3). */
export interface OperatorBytes {
  readonly input: number;
  readonly output: number;
  readonly ephemeral: number;
  readonly weights: number;
}

/** The times of one operator: a row of Chrion's matrix W (section 3). */
export interface OperatorProfile {
  readonly name: string;
  /** Milliseconds on the GPU; null for an operator that only the CPU can run. */
  readonly gpu: number | null;
  /** Milliseconds on one core while 1, 2, ... k cores are busy; every operator has the same number of entries. */
  readonly cpu: readonly number[];
  readonly bytes: OperatorBytes;
  /**
   * Operators with the same value share their weights: each has the same `bytes.weights`, which counts once on the GPU.
   * Default: the weights are the operator's own.
   */
  readonly shares?: string;
}

/**
 * From, to (each a name or a position in `nodes`), and the bytes of the tensor. Edges of one operator with the same
 * `value` are one tensor for several operators, which crosses between host and GPU once; an edge without `value` has
 * its own tensor.
 */
export type OperatorEdge = readonly [from: string | number, to: string | number, bytes: number, value?: string];

/** The same form in files (`wrangler-free-config/profiles/graph.schema.json`) and in memory. */
export interface GraphProfile {
  readonly unit: 'ms';
  readonly nodes: readonly OperatorProfile[];
  readonly edges: readonly OperatorEdge[];
  /** GB/s (10^9 bytes per second) between host memory and GPU memory. */
  readonly bandwidth: number;
  /** Milliseconds of a copy beyond its bytes. */
  readonly latency: number;
  /**
   * 'own': every operator on the GPU keeps its output and ephemeral memory (the paper). 'shared': these are in memory
   * that all functions share, so that only weights count. Default 'own'.
   */
  readonly activations?: 'own' | 'shared';
  /** Milliseconds that one call of a CPU sub-graph takes beside its operators. Default 0. */
  readonly callMs?: number;
}

const check = profileCheck('graph', 'graph profile');

/**
 * Checks the contents of a file: names, sizes, ends of edges, and that the graph has no cycle.
 * @throws ProfileError with a sentence that names the field
 */
export function parseGraphProfile(json: unknown): GraphProfile {
  check(json);
  const profile = json as GraphProfile;
  const positions = new Map<string, number>();
  const firstOf = new Map<string, number>();
  const coreCount = profile.nodes[0]?.cpu.length ?? 0;
  for (const [index, { name, cpu, shares, bytes }] of profile.nodes.entries()) {
    const earlier = positions.get(name);
    if (earlier !== undefined) {
      throw new ProfileError(
        `field 'nodes[${index}].name' of the graph profile is ${shown(name)}, which is the name of ` +
          `nodes[${earlier}] already`,
      );
    }
    positions.set(name, index);
    if (cpu.length !== coreCount) {
      throw new ProfileError(
        `field 'nodes[${index}].cpu' of the graph profile has ${cpu.length} entries, but 'nodes[0].cpu' has ` +
          `${coreCount}: every operator needs its times for the same numbers of cores`,
      );
    }
    if (shares === undefined) continue;
    const first = firstOf.get(shares) ?? index;
    firstOf.set(shares, first);
    const { name: firstName, bytes: firstBytes } = profile.nodes[first] as OperatorProfile;
    if (bytes.weights !== firstBytes.weights) {
      throw new ProfileError(
        `field 'nodes[${index}].bytes.weights' of the graph profile is ${bytes.weights}, but '${firstName}', ` +
          `which shares ${shown(shares)} with it, has ${firstBytes.weights}`,
      );
    }
  }
  mustAgreeOnValues(profile, resolveEdges(profile, positions));
  return profile;
}

export interface ResolvedEdge {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
  /** Number of the edge's tensor; edges with the same number carry the same tensor. Counted from 0. */
  readonly tensor: number;
}

/**
 * The edges with the positions of both ends in `nodes`.
 * @throws ProfileError for an end that is not an operator, an edge from an operator to itself, and a cycle
 */
export function resolveEdges(
  { nodes, edges }: Pick<GraphProfile, 'nodes' | 'edges'>,
  positions: ReadonlyMap<string, number> = new Map(nodes.map(({ name }, index) => [name, index])),
): ResolvedEdge[] {
  const resolve = (end: string | number, field: string): number => {
    const position = typeof end === 'string' ? positions.get(end) : end;
    if (position === undefined || position >= nodes.length) {
      throw new ProfileError(`field '${field}' of the graph profile is ${shown(end)}, which is no operator of 'nodes'`);
    }
    return position;
  };
  const tensors = new Map<string, number>();
  let tensorCount = 0;
  const resolved = edges.map(([fromEnd, toEnd, bytes, value], index) => {
    const from = resolve(fromEnd, `edges[${index}][0]`);
    const to = resolve(toEnd, `edges[${index}][1]`);
    // A position has no colon, so keys of different tensors differ.
    const key = value === undefined ? undefined : `${from}:${value}`;
    const tensor = (key === undefined ? undefined : tensors.get(key)) ?? tensorCount++;
    if (key !== undefined) tensors.set(key, tensor);
    const edge = { from, to, bytes, tensor };
    if (edge.from === edge.to) {
      throw new ProfileError(`field 'edges[${index}]' of the graph profile leads from ${shown(fromEnd)} to itself`);
    }
    return edge;
  });
  mustBeAcyclic(nodes, resolved);
  return resolved;
}

/** Edges that carry one tensor must give the same size. */
function mustAgreeOnValues({ edges }: GraphProfile, resolved: readonly ResolvedEdge[]): void {
  const firstOf = new Map<number, number>();
  for (const [index, { tensor, bytes }] of resolved.entries()) {
    const first = firstOf.get(tensor) ?? index;
    firstOf.set(tensor, first);
    if (resolved[first]?.bytes === bytes) continue;
    throw new ProfileError(
      `field 'edges[${index}][2]' of the graph profile is ${bytes}, but edges[${first}] says ` +
        `${resolved[first]?.bytes} for the same value ${shown(edges[index]?.[3])}`,
    );
  }
}

function mustBeAcyclic(nodes: readonly OperatorProfile[], edges: readonly ResolvedEdge[]): void {
  const successors: number[][] = nodes.map(() => []);
  const waitsFor = new Int32Array(nodes.length);
  for (const { from, to } of edges) {
    successors[from]?.push(to);
    waitsFor[to] = (waitsFor[to] ?? 0) + 1;
  }
  const ready = [...nodes.keys()].filter((node) => waitsFor[node] === 0);
  let done = 0;
  for (; done < ready.length; done++) {
    for (const next of successors[ready[done] ?? 0] ?? []) {
      waitsFor[next] = (waitsFor[next] ?? 0) - 1;
      if (waitsFor[next] === 0) ready.push(next);
    }
  }
  if (done === nodes.length) return;
  throw new ProfileError(`field 'edges' of the graph profile has a cycle: ${cycleText(nodes, edges, waitsFor)}`);
}

/** Walks backwards among the operators that still wait. Each of them waits for another, so the walk closes. */
function cycleText(nodes: readonly OperatorProfile[], edges: readonly ResolvedEdge[], waitsFor: Int32Array): string {
  const waiting = (node: number): boolean => (waitsFor[node] ?? 0) > 0;
  const before = new Map<number, number>();
  for (const { from, to } of edges) if (waiting(from) && waiting(to)) before.set(to, from);
  const walk: number[] = [];
  let node = [...before.keys()][0];
  while (node !== undefined && !walk.includes(node)) {
    walk.push(node);
    node = before.get(node);
  }
  const cycle = node === undefined ? walk : [...walk.slice(walk.indexOf(node)), node];
  const names = cycle.reverse().map((position) => nodes[position]?.name ?? String(position));
  return (names.length > 8 ? [...names.slice(0, 4), '...', ...names.slice(-2)] : names).join(' -> ');
}
