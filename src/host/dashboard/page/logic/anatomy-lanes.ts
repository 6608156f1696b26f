/** A cold start as lanes of bars: each PCIe link, NVLink, and the execution (DeepPlan, Figures 7 to 9). */
import type { AnatomyLayer, AnatomyMode, BarLook, TimelineBar, TimelineLane } from '../../api-types.ts';

export function lanesOf({ layers }: Pick<AnatomyMode, 'layers'>): TimelineLane[] {
  const links = [...new Set(layers.flatMap(({ link }) => (link === null ? [] : [link])))].toSorted((a, b) => a - b);
  const lanes: TimelineLane[] = links.map((link) => ({
    name: `PCIe ${link}`,
    bars: layers.flatMap((layer) => bar('copy', layer, layer.link === link ? layer.copyMs : null)),
  }));
  const migrations = layers.flatMap((layer) => bar('migration', layer, layer.migrationMs));
  if (migrations.length > 0) lanes.push({ name: 'NVLink', bars: migrations });
  lanes.push({
    name: 'Execution',
    bars: layers.flatMap((layer) => {
      const [startMs] = layer.executionMs;
      const stall =
        layer.stallMs > 0
          ? [{ look: 'stall' as const, name: layer.name, startMs: startMs - layer.stallMs, endMs: startMs }]
          : [];
      return [...stall, ...bar(layer.fromHost ? 'host' : 'gpu', layer, layer.executionMs)];
    }),
  });
  return lanes;
}

function bar(look: BarLook, { name }: AnatomyLayer, span: readonly [number, number] | null): TimelineBar[] {
  return span === null || span[1] <= span[0] ? [] : [{ look, name, startMs: span[0], endMs: span[1] }];
}

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
