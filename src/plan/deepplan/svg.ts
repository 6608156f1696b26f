/** The timeline of a cold start as a picture. */
import type { Machine } from '../../hardware/index.ts';
import { hatched, renderTimeline, type TimelineBar, type TimelineLane } from '../timeline-picture.ts';
import type { Span } from './link-clock.ts';
import type { ColdStartPlan, Timeline } from './types.ts';

interface ColdStartSvgOptions {
  /** Title of the picture, such as the name of the model. */
  readonly title: string;
  /** Where the layers' times come from: 'estimated', or 'a given profile'. */
  readonly source: string;
  /** Width of the picture in pixels. Default 1200. */
  readonly width?: number;
}

const looks = {
  copy: { fill: '#3a6ea5', means: 'copy from host memory' },
  migration: { fill: '#7a5195', means: 'handed on over NVLink' },
  gpu: { fill: '#2f7d4f', means: 'executes from GPU memory' },
  host: { fill: '#d9822b', means: 'executes from host memory' },
  stall: { fill: hatched, means: 'waits for weights' },
} as const;
type Look = keyof typeof looks;

/** One row for each PCIe link in use, for each NVLink, and for the execution; stalls are hatched. */
export function renderColdStart(
  timeline: Timeline,
  plan: ColdStartPlan,
  machine: Machine,
  { title, source, width }: ColdStartSvgOptions,
): string {
  return renderTimeline({
    headline: `${title}, ${plan.mode}: ${timeline.latencyMs.toFixed(2)} ms, of them ${timeline.stallMs.toFixed(2)} ms stalled; ${(plan.bytesGpu / 1e6).toFixed(1)} MB of weights in GPU memory`,
    source: `simulated on machine ${machine.name}; times of layers: ${source}`,
    lanes: lanesOf(timeline, plan),
    looks,
    width,
  });
}

function lanesOf({ layers }: Timeline, { primary, secondaries }: ColdStartPlan): TimelineLane<Look>[] {
  const barOf = (span: Span | undefined, look: Look, name: string): TimelineBar<Look>[] =>
    span === undefined ? [] : [{ ...span, look, name }];
  const lanes = [primary, ...secondaries].flatMap((gpu): TimelineLane<Look>[] => {
    const own = layers.filter(({ link }) => link === gpu);
    const copies = own.flatMap(({ copy, name }) => barOf(copy, 'copy', name));
    const pcie = { name: `PCIe to GPU ${gpu}`, bars: copies };
    if (gpu === primary) return [pcie];
    const migrations = own.flatMap(({ migration, name }) => barOf(migration, 'migration', name));
    return [pcie, { name: `NVLink ${gpu} → ${primary}`, bars: migrations }];
  });
  const execution = layers.flatMap(({ name, execution: span, stallMs, fromHost }) => {
    const stall = { startMs: span.startMs - stallMs, endMs: span.startMs };
    return [
      ...barOf(stallMs > 0 ? stall : undefined, 'stall', `waiting for ${name}`),
      ...barOf(span, fromHost ? 'host' : 'gpu', name),
    ];
  });
  lanes.push({ name: `GPU ${primary} executes`, bars: execution });
  return lanes;
}
