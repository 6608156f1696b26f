import type { Span, Timeline } from '../../plan/index.ts';
import type { AnatomyLayer, SpanAnswer } from './api-types.ts';

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

const spanOf = (span: Span | undefined): SpanAnswer | null => (span === undefined ? null : [span.startMs, span.endMs]);
