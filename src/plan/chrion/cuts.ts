import { anySide, cpuSide, gpuDevice, gpuSide, type Devices, type Sides } from './devices.ts';
import { noWeights, type Links, type Network } from './network.ts';

/**
 * Where operators stand along the weights of a graph: those that read weights by the order in which the weights first
 * come, the others by the last weights before them, or by the first behind them. In a stack of layers this is the
 * layer.
 */
export interface Ranks {
  readonly count: number;
  readonly of: Int32Array;
  /** Weights by rank. */
  readonly weights: readonly number[];
}

/** Places at which a graph of many weights is cut. */
const cutsAtMost = 12;

export function ranksOf(network: Network, order: Int32Array): Ranks {
  const { weightsOf, into, outOf } = network;
  const rankOfWeights = new Map<number, number>();
  const of = new Int32Array(network.count).fill(-1);
  for (const node of order) {
    const weights = weightsOf[node] ?? noWeights;
    if (weights !== noWeights) {
      const rank = rankOfWeights.get(weights) ?? rankOfWeights.size;
      rankOfWeights.set(weights, rank);
      of[node] = rank;
      continue;
    }
    for (const before of othersOf(into, node)) of[node] = Math.max(of[node] ?? -1, of[before] ?? -1);
  }
  for (const node of order.toReversed()) {
    if ((of[node] ?? -1) >= 0) continue;
    const behind = Array.from(othersOf(outOf, node), (next) => of[next] ?? -1).filter((rank) => rank >= 0);
    of[node] = behind.length === 0 ? 0 : Math.min(...behind);
  }
  return { count: rankOfWeights.size, of, weights: [...rankOfWeights.keys()] };
}

function othersOf({ startOf, node: others }: Links, node: number): Int32Array {
  return others.subarray(startOf[node], startOf[node + 1]);
}

/**
 * Coarse ways to keep part of a graph on the GPU: all its weights up to some, or from some on, in the order of their
 * ranks, with the operators that read them; all of them first. A greedy choice that looks at one operator at a time
 * does not find these: the first operator of a layer is charged with weights that all the layer's operators share.
 *
 * @param kept 1 for each of the weights that may be on the GPU
 */
export function cutsOf(network: Network, ranks: Ranks, kept: Uint8Array): Sides[] {
  const ranksKept = [...ranks.weights.keys()].filter((rank) => kept[ranks.weights[rank] ?? 0] === 1);
  if (ranksKept.length === 0) return [];
  const cuts = [sidesOf(ranks, ranksKept)];
  for (const index of evenly(ranksKept.map((rank) => network.weightBytes[ranks.weights[rank] ?? 0] ?? 0))) {
    cuts.push(sidesOf(ranks, ranksKept.slice(0, index)), sidesOf(ranks, ranksKept.slice(index)));
  }
  return cuts;
}

/** Where to cut a row of weights: everywhere, or where there are many at places that divide the bytes evenly. */
function evenly(bytes: readonly number[]): number[] {
  const places = bytes.slice(1).map((_, index) => index + 1);
  if (places.length <= cutsAtMost) return places;
  const totalBytes = bytes.reduce((sum, size) => sum + size, 0);
  const chosen: number[] = [];
  let share = 0;
  let before = 0;
  for (const place of places) {
    before += bytes[place - 1] ?? 0;
    // Weights of no size are divided by number.
    const part = totalBytes === 0 ? place / bytes.length : before / totalBytes;
    if (part * (cutsAtMost + 1) < share + 1) continue;
    share = Math.floor(part * (cutsAtMost + 1));
    chosen.push(place);
  }
  return chosen;
}

function sidesOf(ranks: Ranks, onGpu: readonly number[]): Sides {
  const side = new Uint8Array(Math.max(ranks.count, 1)).fill(cpuSide);
  for (const rank of onGpu) side[rank] = gpuSide;
  return Uint8Array.from(ranks.of, (rank) => side[rank] ?? cpuSide);
}

/**
 * Cores for what a cut leaves to the CPU: neighbouring ranks on one core, with about as much to do on each. Compared to
 * giving each operator to the core that is free first, fewer tensors go from core to core, and operators of several
 * layers that become ready together are one call.
 */
export function coresByRank(network: Network, ranks: Ranks, sides: Sides, cores: number): Devices {
  const cpuMs = network.cpuMs[cores - 1];
  const onGpu = (node: number): boolean => sides[node] !== cpuSide && network.gpuMs[node] !== Infinity;
  const rankMs = new Float64Array(Math.max(ranks.count, 1));
  for (const [node, rank] of ranks.of.entries())
    if (!onGpu(node)) rankMs[rank] = (rankMs[rank] ?? 0) + (cpuMs?.[node] ?? 0);
  const totalMs = rankMs.reduce((sum, ms) => sum + ms, 0);
  let beforeMs = 0;
  const coreOf = rankMs.map((ms) => {
    const middle = totalMs === 0 ? 0 : (beforeMs + ms / 2) / totalMs;
    beforeMs += ms;
    return 1 + Math.min(cores - 1, Math.floor(middle * cores));
  });
  return Int32Array.from(ranks.of, (rank, node) => (onGpu(node) ? gpuDevice : (coreOf[rank] ?? 1)));
}

/** Only weights of `kept` on the GPU; operators without weights may run anywhere. */
export function sidesWithin(network: Network, kept: Uint8Array): Sides {
  return Uint8Array.from(network.weightsOf, (weights) =>
    weights === noWeights || kept[weights] === 1 ? anySide : cpuSide,
  );
}
