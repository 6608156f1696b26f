/** Which (threads, batch) instances can fill exactly: the feasibility half of the knapsack. */
import type { Item } from './items.ts';

/** The box that instances are packed into. */
export interface Box {
  /** Threads of each socket in turn: no instance crosses from one to the next. */
  readonly sockets: readonly number[];
  readonly batch: number;
  /** Whether threads may stay without an instance. */
  readonly idleThreads: boolean;
}

/** The threads of a machine as positions 0..T on a line, cut by sockets. */
interface Positions {
  readonly count: number;
  /** First position of the socket of thread p - 1, the last one before position p. */
  readonly socketStart: Int32Array;
}

function positionsOf(sockets: readonly number[]): Positions {
  const threads = sockets.reduce((sum, size) => sum + size, 0);
  const socketStart = new Int32Array(threads + 1);
  let start = 0;
  for (const size of sockets) {
    socketStart.fill(start, start + 1, start + size + 1);
    start += size;
  }
  return { count: threads + 1, socketStart };
}

/**
 * Whether instances out of `items`, any number of each, fill the box. A bit stands for each batch size, so that an
 * instance costs T shifts of B bits: this is asked for every step of a bisection.
 */
export function fills(items: readonly Item[], { sockets, batch, idleThreads }: Box): boolean {
  const { count, socketStart } = positionsOf(sockets);
  const sizes = (1n << BigInt(batch + 1)) - 1n;
  // reach[p]: the batch sizes that instances on the threads before position p can make up together.
  const reach = [1n];
  for (let position = 1; position < count; position++) {
    let here = idleThreads ? reach[position - 1]! : 0n;
    for (const item of items) {
      const from = position - item.threads;
      if (from >= (socketStart[position] ?? 0)) here |= reach[from]! << BigInt(item.batch);
    }
    reach.push(here & sizes);
  }
  return reach.at(-1)! >> BigInt(batch) === 1n;
}

/** No set of instances makes this up. */
const never = 0xffff;

/**
 * The fewest instances from `items` that fill the box, in order of their threads; undefined if none do. Equal sizes are
 * preferred.
 */
export function fewestInstances(items: readonly Item[], { sockets, batch, idleThreads }: Box): Item[] | undefined {
  const { count, socketStart } = positionsOf(sockets);
  // fewest[p][b]: the fewest instances on the threads before position p that make up b.
  const fewest = Array.from({ length: count }, () => new Uint16Array(batch + 1).fill(never));
  (fewest[0] as Uint16Array)[0] = 0;
  for (let position = 1; position < count; position++) {
    const here = fewest[position] as Uint16Array;
    if (idleThreads) here.set(fewest[position - 1] as Uint16Array);
    for (const { threads, batch: itemBatch } of items) {
      const from = position - threads;
      if (from < (socketStart[position] ?? 0)) continue;
      const before = fewest[from] as Uint16Array;
      for (let size = itemBatch; size <= batch; size++) {
        const instances = (before[size - itemBatch] as number) + 1;
        if (instances < (here[size] as number)) here[size] = instances;
      }
    }
  }
  return walkBack(items, fewest, batch, socketStart);
}

/** Takes instances out of the full box one by one, each time one that lowers the count for the rest. */
function walkBack(
  items: readonly Item[],
  fewest: readonly Uint16Array[],
  batch: number,
  socketStart: Int32Array,
): Item[] | undefined {
  const chosen: Item[] = [];
  let position = fewest.length - 1;
  let rest = batch;
  if (fewest[position]?.[rest] === never) return undefined;
  for (let left = fewest[position]?.[rest] ?? 0; left > 0;) {
    const [here, size, depth] = [position, rest, left];
    const fits = (item: Item): boolean => {
      const from = here - item.threads;
      return from >= (socketStart[here] ?? 0) && fewest[from]?.[size - item.batch] === depth - 1;
    };
    const last = chosen.at(-1);
    const item = last !== undefined && fits(last) ? last : mostEven(items.filter(fits), size / depth, here / depth);
    if (item === undefined) {
      position--; // An idle thread.
      continue;
    }
    chosen.push(item);
    position -= item.threads;
    rest -= item.batch;
    left--;
  }
  return chosen.reverse();
}

/** The item nearest to an even share of the batch, then of the threads. */
function mostEven(items: readonly Item[], batch: number, threads: number): Item | undefined {
  return items.toSorted(
    (a, b) =>
      Math.abs(a.batch - batch) - Math.abs(b.batch - batch) ||
      Math.abs(a.threads - threads) - Math.abs(b.threads - threads),
  )[0];
}
