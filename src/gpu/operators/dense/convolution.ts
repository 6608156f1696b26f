/**
 * Conv in any number of spatial dimensions, ConvTranspose, and `turntable.Conv`, which fusion makes of a Conv and the
 * activation behind it. There are three ways:
 *
 * - kernel size 1: a matrix product of the input itself
 * - few input channels for each group (depthwise): a kernel that reads the input directly
 * - all others: a product with the matrix of the input's windows (im2col)
 */
import { floats, Unsupported, accumulatorOf, floatLiteral } from '../../../operators/index.ts';
import { elementCount, elementBytes } from '../../../tensor/index.ts';
import { changed, forEachElement, written, type Stored } from '../common/elements.ts';
import { coordinates, indexType, stridesOf, weightedSum } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { activationExpression, emitProduct } from './product.ts';
import { convert } from '../common/inputs.ts';
import {
  convolutionOf,
  depthOf,
  inputPlaces,
  isPointwise,
  placeInChannel,
  placesInside,
  stepsOf,
  type Convolution,
} from './window.ts';

type Finish =
  { readonly kind: 'none' | 'relu' } | { readonly kind: 'clip'; readonly low: number; readonly high: number };

/** Limit for the matrix of windows. If those of all images do not fit, the images are split. */
const windowBytesMax = 256 * 2 ** 20;
/**
 * Up to this number of terms, one thread per sum is faster than a matrix of windows, which repeats each input element
 * as often.
 */
const directDepthMax = 32;

function finishOf(emitter: Emitter): Finish {
  const activation = emitter.attribute('activation', 'none');
  if (activation === 'none' || activation === 'relu') return { kind: activation };
  if (activation !== 'clip') throw new Unsupported(`a convolution with the activation '${activation}'`);
  return { kind: 'clip', low: emitter.attribute('clipMin', -Infinity), high: emitter.attribute('clipMax', Infinity) };
}

/** C expression of the activation of a sum. */
function finished(finish: Finish, value: string, type: string): string {
  if (finish.kind !== 'clip') return activationExpression(finish.kind, value, type);
  const [low, high] = [finish.low, finish.high].map((limit) => `(${type})${floatLiteral(limit, 'double')}`);
  // In this order NaN passes, and the upper limit wins if low > high, as in ONNX.
  return `(${value} > ${high} ? ${high} : ${value} < ${low} ? (${low} > ${high} ? ${high} : ${low}) : ${value})`;
}

function emitConvolution(emitter: Emitter, finish: Finish): void {
  const [input, weight, bias] = [emitter.required(0, floats), emitter.required(1), emitter.input(2)];
  const output = requiredOutput(emitter);
  if (weight.datatype !== input.datatype)
    throw new Unsupported(`${input.datatype} inputs with ${weight.datatype} weights`);
  const convolution = convolutionOf(emitter, input, weight, output);
  if (bias !== undefined && bias.elements !== convolution.groups * convolution.outputChannels) {
    throw new Unsupported(`its bias '${bias.name}' has ${bias.elements} values`);
  }
  if (output.elements === 0) return;
  const grouped = convolution.groups > 1 && depthOf(convolution) <= directDepthMax;
  if (grouped || input.datatype === 'FP64' || depthOf(convolution) === 0) {
    emitDirect(emitter, convolution, finish, input, weight, bias, output);
    return;
  }
  if (isPointwise(convolution)) emitPointwise(emitter, convolution, input, weight, output);
  else emitWindows(emitter, convolution, input, weight, output);
  if (bias !== undefined || finish.kind !== 'none') emitFinish(emitter, finish, bias, output);
}

/** For some images, each group's output [channels, places] = weight [channels, depth] x windows [depth, places]. */
function emitProducts(
  emitter: Emitter,
  convolution: Convolution,
  images: number,
  weight: Value,
  windows: Stored,
  output: Stored,
): void {
  const { groups, outputChannels, outputSizes } = convolution;
  const depth = depthOf(convolution);
  const places = elementCount(outputSizes);
  emitProduct(emitter, {
    rows: outputChannels,
    columns: places,
    depth,
    batch: [images, groups],
    a: { ...weight, leading: depth, batchStrides: [0, outputChannels * depth] },
    b: { ...windows, leading: places, batchStrides: [groups * depth * places, depth * places] },
    d: output,
  });
}

function emitPointwise(emitter: Emitter, convolution: Convolution, input: Value, weight: Value, output: Value): void {
  const windows = input.storedType === weight.storedType ? input : convert(emitter, input, weight.storedType);
  emitProducts(emitter, convolution, convolution.images, weight, windows, output);
}

