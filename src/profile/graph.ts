import { ProfileError } from './profile-error.ts';
import { profileCheck, shown } from './schema-check.ts';

/** GPU memory of one operator when it runs there, in bytes: the four columns of Chrion's matrix M (section 3). */
export interface OperatorBytes {
  readonly input: number;
  readonly output: number;
  readonly ephemeral: number;
  readonly weights: number;
}

/** What one operator takes: a row of Chrion's matrix W (section 3). */
export interface OperatorProfile {
  readonly name: string;
  /** Milliseconds on the GPU; null for an operator that only the CPU can run. */
  readonly gpu: number | null;
  /** Milliseconds on one core while 1, 2, ... k cores are at work; every operator has the same number of entries. */
  readonly cpu: readonly number[];
  readonly bytes: OperatorBytes;
}

/** From, to (each a name or a position in `nodes`), and the bytes that go along. */
export type OperatorEdge = readonly [from: string | number, to: string | number, bytes: number];

/** The same form in files (`wrangler-free-config/profiles/graph.schema.json`) and in memory. */
export interface GraphProfile {
  readonly unit: 'ms';
  readonly nodes: readonly OperatorProfile[];
  readonly edges: readonly OperatorEdge[];
  /** GB/s (10^9 bytes per second) between host memory and GPU memory. */
  readonly bandwidth: number;
  /** Milliseconds that a copy takes whatever its size. */
  readonly latency: number;
}

const check = profileCheck('graph', 'graph profile');

/**
 * Checks what was read from a file: names, sizes, ends of edges, and that the graph has no cycle. Throws
 * {@link ProfileError} with a sentence that names the field.
 */
export function parseGraphProfile(json: unknown): GraphProfile {
  check(json);
  const profile = json as GraphProfile;
  const positions = new Map<string, number>();
  const coreCount = profile.nodes[0]?.cpu.length ?? 0;
  for (const [index, { name, cpu }] of profile.nodes.entries()) {
    const earlier = positions.get(name);
    if (earlier !== undefined) {
      throw new ProfileError(
        `field 'nodes[${index}].name' of the graph profile is ${shown(name)}, which is the name of nodes[${earlier}] already`,
      );
    }
    positions.set(name, index);
    if (cpu.length !== coreCount) {
      throw new ProfileError(
        `field 'nodes[${index}].cpu' of the graph profile has ${cpu.length} entries, but 'nodes[0].cpu' has ${coreCount}: every operator needs its times for the same numbers of cores`,
      );
    }
  }
  resolveEdges(profile, positions);
  return profile;
}

export interface ResolvedEdge {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

/**
 * The edges with positions in `nodes` for both ends. Throws {@link ProfileError} for an end that is no operator, an
 * operator that waits for itself, and a cycle.
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
  const resolved = edges.map(([from, to, bytes], index) => {
    const edge = { from: resolve(from, `edges[${index}][0]`), to: resolve(to, `edges[${index}][1]`), bytes };
    if (edge.from === edge.to) {
      throw new ProfileError(`field 'edges[${index}]' of the graph profile leads from ${shown(from)} to itself`);
    }
    return edge;
  });
  mustBeAcyclic(nodes, resolved);
  return resolved;
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

/** Walks backwards among the operators that still wait: each of them waits for another of them, so the walk closes. */
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
