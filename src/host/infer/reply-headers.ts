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
    toThousandths(timings.queueMs),
    'x-inference-time',
    toThousandths(timings.inferMs),
    'x-total-time',
    toThousandths(totalMs),
    'x-compute-type',
    placement.kind === 'gpu' || (placement.kind === 'fleet-host' && placement.isGpu) ? 'gpu' : 'cpu',
    'X-Turntable-Placement',
    placementText(placement),
  );
  const { predictedMs, coldCause } = placement;
  if (predictedMs !== undefined) headers.push('X-Turntable-Predicted-Time', toThousandths(predictedMs));
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
    return `${name};dur=${toThousandths(ms)}${about === undefined ? '' : `;desc="${inHeader(about).replaceAll(/["\\]/g, "'")}"`}`;
  });
  headers.push('Server-Timing', text.join(', '));
}

/** `.5` for 500, as each number of thousandths is written behind a whole number. */
const thousandths = Array.from({ length: 1000 }, (_, count) => String(count / 1000).slice(1));

/** V8 takes a microsecond for the text of four numbers with fractions that it has not seen lately. */
export function toThousandths(value: number): string {
  const count = Math.round(value * 1000);
  // Infinity and numbers beyond 32 bits too.
  if (!(count >= 0 && count < 2 ** 31)) return String(count / 1000);
  const whole = Math.trunc(count / 1000);
  return `${whole}${thousandths[count - whole * 1000]}`;
}

function rounded(value: number, perUnit: number): number {
  return Math.round(value * perUnit) / perUnit;
}
