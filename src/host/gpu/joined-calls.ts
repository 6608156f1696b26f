/**
 * Calls of a function that share a run on a GPU. Their sizes are verified and timed in the background of other calls. A
 * size is offered once a GPU's answer for that many rows matched ONNX Runtime's, and all sizes were timed.
 */
import { shapesOf, type InputShapes } from '../../gpu/index.ts';
import { batchSizes, type Join } from '../../schedule/index.ts';
import { elementBytes, joinInputs, joinKeyOf, keepTensors, rowsOf, type Tensor } from '../../tensor/index.ts';
import { rowsJoinedMax } from '../rollout/versions.ts';
import type { JoinedSizes } from '../../live/index.ts';
import type { GpuFunction } from './gpu-function.ts';
import type { WantedProgram } from './known-shapes.ts';
import type { GpuRuntime } from './prepare.ts';

export interface JoinedCallsOptions {
  readonly runtime: (fn: GpuFunction) => GpuRuntime | undefined;
  /** Does work that does not reject, one at a time. */
  readonly inTurn: (work: () => Promise<void>) => void;
  /** Does background work for a call with these shapes, one at a time. */
  readonly behindACall: (fn: GpuFunction, shapes: InputShapes, work: () => Promise<void>) => void;
  /** Makes a program for shapes, and compares its answer. */
  readonly ready: (
    fn: GpuFunction,
    shapes: InputShapes,
    inputs: readonly Tensor[],
    wanted: WantedProgram,
  ) => Promise<void>;
}

/** Runs per size; the shortest counts. */
const timedRuns = 5;
/** Tries of timing that may fail for lack of GPU memory, before the sizes are given up until the next GPU process. */
const timingsMax = 3;

/** What allows a GPU call to share a run; undefined: it runs alone. Missing programs are made in the background. */
export function joinedCalls(
  options: JoinedCallsOptions,
): (fn: GpuFunction, inputs: readonly Tensor[]) => Join | undefined {
  /** The sizes below the first refused one; undefined while one is still unknown. */
  const readySizes = (
    fn: GpuFunction,
    inputs: readonly Tensor[],
    wanted: readonly number[],
  ): readonly number[] | undefined => {
    const { shapes: known } = fn;
    for (const [index, size] of wanted.entries()) {
      const shapes = withRows(shapesOf(inputs), size);
      const whyNot = known.whyNot(shapes);
      if (whyNot === undefined) continue;
      if (whyNot.reason === 'shape-refused') return wanted.slice(0, index);
      const program = known.wants(shapes);
      if (program === undefined) return undefined;
      known.preparing(shapes, program);
      keepTensors(inputs);
      options.behindACall(fn, shapes, () => options.ready(fn, shapes, variedRows(inputs, size), program));
      return undefined;
    }
    return wanted;
  };
  const time = (fn: GpuFunction, inputs: readonly Tensor[], sizes: readonly number[]): void => {
    const { joining, version } = fn;
    const runtime = options.runtime(fn);
    if (runtime === undefined || joining.isTimed || joining.timings >= timingsMax) return;
    joining.isTimed = true;
    keepTensors(inputs);
    joining.timings++;
    const { rowsMax } = joining;
    options.inTurn(async () => {
      try {
        const timed = await keptOrTimed(fn, runtime, inputs, sizes).catch(() => undefined);
        if (timed === undefined || joining.rowsMax !== rowsMax || fn.overtaken.signal.aborted) return;
        joining.sizes = sizes;
        runtime.scheduler.functions.join(version.key, timed);
      } finally {
        joining.isTimed = false;
      }
    });
  };
  return (fn, inputs) => {
    const { version, joining } = fn;
    const rowsMax = rowsJoinedMax(version);
    if (joining.sizes !== undefined && joining.rowsMax !== rowsMax) {
      joining.sizes = undefined;
      options.runtime(fn)?.scheduler.functions.join(version.key, undefined);
    }
    joining.rowsMax = rowsMax;
    const rows = rowsOf(inputs);
    const key = joinKeyOf({ inputs, outputs: undefined });
    // A program made for values fits only one call's values.
    if (rowsMax === 1 || rows === undefined || key === undefined || fn.sizing.size > 0) return undefined;
    const sizes = readySizes(fn, inputs, [1, ...batchSizes(rowsMax)]);
    if (sizes === undefined || sizes.length < 2) return undefined;
    if (joining.sizes === undefined) {
      time(fn, inputs, sizes);
      return undefined;
    }
    // Other inner shapes may lack programs of the larger sizes.
    return joining.sizes.every((size) => sizes.includes(size)) && rows < joining.sizes.at(-1)!
      ? { key, rows }
      : undefined;
  };
}

