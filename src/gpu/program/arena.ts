/**
 * Places values in the arena; those that are never live together share bytes. The largest comes first, each goes into
 * the smallest gap between those that overlap it in time (Pisarchyk and Lee 2020, "Efficient Memory Management for Deep
 * Neural Net Inference", greedy by size with best fit).
 */

/** The alignment of CUDA allocations, so that vector loads are aligned at the start of every buffer. */
export const arenaAlignment = 256;

export const alignUp = (bytes: number, alignment: number = arenaAlignment): number =>
  Math.ceil(bytes / alignment) * alignment;

export interface ArenaItem {
  readonly bytes: number;
  /** Steps between which no other item may use its bytes, both included. */
  readonly first: number;
  readonly last: number;
}

export interface ArenaPlan {
  /** In the order of the items. */
  readonly byteOffsets: readonly number[];
  readonly bytes: number;
}

interface Placed {
  readonly start: number;
  readonly end: number;
  readonly item: ArenaItem;
}

export function planArena(items: readonly ArenaItem[]): ArenaPlan {
  const byteOffsets = items.map(() => 0);
  const order = items
    .map((item, index) => ({ item, index }))
    .sort((a, b) => b.item.bytes - a.item.bytes || a.item.first - b.item.first || a.index - b.index);
  /** By start. */
  const placed: Placed[] = [];
  let bytes = 0;
  for (const { item, index } of order) {
    const size = alignUp(item.bytes);
    if (size === 0) continue;
    let best: number | undefined;
    let bestGap = Number.POSITIVE_INFINITY;
    let free = 0;
    for (const other of placed) {
      if (other.item.last < item.first || other.item.first > item.last) continue;
      const gap = other.start - free;
      if (gap >= size && gap < bestGap) {
        best = free;
        bestGap = gap;
      }
      free = Math.max(free, other.end);
    }
    const start = best ?? free;
    byteOffsets[index] = start;
    bytes = Math.max(bytes, start + size);
    const at = placed.findIndex((other) => other.start > start);
    placed.splice(at < 0 ? placed.length : at, 0, { start, end: start + size, item });
  }
  return { byteOffsets, bytes };
}
