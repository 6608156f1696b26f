import { anySide, cpuSide, gpuDevice, gpuSide, type Devices, type Sides } from './devices.ts';
import { noWeights, type Links, type Network } from './network.ts';

/**
 * Ranks of operators along the weights of a graph. An operator that reads weights has their rank, by first use; any
 * other has the rank of the last weights before it, or of the first after it. In a stack of layers the rank is the
 * layer.
 */
export interface Ranks {
  readonly count: number;
  readonly of: Int32Array;
  /** Weights by rank. */
  readonly weights: readonly number[];
}

/** Most places at which a graph of many weights is cut. */
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
 * Coarse ways to keep part of a graph on the GPU: first all its weights, then the weights up to some rank or from it
 * on, each with the operators that read them. A greedy choice by single operators does not find these: it charges the
 * first operator of a layer with weights that all the layer's operators share.
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

/** Where to cut a row of weights: everywhere, or for long rows at places that divide the bytes evenly. */
function evenly(bytes: readonly number[]): number[] {
  const places = bytes.slice(1).map((_, index) => index + 1);
  if (places.length <= cutsAtMost) return places;
  const totalBytes = bytes.reduce((sum, size) => sum + size, 0);
  const chosen: number[] = [];
  let share = 0;
  let before = 0;
  for (const place of places) {
    before += bytes[place - 1] ?? 0;
    // Weights of size 0 are divided by number.
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
 * Cores for the CPU part of a cut: neighbouring ranks share a core, with about equal work for each core. Compared to
 * taking the first free core for each operator, fewer tensors go from core to core, and operators of several layers
 * that become ready together are one call.
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