/** An earlier host process may have timed them. */
async function keptOrTimed(
  fn: GpuFunction,
  runtime: GpuRuntime,
  inputs: readonly Tensor[],
  sizes: readonly number[],
): Promise<JoinedSizes | undefined> {
  const { version, plans } = fn;
  const subject = { shapes: withRows(shapesOf(inputs), 1), sizes, plans };
  const stored = await runtime.batchTimes.find(version, subject);
  if (stored !== undefined) return stored;
  const timed = await timeSizes(fn, runtime, inputs, sizes);
  // Without the file the next process times them again.
  if (timed !== undefined) await runtime.batchTimes.keep(version, subject, timed).catch(() => undefined);
  return timed;
}

/** As invocations of the function, behind all calls with an SLO; undefined if its weights do not stay. */
async function timeSizes(
  { version, overtaken: { signal } }: GpuFunction,
  { scheduler }: GpuRuntime,
  inputs: readonly Tensor[],
  sizes: readonly number[],
): Promise<JoinedSizes | undefined> {
  const times = sizes.map(() => Infinity);
  let variant: string | undefined;
  // One after the other in each round, so that a slow phase of the machine affects all of them.
  for (let run = 0; run < timedRuns; run++) {
    for (const [index, size] of sizes.entries()) {
      if (signal.aborted) return undefined;
      const ran = await scheduler.runOnGpu(version, variedRows(inputs, size));
      if (ran.kind !== 'gpu' || (run + index > 0 && ran.variant !== variant)) return undefined;
      ({ variant } = ran);
      if (ran.result.outputs.some(({ shape }) => shape[0] !== size)) return undefined;
      if (ran.start === 'warm' && ran.result.start === 'warm')
        times[index] = Math.min(times[index]!, ran.result.timings.gpuMs);
    }
  }
  const [aloneMs = 0, ...joinedMs] = times;
  if (!(aloneMs > 0) || times.includes(Infinity)) return undefined;
  return { variant, shares: joinedMs.map((ms, index) => ({ rows: sizes[index + 1]!, share: ms / aloneMs })) };
}

const withRows = (shapes: InputShapes, rows: number): InputShapes =>
  shapes.map((each) => ({ ...each, shape: each.shape.with(0, rows) }));

/**
 * Inputs of so many rows, made from a call's first row: each row is shifted by one element, so that an answer with
 * mixed-up rows is detected.
 */
function variedRows(inputs: readonly Tensor[], rows: number): Tensor[] {
  const first = inputs.map((input): Tensor => {
    const rowBytes = input.data.byteLength / input.shape[0]!;
    return { ...input, shape: input.shape.with(0, 1), data: input.data.subarray(0, rowBytes) };
  });
  const moved = (by: number): Tensor[] =>
    first.map(({ name, datatype, shape, data }) => {
      const at = (by * elementBytes[datatype]) % data.byteLength;
      return { name, datatype, shape, data: Buffer.concat([data.subarray(at), data.subarray(0, at)]) };
    });
  return joinInputs(Array.from({ length: rows }, (_, row) => ({ inputs: moved(row), outputs: undefined })));
}
