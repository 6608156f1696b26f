/** A cold start as lanes of bars: each PCIe link, NVLink, and the execution (DeepPlan, Figures 7 to 9). */
import type { ColdStartPlan, Span, Timeline } from '../../plan/index.ts';
import { formatBytes, formatMs } from '../../tools/index.ts';
import type { BarLook, PlanTimeline, TimelineBar, TimelineLane } from './timeline-types.ts';

export const plannedColdStart = ({ mode, bytesGpu }: ColdStartPlan, timeline: Timeline): PlanTimeline =>
  coldStartTimeline(mode, timeline, bytesGpu);

/** @param stallMs how long the run waited for weights */
export function coldStartTimeline(
  mode: string,
  { latencyMs, layers, stallMs: ofLayersMs }: Timeline,
  gpuBytes: number,
  stallMs: number = ofLayersMs,
): PlanTimeline {
  return {
    name: mode,
    latencyMs,
    note: `stalls ${formatMs(stallMs)}, ${formatBytes(gpuBytes)} on the GPU`,
    lanes: lanesOf(layers),
  };
}

function lanesOf(layers: Timeline['layers']): TimelineLane[] {
  const links = [...new Set(layers.flatMap(({ link }) => (link === null ? [] : [link])))].toSorted((a, b) => a - b);
  const lanes: TimelineLane[] = links.map((link) => ({
    name: `PCIe ${link}`,
    bars: layers.flatMap(({ name, copy, link: own }) => barsOf('copy', name, own === link ? copy : undefined)),
  }));
  const migrations = layers.flatMap(({ name, migration }) => barsOf('migration', name, migration));
  if (migrations.length > 0) lanes.push({ name: 'NVLink', bars: migrations });
  lanes.push({
    name: 'Execution',
    bars: layers.flatMap(({ name, execution, stallMs, fromHost }) => [
      ...barsOf('stall', name, { startMs: execution.startMs - stallMs, endMs: execution.startMs }),
      ...barsOf(fromHost ? 'host' : 'gpu', name, execution),
    ]),
  });
  return lanes;
}

function barsOf(look: BarLook, name: string, span: Span | undefined): TimelineBar[] {
  return span === undefined || span.endMs <= span.startMs
    ? []
    : [{ look, name, startMs: span.startMs, endMs: span.endMs }];
}