function emitWindows(emitter: Emitter, convolution: Convolution, input: Value, weight: Value, output: Value): void {
  const { images, groups, outputSizes } = convolution;
  const { storedType } = weight;
  const perImage = groups * depthOf(convolution) * elementCount(outputSizes);
  const turn = Math.max(1, Math.min(images, Math.floor(windowBytesMax / (perImage * elementBytes[storedType]))));
  const windows = emitter.scratch(turn * perImage * elementBytes[storedType]);
  const inputBytes = (input.elements / images) * elementBytes[input.storedType];
  const outputBytes = (output.elements / images) * elementBytes[output.storedType];
  for (let first = 0; first < images; first += turn) {
    const now = Math.min(turn, images - first);
    const from = emitter.part(input.buffer, first * inputBytes, now * inputBytes);
    const part = { buffer: emitter.part(windows, 0, now * perImage * elementBytes[storedType]), storedType };
    emitWindowMatrix(emitter, convolution, now, { buffer: from, storedType: input.storedType }, part);
    const to = emitter.part(output.buffer, first * outputBytes, now * outputBytes);
    emitProducts(emitter, convolution, now, weight, part, { buffer: to, storedType: output.storedType });
  }
}

/** windows[image, channel, kernel place, output place] = the input element at that place, 0 in the padding. */
function emitWindowMatrix(
  emitter: Emitter,
  convolution: Convolution,
  images: number,
  input: Stored,
  windows: Stored,
): void {
  const { groups, inputChannels, kernel, inputSizes, outputSizes } = convolution;
  const sizes = [images * groups * inputChannels, ...kernel, ...outputSizes];
  const [channel, ...places] = coordinates('i', sizes);
  const lines = inputPlaces(convolution, places.slice(kernel.length), places);
  const index = indexType(images * groups * inputChannels * elementCount(inputSizes));
  const at = placeInChannel(convolution, `(${index})(${channel})`);
  forEachElement(emitter, 'windows', elementCount(sizes), { input, output: written(windows) }, (of) => [
    ...lines,
    of.output.set('i', `(${placesInside(convolution)} ? ${of.input.at(at)} : (${of.input.computed})0)`),
  ]);
}

/** Adds bias and activation to a product's result, since cuBLASLt adds a bias along the other axis only. */
function emitFinish(emitter: Emitter, finish: Finish, bias: Value | undefined, output: Value): void {
  const [, channels, ...sizes] = output.shape as [number, number, ...number[]];
  forEachElement(emitter, 'convolution_finish', output.elements, { bias, data: changed(output) }, (of) => {
    const type = of.data.computed;
    const added = of.bias === undefined ? '' : ` + ${of.bias.at(`i / ${elementCount(sizes)}u % ${channels}u`)}`;
    return [`const ${type} x = ${of.data.at('i')}${added};`, of.data.set('i', finished(finish, 'x', type))];
  });
}

/** One thread for each output element. */
function emitDirect(
  emitter: Emitter,
  convolution: Convolution,
  finish: Finish,
  input: Value,
  weight: Value,
  bias: Value | undefined,
  output: Value,
): void {
  const { groups, inputChannels, outputChannels, kernel, inputSizes, outputSizes } = convolution;
  const taps = elementCount(kernel);
  const ys = kernel.map((_, axis) => `y${axis}`);
  const ts = kernel.map((_, axis) => `t${axis}`);
  const places = inputPlaces(convolution, ys, ts);
  const body = loops(kernel, (axis) => [places[axis]!, `if ((u32)x${axis} >= ${inputSizes[axis]}u) continue;`]);
  const sizes = [convolution.images, groups, outputChannels, ...outputSizes];
  emitSum(emitter, 'convolution', { input, weight, bias, output }, finish, sizes, outputSizes.length, {
    channels: inputChannels,
    inputStart: `(image * ${groups}u + group) * ${inputChannels}u`,
    inputSizes,
    weightStart: `(group * ${outputChannels}u + filter) * ${inputChannels * taps}u`,
    weightStep: taps,
    kernel,
    body,
  });
}

/**
 * Opens loops over the taps of a kernel, the outermost first. `place` gives lines that find the input element of a tap,
 * or skip it.
 */
function loops(kernel: readonly number[], place: (axis: number) => readonly string[]): string[] {
  return kernel.flatMap((size, axis) => [`for (i32 t${axis} = 0; t${axis} < ${size}; t${axis}++) {`, ...place(axis)]);
}

interface Sum {
  /** Input channels of a group. */
  readonly channels: number;
  /** C expression over image and group of the first channel. */
  readonly inputStart: string;
  readonly inputSizes: readonly number[];
  /** C expression of the first weight's index, and elements from one channel to the next. */
  readonly weightStart: string;
  readonly weightStep: number;
  readonly kernel: readonly number[];
  /** The opened loops over the kernel's taps, which declare the input's coordinates x0, x1, ... */
  readonly body: readonly string[];
}

