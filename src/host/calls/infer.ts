/**
 * Answers inferences, for every protocol: runs one as an invocation, and writes the headers of its reply (of HTTP, or
 * gRPC metadata).
 */
import type { PoolInput } from '../../cpu/index.ts';
import { TensorError, type Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import { classify } from '../infer/classification.ts';
import { specOf } from '../infer/model-spec.ts';
import type { InferCall } from '../infer/oip.ts';
import type { FunctionVersion } from '../types.ts';
import type { InvocationOptions, Invoker } from './invoke.ts';
import { inHeader, isColdStart, placementText, type Ran } from './placement.ts';

export interface InferResult {
  readonly ran: Ran;
  /** The requested outputs in that order, or all outputs in the model's order. */
  readonly outputs: readonly Tensor[];
}

/** @throws HostError, at once or as a rejection */
export function runInfer(
  invoker: Invoker,
  version: FunctionVersion,
  call: Pick<InferCall, 'tensors' | 'outputs' | 'timeoutMs' | 'priority' | 'rows' | 'classes'>,
  options: Pick<InvocationOptions, 'arrivalMs' | 'sloMs' | 'signal' | 'chain' | 'before'>,
): Promise<InferResult> {
  const { tensors, outputs, timeoutMs, priority, rows } = call;
  const { rowsMax } = version.settings;
  if (rowsMax !== undefined && rows > rowsMax) {
    throw new TensorError(
      `the request has a batch of ${rows}, but function '${version.name}' takes at most ${rowsMax}`,
    );
  }
  const input: PoolInput = outputs === undefined ? { kind: 'tensors', tensors } : { kind: 'tensors', tensors, outputs };
  const deadlineMs = timeoutMs === undefined ? undefined : options.arrivalMs + timeoutMs;
  // Written out: V8 takes a microsecond to copy an object by spread.
  const { arrivalMs, sloMs, signal, chain, before } = options;
  const asked = { arrivalMs, sloMs, deadlineMs, priority, signal, rows, chain, before };
  return invoker.invoke(version, input, asked).then((ran) => inferred(version, call, ran));
}

function inferred(
  version: FunctionVersion,
  { outputs, classes }: Pick<InferCall, 'outputs' | 'classes'>,
  ran: Ran,
): InferResult {
  const { output } = ran.result;
  if (output.kind !== 'tensors') throw new HostError('internal', 'the pool answered tensors with a response');
  const spec = specOf(version);
  const ordered = inOrder(outputs ?? spec.outputNames, output.tensors);
  if (classes === undefined) return { ran, outputs: ordered };
  const { batched } = spec;
  const classified = ordered.map((tensor) => {
    const count = classes.get(tensor.name);
    return count === undefined ? tensor : classify(tensor, count, { batched, labels: version.settings.labels });
  });
  return { ran, outputs: classified };
}

function inOrder(names: readonly string[], tensors: readonly Tensor[]): readonly Tensor[] {
  if (names.length === tensors.length && names.every((name, index) => tensors[index]?.name === name)) return tensors;
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return names.map((name) => {
    const tensor = byName.get(name);
    if (tensor === undefined) throw new HostError('internal', `the instance did not return the output '${name}'`);
    return tensor;
  });
}

/** Header names and values, alternating: the form that Node writes fastest. */
export type HeaderList = (string | number)[];

export function pushInvocationHeaders(
  headers: HeaderList,
  version: FunctionVersion,
  { result: { timings }, placement }: Ran,
  arrivalMs: number,
): void {
  const totalMs = performance.now() - arrivalMs;
  headers.push(
    'X-Model-Id',
    version.key,
    'X-Model-Cold-Start',
    isColdStart(placement) ? 'true' : 'false',
    'X-Model-Load-Time',
    toMillionths(timings.loadMs / 1000),
    'X-Duration-Seconds',
    toMillionths(totalMs / 1000),
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
  if (placement.kind === 'gpu' && placement.variant !== undefined) headers.push('X-Turntable-Plan', placement.variant);
}

/**
 * Says where the time of a call went, for browsers and `turntable call --trace`. Only for calls with a `traceparent`.
 */
export function pushServerTiming(
  headers: HeaderList,
  { result: { timings, instancePid }, placement }: Ran,
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

/** `.5` for 500: the text of each number of thousandths after a whole number. */
const thousandths = Array.from({ length: 1000 }, (_, count) => String(count / 1000).slice(1));

/** V8 takes a microsecond to format four fractional numbers that it has not formatted lately. */
export function toThousandths(value: number): string {
  const count = Math.round(value * 1000);
  // Infinity and numbers beyond 32 bits too.
  if (!(count >= 0 && count < 2 ** 31)) return String(count / 1000);
  const whole = Math.trunc(count / 1000);
  return `${whole}${thousandths[count - whole * 1000]}`;
}

const threeDigits = Array.from({ length: 1000 }, (_, count) => String(count).padStart(3, '0'));

/** Rounded to six digits behind the point, as {@link toThousandths} to three. */
export function toMillionths(value: number): string {
  const count = Math.round(value * 1e6);
  if (!(count >= 0 && count < 2 ** 31)) return String(count / 1e6);
  const whole = Math.trunc(count / 1e6);
  const millionths = count - whole * 1e6;
  const high = Math.trunc(millionths / 1000);
  const low = millionths - high * 1000;
  if (low === 0) return `${whole}${thousandths[high]}`;
  return `${whole}.${threeDigits[high]}${thousandths[low]!.slice(1)}`;
}
