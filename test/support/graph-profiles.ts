/** Random graph profiles, and the latency of a plan when it is executed step by step. */
import fc from 'fast-check';
import type { ChrionPlan } from '../../src/plan/index.ts';
import { resolveEdges, type GraphProfile, type OperatorEdge } from '../../src/profile/index.ts';

/**
 * Graphs without cycles whose operators share weights in groups and tensors among several takers, cannot all run on the
 * GPU, and have a cost per call. Times are multiples of 1/64 ms, so that sums are exact in any order.
 */
export function anyLiveGraph({ operators = 14, cores = 3 } = {}): fc.Arbitrary<GraphProfile> {
  return fc.integer({ min: 1, max: operators }).chain((count) => {
    const time = fc.integer({ min: 1, max: 320 }).map((ticks) => ticks / 64);
    const node = fc.record({
      gpu: fc.option(time, { freq: 9 }),
      cpu: fc.array(time, { minLength: cores, maxLength: cores }),
      output: fc.integer({ min: 0, max: 1e6 }),
      ephemeral: fc.integer({ min: 0, max: 1e6 }),
      weights: fc.nat(5),
    });
    const edge = fc.tuple(fc.nat(count - 1), fc.nat(count - 1), fc.nat(2));
    return fc
      .record({
        nodes: fc.array(node, { minLength: count, maxLength: count }),
        edges: fc.array(edge, { maxLength: 2 * count }),
        latency: fc.constantFrom(0, 1 / 64, 0.25, 1),
        callMs: fc.constantFrom(0, 1 / 32, 0.25, 1, 4),
        activations: fc.constantFrom('own' as const, 'shared' as const),
      })
      .map(({ nodes, edges, latency, callMs, activations }): GraphProfile => ({
        unit: 'ms',
        nodes: nodes.map(({ gpu, cpu, output, ephemeral, weights }, index) => ({
          name: `n${index}`,
          gpu,
          cpu,
          bytes: { input: 0, output, ephemeral, weights: weights * 1e6 },
          // Of 0 to 5: 0 has no weights, 5 has its own, the others share by number.
          ...(weights > 0 && weights < 5 ? { shares: `W${weights}` } : {}),
        })),
        edges: edges
          .filter(([from, to]) => from !== to)
          .map(([from, to, value]): OperatorEdge =>
            value === 2
              ? [Math.min(from, to), Math.max(from, to), 0]
              : [Math.min(from, to), Math.max(from, to), 0, `v${value}`],
          ),
        bandwidth: 1,
        latency,
        callMs,
        activations,
      }));
  });
}

/**
 * A stack of recurrent layers, unrolled: one operator for each layer and cell; the cells of a layer share its weights.
 */
export function liveStack({
  layers,
  cells,
  gpuMs,
  cpuMs,
  callMs,
  cores = 4,
}: {
  readonly layers: number;
  readonly cells: number;
  readonly gpuMs: number;
  readonly cpuMs: number;
  readonly callMs: number;
  readonly cores?: number;
}): GraphProfile {
  const bytes = { input: 8192, output: 8192, ephemeral: 0, weights: 8e6 };
  const places = Array.from({ length: layers * cells }, (_, place) => place);
  return {
    unit: 'ms',
    nodes: places.map((place) => ({
      name: `layer${Math.floor(place / cells)}/cell${place % cells}`,
      gpu: gpuMs,
      cpu: Array.from({ length: cores }, (_, others) => cpuMs * (1 + 0.1 * others)),
      bytes,
      shares: `layer${Math.floor(place / cells)}`,
    })),
    edges: places.flatMap((place) => {
      const edges: OperatorEdge[] = [];
      if (place % cells < cells - 1) edges.push([place, place + 1, 4096, 'h'], [place, place + 1, 4096, 'c']);
      if (place < (layers - 1) * cells) edges.push([place, place + cells, 4096, 'h']);
      return edges;
    }),
    bandwidth: 20,
    latency: 0.02,
    activations: 'shared',
    callMs,
  };
}

