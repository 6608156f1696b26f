/** What every reply to an invocation tells beside its tensors: as HTTP headers, or as gRPC metadata. */
import type { Invocation } from '../invoke.ts';
import { inHeader, isColdStart, placementText } from '../placement.ts';
import type { FunctionVersion } from '../types.ts';

/** Header names and values, alternating, as Node writes them fastest. */
export type HeaderList = (string | number)[];

export function pushInvocationHeaders(
  headers: HeaderList,
  version: FunctionVersion,
  { timings, placement }: Invocation,
  arrivalMs: number,
): void {
  const totalMs = performance.now() - arrivalMs;
  headers.push(
    'X-Model-Id',
    version.key,
    'X-Model-Cold-Start',
    isColdStart(placement) ? 'true' : 'false',
    'X-Model-Load-Time',
    rounded(timings.loadMs / 1000, 1e6),
    'X-Duration-Seconds',
    rounded(totalMs / 1000, 1e6),
    'x-queue-time',
    rounded(timings.queueMs, 1e3),
    'x-inference-time',
    rounded(timings.inferMs, 1e3),
    'x-total-time',
    rounded(totalMs, 1e3),
    'x-compute-type',
    placement.kind === 'gpu' || (placement.kind === 'fleet-host' && placement.isGpu) ? 'gpu' : 'cpu',
    'X-Turntable-Placement',
    placementText(placement),
  );
  const { predictedMs, coldCause } = placement;
  if (predictedMs !== undefined) headers.push('X-Turntable-Predicted-Time', rounded(predictedMs, 1e3));
  if (coldCause !== undefined) headers.push('X-Turntable-Cold-Cause', inHeader(coldCause));
  if (placement.kind === 'gpu' && placement.rung !== undefined) headers.push('X-Turntable-Plan', placement.rung);
}

/** Where the time of a call went, for browsers and for `turntable call --trace`; for those who send a `traceparent`. */
export function pushServerTiming(
  headers: HeaderList,
  { timings, placement, instancePid }: Invocation,
  arrivalMs: number,
): void {
  const { queueMs, loadMs, preprocessMs, inferMs, postprocessMs } = timings;
  const inProcess = `process ${instancePid}`;
  const parts: [name: string, ms: number, about?: string][] = [
    ['total', performance.now() - arrivalMs],
    ['queue', queueMs],
    ['load', loadMs],
    ['preprocess', preprocessMs, inProcess],
    ['model', inferMs, placementText(placement)],
    ['postprocess', postprocessMs, inProcess],
  ];
  const text = parts.map(([name, ms, about]) => {
    return `${name};dur=${rounded(ms, 1e3)}${about === undefined ? '' : `;desc="${inHeader(about).replaceAll(/["\\]/g, "'")}"`}`;
  });
  headers.push('Server-Timing', text.join(', '));
}

function rounded(value: number, perUnit: number): number {
  return Math.round(value * perUnit) / perUnit;
}
