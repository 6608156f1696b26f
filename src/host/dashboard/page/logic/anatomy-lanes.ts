/** A cold start as lanes of bars: each PCIe link, NVLink, and the execution (DeepPlan, Figures 7 to 9). */
import type { AnatomyLayer, AnatomyMode } from '../../api-types.ts';

export type BarLook = 'copy' | 'migration' | 'gpu' | 'host' | 'stall';

export interface AnatomyBar {
  readonly look: BarLook;
  readonly layer: string;
  readonly startMs: number;
  readonly endMs: number;
}

export interface AnatomyLane {
  readonly name: string;
  readonly bars: readonly AnatomyBar[];
}

export function lanesOf({ layers }: Pick<AnatomyMode, 'layers'>): AnatomyLane[] {
  const links = [...new Set(layers.flatMap(({ link }) => (link === null ? [] : [link])))].toSorted((a, b) => a - b);
  const lanes: AnatomyLane[] = links.map((link) => ({
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
          ? [{ look: 'stall' as const, layer: layer.name, startMs: startMs - layer.stallMs, endMs: startMs }]
          : [];
      return [...stall, ...bar(layer.fromHost ? 'host' : 'gpu', layer, layer.executionMs)];
    }),
  });
  return lanes;
}

function bar(look: BarLook, { name }: AnatomyLayer, span: readonly [number, number] | null): AnatomyBar[] {
  return span === null || span[1] <= span[0] ? [] : [{ look, layer: name, startMs: span[0], endMs: span[1] }];
}

/** Merges bars of one look with less than a pixel between them. */
export function mergedBars(bars: readonly AnatomyBar[], msPerPixel: number): AnatomyBar[] {
  const merged: AnatomyBar[] = [];
  for (const next of bars) {
    const last = merged.at(-1);
    const narrow = next.endMs - next.startMs < msPerPixel;
    if (last !== undefined && narrow && last.look === next.look && next.startMs - last.endMs < msPerPixel) {
      merged[merged.length - 1] = {
        ...last,
        endMs: next.endMs,
        layer: `${last.layer.split(' … ')[0]} … ${next.layer}`,
      };
    } else merged.push(next);
  }
  return merged;
}
