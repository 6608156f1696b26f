import type { ColdStartPlan, Span, Timeline } from '../../plan/index.ts';
import type { AnatomyLayer, AnatomyMode, SpanAnswer } from './api-types.ts';

/** A planned or measured timeline in the API's form. */
export function anatomyLayers({ layers }: Timeline): AnatomyLayer[] {
  return layers.map(({ name, method, link, copy, migration, execution, fromHost, stallMs }) => ({
    name,
    method,
    link,
    copyMs: spanOf(copy),
    migrationMs: spanOf(migration),
    executionMs: [execution.startMs, execution.endMs],
    fromHost,
    stallMs,
  }));
}

/** A planned cold start in the API's form. */
export const anatomyMode = ({ mode, bytesGpu }: ColdStartPlan, timeline: Timeline): AnatomyMode => ({
  mode,
  latencyMs: timeline.latencyMs,
  stallMs: timeline.stallMs,
  gpuBytes: bytesGpu,
  layers: anatomyLayers(timeline),
});

const spanOf = (span: Span | undefined): SpanAnswer | null => (span === undefined ? null : [span.startMs, span.endMs]);