/** Ends by index, each computed once from others. */
function once(what: string, work: (index: number) => number): (index: number) => number {
  const known = new Map<number, number | 'under way'>();
  return (index) => {
    const earlier = known.get(index);
    if (earlier === 'under way') throw new Error(`${what} ${index} waits for itself`);
    if (earlier !== undefined) return earlier;
    known.set(index, 'under way');
    const endMs = work(index);
    known.set(index, endMs);
    return endMs;
  };
}

/**
 * Executes a plan: the GPU takes its operators in the plan's order, every core its calls; a call starts when all its
 * inputs are there and releases its outputs at its end; copies are on the GPU's stream. Written without the planner's
 * own timeline, from the dependencies alone.
 * @returns the end of the last operation; throws on a deadlock
 */
export function carriedOutMs(profile: GraphProfile, plan: ChrionPlan): number {
  const position = new Map(profile.nodes.map(({ name }, index) => [name, index]));
  const at = (name: string): number => position.get(name) ?? -1;
  const edges = resolveEdges(profile);
  const callMs = profile.callMs ?? 0;
  const onGpu = plan.operators.filter(({ device }) => device === 'gpu').map(({ name }) => at(name));
  const calls = plan.segments.map(({ core, operators }) => ({ core, nodes: operators.map(at) }));
  const callOf = new Map(calls.flatMap(({ nodes }, call) => nodes.map((node) => [node, call] as const)));
  const gpuPlace = new Map(onGpu.map((node, place) => [node, place]));
  const copyMs = (bytes: number): number => profile.latency + bytes / (profile.bandwidth * 1e6);
  const arrivedMs = new Map<number, number>();
  const takesFor = (node: number): number => profile.nodes[node]?.cpu[plan.cores - 1] ?? Number.NaN;
  let latestMs = 0;

  const streamMs: (place: number) => number = once('operator on the GPU', (place) => {
    const node = onGpu[place] ?? -1;
    let nowMs = place === 0 ? 0 : streamMs(place - 1);
    const came = new Set<number>();
    for (const { from, to, bytes, tensor } of edges) {
      const call = to === node ? callOf.get(from) : undefined;
      if (call === undefined || came.has(tensor)) continue;
      came.add(tensor);
      const earlier = edges.some((edge) => edge.tensor === tensor && (gpuPlace.get(edge.to) ?? place) < place);
      if (!earlier) nowMs = Math.max(nowMs, callEndMs(call)) + copyMs(bytes);
    }
    nowMs += profile.nodes[node]?.gpu ?? Number.NaN;
    latestMs = Math.max(latestMs, nowMs);
    for (const { from, to, bytes, tensor } of edges) {
      if (from !== node || !callOf.has(to) || arrivedMs.has(tensor)) continue;
      nowMs += copyMs(bytes);
      arrivedMs.set(tensor, nowMs);
    }
    return nowMs;
  });
  const callEndMs: (call: number) => number = once('call', (call) => {
    const { core, nodes } = calls[call] ?? { core: 0, nodes: [] };
    const before = calls.findLastIndex((other, index) => index < call && other.core === core);
    let nowMs = before < 0 ? 0 : callEndMs(before);
    for (const { from, to, tensor } of edges) {
      if (callOf.get(to) !== call) continue;
      const fromCall = callOf.get(from);
      if (fromCall === call) continue;
      if (fromCall === undefined) streamMs(gpuPlace.get(from) ?? -1);
      nowMs = Math.max(nowMs, fromCall === undefined ? (arrivedMs.get(tensor) ?? Number.NaN) : callEndMs(fromCall));
    }
    const endMs = nodes.reduce((sum, node) => sum + takesFor(node), nowMs + callMs);
    latestMs = Math.max(latestMs, endMs);
    return endMs;
  });
  for (const place of onGpu.keys()) streamMs(place);
  for (const call of calls.keys()) callEndMs(call);
  return latestMs;
}
