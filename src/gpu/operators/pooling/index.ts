/** MaxPool, AveragePool and LpPool. Their global forms are reductions over the spatial axes. */
import { poolWindows, Unsupported, floats, accumulatorOf } from '../../../operators/index.ts';
import type { Emitter, KernelName, Kernels, Operator } from '../types.ts';
import { indexType } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { read, write } from '../common/launching.ts';
import { mathOf, teamKernel, typeDefinitions } from '../common/teams.ts';
import { initialOf, reducedType } from '../reduction/reducing.ts';

/** A window along one spatial axis. */
type Window = ReturnType<typeof poolWindows>[number];

const none: Window = { size: 1, outputs: 1, kernel: 1, stride: 1, dilation: 1, before: 0, end: 1 };

/** How a window's elements are combined. */
interface Pooling {
  readonly hint: string;
  readonly maximum: boolean;
  /** C expressions: `map` over x, `finish` over total and count. */
  readonly map?: string;
  readonly finish?: string;
}

function emitPool(emitter: Emitter, { hint, maximum, map = 'x', finish = 'total' }: Pooling): void {
  const input = emitter.required(0, maximum ? [...floats, 'INT8', 'UINT8'] : floats);
  const places = maximum ? emitter.output(1) : undefined;
  if (input.shape.length < 3 || input.shape.length > 5) {
    throw new Unsupported(
      `'${input.name}' has ${input.shape.length} dimensions; windows along 1 to 3 axes are covered`,
    );
  }
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const windows = poolWindows(input.shape.slice(2), emitter.attribute('kernel_shape', []), emitter.attribute);
  const accumulator = reducedType(input.datatype);
  const [depth, height, width] = [none, none, none, ...windows].slice(-3) as [Window, Window, Window];
  const named = Object.entries({ D: depth, H: height, W: width }).flatMap(([axis, window]) => [
    [`SIZE_${axis}`, window.size],
    [`OUT_${axis}`, `${window.outputs}u`],
    [`KERNEL_${axis}`, window.kernel],
    [`STRIDE_${axis}`, window.stride],
    [`DILATION_${axis}`, window.dilation],
    [`BEFORE_${axis}`, window.before],
    [`END_${axis}`, window.end],
  ]);
  // Indices count along rows; with storage order 1 along columns (column-major).
  const steps =
    emitter.attribute('storage_order', 0) === 1
      ? [1, depth.size, depth.size * height.size]
      : [height.size * width.size, width.size, 1];
  const block = 128;
  const kernel = emitter.kernel(
    hint,
    teamKernel('pool', {
      ...typeDefinitions(input.storedType, output.storedType, accumulator),
      ...Object.fromEntries(named),
      BLOCK: block,
      INDEX: indexType(Math.max(input.elements, output.elements)),
      OUTPUTS: `${output.elements}u`,
      INITIAL: initialOf(maximum ? 'Maximum' : 'Sum', accumulator),
      MAXIMUM: maximum ? 1 : 0,
      'MAP(x)': map,
      'FINISH(total, count)': finish,
      STEP_D: steps[0]!,
      STEP_H: steps[1]!,
      STEP_W: steps[2]!,
      WHERE_PARAMETER: places === undefined ? '' : ', i64 *places',
      'WHERE(place)': places === undefined ? '' : 'places[i] = place',
      INCLUDE_PADDING: !maximum && emitter.attribute('count_include_pad', 0) === 1 ? 1 : 0,
    }),
  );
  emitter.launch({
    kernel,
    grid: [Math.ceil(output.elements / block)],
    block: [block],
    arguments: [read(input.buffer), write(output.buffer), ...(places === undefined ? [] : [write(places.buffer)])],
  });
}

const windowed = <Type extends KernelName>(type: Type, pooling: (emitter: Emitter) => Pooling): Operator<Type> => ({
  type,
  emit: (emitter) => emitPool(emitter, pooling(emitter)),
});

/** The p-th root of the sum of |x|^p. */
function lpPooling(emitter: Emitter): Pooling {
  const p = emitter.attribute('p', 2);
  const math = mathOf(accumulatorOf(emitter.required(0).datatype));
  const pooling = { hint: 'lp_pool', maximum: false };
  if (p === 1) return { ...pooling, map: `${math('fabs')}(x)` };
  if (p === 2) return { ...pooling, map: '(x) * (x)', finish: `${math('sqrt')}(total)` };
  const finish = `${math('pow')}(total, (ACCUMULATOR)1 / ${p})`;
  return { ...pooling, map: `${math('pow')}(${math('fabs')}(x), ${p})`, finish };
}

export const poolingOperators = [
  windowed('MaxPool', () => ({ hint: 'max_pool', maximum: true })),
  windowed('AveragePool', () => ({
    hint: 'average_pool',
    maximum: false,
    finish: '((count) == 0 ? (total) : (total) / (count))',
  })),
  windowed('LpPool', lpPooling),
] as const satisfies readonly Kernels[];
