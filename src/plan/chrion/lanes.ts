import { gpuDevice, type Devices } from './devices.ts';
import type { Links, Network } from './network.ts';

/**
 * A selection of devices, seen from the devices: what each does in which order, and which tensors cross between them.
 * Operators are numbered by position: those of the GPU first, then those of core 1 and so on, each device's in order of
 * placement. How a core's operators form calls is not part of it.
 */
export interface Lanes {
  readonly count: number;
  readonly laneCount: number;
  /** The first position of each lane; after the last lane the number of positions. */
  readonly startOf: Int32Array;
  /** Operator at each position. */
  readonly nodes: Int32Array;
  /** 0 for the GPU, j for core j. */
  readonly laneOf: Int32Array;
  /** Milliseconds of the operator on its device. */
  readonly takesMs: Float64Array;
  /** Milliseconds of a call beside its operators. */
  readonly callMs: number;
  readonly tensorCount: number;
  /** Tensors from another lane, by position of the operator that takes them. */
  readonly into: Crossings;
  /** Tensors for another lane, by position of the operator that makes them. */
  readonly outOf: Crossings;
  /** Positions in the order of placement. */
  readonly placed: Int32Array;
}

/** Rows of crossings: those of position p are from `startOf[p]` to before `startOf[p + 1]`. */
export interface Crossings {
  readonly startOf: Int32Array;
  /** Position at the other end. */
  readonly other: Int32Array;
  readonly tensor: Int32Array;
  readonly copyMs: Float64Array;
  /**
   * 1 if the GPU's stream copies the tensor at this crossing: in `into` for the first operator on the GPU that takes
   * it, in `outOf` for the first on the CPU. Later ones find it there.
   */
  readonly copied: Uint8Array;
}

export function lanesOf(network: Network, order: Int32Array, cores: number, devices: Devices): Lanes {
  const { count, gpuMs, callMs, tensorCount } = network;
  const cpuMs = network.cpuMs[cores - 1];
  const laneCount = cores + 1;
  const startOf = new Int32Array(laneCount + 1);
  for (const device of devices) startOf[device + 1] = (startOf[device + 1] ?? 0) + 1;
  for (let lane = 0; lane < laneCount; lane++) startOf[lane + 1] = (startOf[lane + 1] ?? 0) + (startOf[lane] ?? 0);
  const nodes = new Int32Array(count);
  const laneOf = new Int32Array(count);
  const takesMs = new Float64Array(count);
  const positionOf = new Int32Array(count);
  const next = startOf.slice();
  const placed = order.map((node) => {
    const lane = devices[node] as number;
    const position = next[lane] as number;
    next[lane] = position + 1;
    nodes[position] = node;
    laneOf[position] = lane;
    takesMs[position] = (lane === gpuDevice ? gpuMs[node] : cpuMs?.[node]) ?? 0;
    positionOf[node] = position;
    return position;
  });
  const isCopied = new Uint8Array(tensorCount);
  const places = { count, nodes, laneOf, positionOf };
  // The GPU's positions are visited in the order of its stream, and no tensor crosses both ways.
  const outOf = crossings(network.outOf, places, isCopied);
  const into = crossings(network.into, places, isCopied);
  return { count, laneCount, startOf, nodes, laneOf, takesMs, callMs, tensorCount, into, outOf, placed };
}

interface Places {
  readonly count: number;
  readonly nodes: Int32Array;
  readonly laneOf: Int32Array;
  readonly positionOf: Int32Array;
}

/** @param isCopied 1 for tensors copied at an earlier crossing */
function crossings(
  { startOf: linkStartOf, node: nodeOf, tensor: tensorOf, copyMs: copyMsOf }: Links,
  { count, nodes, laneOf, positionOf }: Places,
  isCopied: Uint8Array,
): Crossings {
  const startOf = new Int32Array(count + 1);
  const other = new Int32Array(nodeOf.length);
  const tensor = new Int32Array(nodeOf.length);
  const copyMs = new Float64Array(nodeOf.length);
  const copied = new Uint8Array(nodeOf.length);
  let row = 0;
  for (let position = 0; position < count; position++) {
    const lane = laneOf[position] as number;
    const node = nodes[position] as number;
    const linkEnd = linkStartOf[node + 1] as number;
    for (let link = linkStartOf[node] as number; link < linkEnd; link++) {
      const otherPosition = positionOf[nodeOf[link] as number] as number;
      if (laneOf[otherPosition] === lane) continue;
      const crossing = tensorOf[link] as number;
      other[row] = otherPosition;
      tensor[row] = crossing;
      copyMs[row] = copyMsOf[link] as number;
      if (lane === gpuDevice && isCopied[crossing] === 0) copied[row] = isCopied[crossing] = 1;
      row++;
    }
    startOf[position + 1] = row;
  }
  return { startOf, other, tensor, copyMs, copied };
}

/**
 * Where calls begin, by position, if each is as short as can pay: operators in sequence on a core, with nothing to come
 * or leave in between, are one call, which delays nothing. Every operator on the GPU stands alone.
 */
export function runsIn({ count, laneOf, into, outOf }: Lanes): Uint8Array {
  const starts = new Uint8Array(count);
  for (let position = 0; position < count; position++) {
    const isAlone = position === 0 || laneOf[position] === gpuDevice || laneOf[position] !== laneOf[position - 1];
    const comes = into.startOf[position] !== into.startOf[position + 1];
    const leaves = outOf.startOf[position - 1] !== outOf.startOf[position];
    starts[position] = isAlone || comes || leaves ? 1 : 0;
  }
  return starts;
}
