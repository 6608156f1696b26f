/** The window of a convolution: kernel size, strides, dilations and padding along each spatial axis. */
import { elementCount } from '../../../tensor/index.ts';
import { convolutionWindows, eachAxis, Unsupported } from '../../../operators/index.ts';
import { weightedSum, stridesOf } from '../common/indexing.ts';
import type { Emitter, Value } from '../types.ts';

export type Convolution = ReturnType<typeof convolutionOf>;

/** Kernel size, strides and dilations of a node, checked against its weight's shape. */
export function stepsOf(emitter: Emitter, weight: Value) {
  const kernel = weight.shape.slice(2);
  const named = eachAxis(emitter, 'kernel_shape', kernel.length, 0);
  if (named.some((size, axis) => size !== 0 && size !== kernel[axis])) {
    throw new Unsupported(`its kernel_shape [${named.join(',')}] is not its weight's [${kernel.join(',')}]`);
  }
  return {
    kernel,
    strides: eachAxis(emitter, 'strides', kernel.length, 1),
    dilations: eachAxis(emitter, 'dilations', kernel.length, 1),
  };
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
  const windows = convolutionWindows(inputSizes, steps.kernel, emitter.attribute);
  return {
    ...steps,
    // A window never begins inside the input, unlike a pool's.
    padsBegin: windows.map(({ before }) => Math.max(0, before)),
    images,
    groups,
    /** Of one group. */
    inputChannels,
    outputChannels: filters / groups,
    inputSizes,
    outputSizes: output.shape.slice(2),
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
