/** MaxPool, AveragePool, and their global forms, which are reductions over the spatial axes. */
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { floats, requireDatatype } from '../common/element.ts';
import { indexType } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { read, write } from '../common/launching.ts';
import { teamKernel, typeDefinitions } from '../common/teams.ts';
import { emitReduction, initialOf, reducedType, reductions, type Reduction } from '../reduction/reducing.ts';

/** A window along one spatial axis. */
interface Window {
  readonly size: number;
  readonly outputs: number;
  readonly kernel: number;
  readonly stride: number;
  readonly dilation: number;
  readonly before: number;
  /** Where the padded axis ends, counted from the input's first element. */
  readonly end: number;
}

const none: Window = { size: 1, outputs: 1, kernel: 1, stride: 1, dilation: 1, before: 0, end: 1 };

function windowsOf(emitter: Emitter, input: Value, output: Value): readonly Window[] {
  const sizes = input.shape.slice(2);
  const list = (name: string, otherwise: number, length = sizes.length): readonly number[] => {
    const given = emitter.attribute<readonly number[]>(name, []);
    return given.length === 0 ? Array.from({ length }, () => otherwise) : given;
  };
  const kernels = list('kernel_shape', 1);
  const strides = list('strides', 1);
  const dilations = list('dilations', 1);
  const pads = list('pads', 0, 2 * sizes.length);
  const automatic = emitter.attribute<string>('auto_pad', 'NOTSET');
  return sizes.map((size, axis) => {
    const kernel = kernels[axis]!;
    const stride = strides[axis]!;
    const dilation = dilations[axis]!;
    const outputs = output.shape[axis + 2]!;
    let before = pads[axis]!;
    let after = pads[axis + sizes.length]!;
    if (automatic === 'VALID') before = after = 0;
    if (automatic.startsWith('SAME')) {
      const wanted = Math.max(0, (outputs - 1) * stride + (kernel - 1) * dilation + 1 - size);
      before = automatic === 'SAME_LOWER' ? Math.ceil(wanted / 2) : Math.floor(wanted / 2);
      after = wanted - before;
    }
    return { size, outputs, kernel, stride, dilation, before, end: size + after };
  });
}

function emitPool(emitter: Emitter, hint: string, maximum: boolean): void {
  const given = emitter.required(0);
  requireDatatype(given, maximum ? [...floats, 'INT8', 'UINT8'] : floats);
  if (emitter.output(1) !== undefined) throw new Unsupported('its second output, the indices of the maxima, is used');
  if (given.shape.length < 3 || given.shape.length > 5) {
    throw new Unsupported(
      `'${given.name}' has ${given.shape.length} dimensions; windows along 1 to 3 axes are covered`,
    );
  }
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const windows = windowsOf(emitter, given, output);
  const input = asDeclared(emitter, given);
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
  const block = 128;
  const kernel = emitter.kernel(
    hint,
    teamKernel('pool', {
      ...typeDefinitions(input.datatype, output.datatype, accumulator),
      ...Object.fromEntries(named),
      BLOCK: block,
      INDEX: indexType(Math.max(input.elements, output.elements)),
      OUTPUTS: `${output.elements}u`,
      INITIAL: initialOf(maximum ? 'Maximum' : 'Sum', accumulator),
      MAXIMUM: maximum ? 1 : 0,
      INCLUDE_PADDING: !maximum && emitter.attribute('count_include_pad', 0) === 1 ? 1 : 0,
    }),
  );
  emitter.launch({
    kernel,
    grid: [Math.ceil(output.elements / block)],
    block: [block],
    arguments: [read(input.buffer), write(output.buffer)],
  });
}

const windowed = (type: string, hint: string, maximum: boolean): Operator => ({
  type,
  emit: (emitter) => emitPool(emitter, hint, maximum),
});

const global = (type: string, hint: string, reduction: Reduction): Operator => ({
  type,
  emit(emitter) {
    const input = emitter.required(0);
    const axes = input.shape.map((_, axis) => axis).slice(2);
    emitReduction(emitter, hint, reduction, input, axes);
  },
});

export const poolingOperators: readonly Operator[] = [
  windowed('MaxPool', 'max_pool', true),
  windowed('AveragePool', 'average_pool', false),
  global('GlobalAveragePool', 'global_average_pool', reductions.ReduceMean),
  global('GlobalMaxPool', 'global_max_pool', reductions.ReduceMax),
];