/** A kernel in which each thread sums one output element over taps and channels. */
function emitSum(
  emitter: Emitter,
  hint: string,
  { input, weight, bias, output }: Record<'input' | 'weight' | 'output', Value> & { readonly bias: Value | undefined },
  finish: Finish,
  sizes: readonly number[],
  axes: number,
  sum: Sum,
): void {
  const type = accumulatorOf(output.datatype);
  const [image, group, filter, ...places] = coordinates('i', sizes);
  const spatial = elementCount(sum.inputSizes);
  const xs = sum.inputSizes.map((_, axis) => `x${axis}`);
  const ts = sum.kernel.map((_, axis) => `t${axis}`);
  const tensors = { input, weight, bias, output: written(output) };
  forEachElement(emitter, hint, output.elements, tensors, (of) => [
    `const u32 image = (u32)(${image}), group = (u32)(${group}), filter = (u32)(${filter});`,
    ...places.slice(0, axes).map((place, axis) => `const i32 y${axis} = (i32)(${place});`),
    `const u64 inputStart = (u64)(${sum.inputStart}) * ${spatial};`,
    `const u64 weightStart = (u64)(${sum.weightStart});`,
    `${type} x = ${of.bias?.at(`group * ${sizes[2]}u + filter`) ?? `(${type})0`};`,
    ...sum.body,
    `const u64 from = inputStart + (u64)(${weightedSum(xs, stridesOf(sum.inputSizes))});`,
    `const u64 weightFrom = weightStart + (u64)(${weightedSum(ts, stridesOf(sum.kernel))});`,
    `for (u32 c = 0; c < ${sum.channels}u; c++) {`,
    `x += ${of.input.at(`from + (u64)c * ${spatial}`)} * ${of.weight.at(`weightFrom + (u64)c * ${sum.weightStep}`)};`,
    ...Array.from({ length: axes + 1 }, () => '}'),
    of.output.set('i', finished(finish, 'x', type)),
  ]);
}

/**
 * ConvTranspose: input i adds to output o = i * stride + t * dilation - pad by tap t. Each thread sums the inputs of
 * one output element.
 */
function emitTransposed(emitter: Emitter): void {
  const [input, weight, bias] = [emitter.required(0, floats), emitter.required(1), emitter.input(2)];
  const output = requiredOutput(emitter);
  if (input.shape.length < 3 || weight.shape.length !== input.shape.length) {
    throw new Unsupported(`an input and a weight of [${input.shape.join(',')}] and [${weight.shape.join(',')}]`);
  }
  const groups = emitter.attribute('group', 1);
  const [images, channels, ...inputSizes] = input.shape as [number, number, ...number[]];
  const [weightChannels, filters] = weight.shape as [number, number];
  const outputSizes = output.shape.slice(2);
  if (weightChannels !== channels || channels % groups !== 0 || output.shape[1] !== filters * groups) {
    throw new Unsupported(
      `${channels} channels in, ${output.shape[1]} out, a weight for ${weightChannels}, and ${groups} groups`,
    );
  }
  const steps = stepsOf(emitter, weight);
  const { kernel, strides, dilations } = steps;
  const begin = transposedPads(emitter, steps, inputSizes, outputSizes);
  if (output.elements === 0) return;
  const taps = elementCount(kernel);
  const body = loops(kernel, (axis) => [
    `const i32 r${axis} = y${axis} + ${begin[axis]} - t${axis} * ${dilations[axis]};`,
    `if (r${axis} < 0 || r${axis} % ${strides[axis]} != 0) continue;`,
    `const i32 x${axis} = r${axis} / ${strides[axis]};`,
    `if (x${axis} >= ${inputSizes[axis]}) continue;`,
  ]);
  const perGroup = channels / groups;
  const values = { input, weight, bias, output };
  const sizes = [images, groups, filters, ...outputSizes];
  emitSum(emitter, 'convolution_transposed', values, { kind: 'none' }, sizes, outputSizes.length, {
    channels: perGroup,
    inputStart: `(image * ${groups}u + group) * ${perGroup}u`,
    inputSizes,
    weightStart: `(group * ${perGroup * filters}u + filter) * ${taps}u`,
    weightStep: filters * taps,
    kernel,
    body,
  });
}

/** Padding at the beginning of each axis; with `output_shape` or `auto_pad` it follows from the sizes. */
function transposedPads(
  emitter: Emitter,
  steps: Pick<Convolution, 'kernel' | 'strides' | 'dilations'>,
  inputSizes: readonly number[],
  outputSizes: readonly number[],
): readonly number[] {
  const auto = emitter.attribute('auto_pad', 'NOTSET');
  const named = emitter.attribute<readonly number[]>('output_shape', []);
  if (auto === 'VALID') return steps.kernel.map(() => 0);
  if (auto === 'NOTSET' && named.length === 0) {
    const pads = emitter.attribute<readonly number[]>('pads', []);
    return steps.kernel.map((_, axis) => pads[axis] ?? 0);
  }
  const added = emitter.attribute<readonly number[]>('output_padding', []);
  return steps.kernel.map((size, axis) => {
    const span = (size - 1) * steps.dilations[axis]! + 1;
    const whole = steps.strides[axis]! * (inputSizes[axis]! - 1) + (added[axis] ?? 0) + span;
    const total = Math.max(0, whole - outputSizes[axis]!);
    return auto === 'SAME_UPPER' ? Math.floor(total / 2) : total - Math.floor(total / 2);
  });
}

export const convolutionOperators = [
  { type: 'Conv', emit: (emitter) => emitConvolution(emitter, { kind: 'none' }) },
  { type: 'turntable.Conv', emit: (emitter) => emitConvolution(emitter, finishOf(emitter)) },
  { type: 'ConvTranspose', emit: emitTransposed },
] as const satisfies readonly Kernels[];
