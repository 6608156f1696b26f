/** The window of a convolution: kernel size, strides, dilations and padding along each spatial axis. */
import { elementCount } from '../../../tensor/index.ts';
import { Unsupported } from '../../../operators/index.ts';
import { weightedSum, stridesOf } from '../common/indexing.ts';
import type { Emitter, Value } from '../types.ts';

export interface Window {
  readonly kernel: readonly number[];
  readonly strides: readonly number[];
  readonly dilations: readonly number[];
  /** At the beginning of each axis; padding at the end follows from the output's size. */
  readonly padsBegin: readonly number[];
}

export type Convolution = ReturnType<typeof convolutionOf>;

const spans = (kernel: readonly number[], dilations: readonly number[]): number[] =>
  kernel.map((size, axis) => (size - 1) * dilations[axis]! + 1);

function listOf(emitter: Emitter, name: string, axes: number, otherwise: number): readonly number[] {
  const given = emitter.attribute<readonly number[]>(name, []);
  if (given.length === 0) return Array.from({ length: axes }, () => otherwise);
  if (given.length !== axes) throw new Unsupported(`its ${name} have ${given.length} values for ${axes} spatial axes`);
  return given;
}

/** Kernel size, strides and dilations of a node, checked against its weight's shape. */
export function stepsOf(emitter: Emitter, weight: Value): Omit<Window, 'padsBegin'> {
  const kernel = weight.shape.slice(2);
  const named = listOf(emitter, 'kernel_shape', kernel.length, 0);
  if (named.some((size, axis) => size !== 0 && size !== kernel[axis])) {
    throw new Unsupported(`its kernel_shape [${named.join(',')}] is not its weight's [${kernel.join(',')}]`);
  }
  return {
    kernel,
    strides: listOf(emitter, 'strides', kernel.length, 1),
    dilations: listOf(emitter, 'dilations', kernel.length, 1),
  };
}

/** Padding before and after each axis of a convolution's input; with `auto_pad` it follows from the sizes. */
export function padsOf(
  emitter: Emitter,
  { kernel, strides, dilations }: Omit<Window, 'padsBegin'>,
  inputSizes: readonly number[],
): { readonly begin: readonly number[]; readonly end: readonly number[] } {
  const axes = kernel.length;
  const auto = emitter.attribute('auto_pad', 'NOTSET');
  if (auto === 'VALID') return { begin: kernel.map(() => 0), end: kernel.map(() => 0) };
  if (auto === 'NOTSET') {
    const pads = emitter.attribute<readonly number[]>('pads', []);
    if (pads.length !== 0 && pads.length !== axes * 2) {
      throw new Unsupported(`its pads have ${pads.length} values for ${axes} spatial axes`);
    }
    if (pads.some((pad) => pad < 0)) throw new Unsupported('negative pads');
    return {
      begin: kernel.map((_, axis) => pads[axis] ?? 0),
      end: kernel.map((_, axis) => pads[axis + axes] ?? 0),
    };
  }
  if (auto !== 'SAME_UPPER' && auto !== 'SAME_LOWER') throw new Unsupported(`auto_pad '${auto}'`);
  const total = spans(kernel, dilations).map((span, axis) => {
    const size = inputSizes[axis]!;
    const outputs = Math.ceil(size / strides[axis]!);
    return Math.max(0, (outputs - 1) * strides[axis]! + span - size);
  });
  const less = total.map((pad) => Math.floor(pad / 2));
  const more = total.map((pad) => Math.ceil(pad / 2));
  return auto === 'SAME_UPPER' ? { begin: less, end: more } : { begin: more, end: less };
}

/** @throws Unsupported if the node's sizes do not fit together */
export function convolutionOf(emitter: Emitter, input: Value, weight: Value, output: Value) {
  if (input.shape.length < 3 || weight.shape.length !== input.shape.length) {
    const shapes = `[${input.shape.join(',')}] and [${weight.shape.join(',')}]`;
    throw new Unsupported(`an input and a weight of shapes ${shapes}`);
  }
  const groups = emitter.attribute('group', 1);
  const [images, channels, ...inputSizes] = input.shape as [number, number, ...number[]];
  const [filters, inputChannels] = weight.shape as [number, number];
  if (groups < 1 || channels !== inputChannels * groups || filters % groups !== 0) {
    throw new Unsupported(
      `${channels} channels in, ${filters} out, a weight for ${inputChannels}, and ${groups} groups`,
    );
  }
  const steps = stepsOf(emitter, weight);
  const { begin, end } = padsOf(emitter, steps, inputSizes);
  const outputSizes = output.shape.slice(2);
  const expected = spans(steps.kernel, steps.dilations).map(
    (span, axis) => Math.floor((inputSizes[axis]! + begin[axis]! + end[axis]! - span) / steps.strides[axis]!) + 1,
  );
  if (expected.some((size, axis) => size !== outputSizes[axis])) {
    throw new Unsupported(`its output is [${outputSizes.join(',')}], but it would be [${expected.join(',')}]`);
  }
  return {
    ...steps,
    padsBegin: begin,
    images,
    groups,
    /** Of one group. */
    inputChannels,
    outputChannels: filters / groups,
    inputSizes,
    outputSizes,
  };
}

/** Whether each output element reads only the input elements at its own place: then the input itself is the matrix. */
export function isPointwise({ kernel, strides, padsBegin, inputSizes, outputSizes }: Convolution): boolean {
  return (
    kernel.every((size) => size === 1) &&
    strides.every((stride) => stride === 1) &&
    padsBegin.every((pad) => pad === 0) &&
    inputSizes.every((size, axis) => size === outputSizes[axis])
  );
}

/** Number of input elements that one output element sums. */
export const depthOf = ({ inputChannels, kernel }: Convolution): number => inputChannels * elementCount(kernel);

/** C statements that declare x0, x1, ..., the input's coordinates for taps of a window. */
export function inputPlaces(
  { strides, dilations, padsBegin }: Convolution,
  outputs: readonly string[],
  taps: readonly string[],
): string[] {
  return outputs.map(
    (output, axis) =>
      `const i32 x${axis} = (i32)(${output}) * ${strides[axis]} + (i32)(${taps[axis]}) * ${dilations[axis]} - ${padsBegin[axis]};`,
  );
}

/** C expressions over these coordinates: whether they are inside the input, and the element's index. */
export const placesInside = ({ inputSizes }: Convolution): string =>
  inputSizes.map((size, axis) => `(u32)x${axis} < ${size}u`).join(' && ');
export const placeInChannel = ({ inputSizes }: Convolution, channel: string): string =>
  weightedSum(
    [channel, ...inputSizes.map((_, axis) => `x${axis}`)],
    [elementCount(inputSizes), ...stridesOf(inputSizes)],
  );
