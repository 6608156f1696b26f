import type { TimelineBar } from '../../api-types.ts';

/** Merges bars of one look with less than a pixel between them. */
export function mergedBars(bars: readonly TimelineBar[], msPerPixel: number): TimelineBar[] {
  const merged: TimelineBar[] = [];
  for (const next of bars) {
    const last = merged.at(-1);
    const narrow = next.endMs - next.startMs < msPerPixel;
    if (last !== undefined && narrow && last.look === next.look && next.startMs - last.endMs < msPerPixel) {
      merged[merged.length - 1] = {
        ...last,
        endMs: next.endMs,
        name: `${last.name.split(' … ')[0]} … ${next.name}`,
      };
    } else merged.push(next);
  }
  return merged;
}
