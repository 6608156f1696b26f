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

function rounded(value: number, perUnit: number): number {
  return Math.round(value * perUnit) / perUnit;
}
