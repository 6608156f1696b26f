/**
 * Convolutions of 8-bit integers: ConvInteger, QLinearConv. They are products whose second factor is read from the
 * image itself.
 */
import { requireDatatype } from '../common/element.ts';
import { coordinates, product as productOf } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { allElementsOf, parametersOf, written, type ElementsOf, type Uses } from '../common/elements.ts';
import { emitComputedProduct } from '../dense/product.ts';
import { convolutionOf, depthOf, inputPlaces, placeInChannel, placesInside } from '../dense/window.ts';
import { type Emitter, type KernelName, type Kernels, type Operator, Unsupported, type Value } from '../types.ts';
import { bytes, saturated, scaleAt } from './products.ts';

interface Quantized<Given extends Uses> {
  readonly hint: string;
  readonly input: Value;
  readonly weight: Value;
  readonly output: Value;
  readonly inputZero: Value | undefined;
  readonly weightZero: Value | undefined;
  readonly tensors: Given;
  /** C statement over the sum, the filter and the index in the output. */
  readonly finish: (sum: string, filter: string, at: string, of: ElementsOf<Given>) => string;
}

const zero = (name: string, value: Value | undefined, index: string): string =>
  value === undefined ? '0' : `(int)${name}[${value.elements === 1 ? '0' : index}]`;

function emitConvolution<Given extends Uses>(emitter: Emitter, quantized: Quantized<Given>): void {
  const { hint, input, weight, output, inputZero, weightZero, tensors, finish } = quantized;
  for (const value of [input, weight]) requireDatatype(value, bytes);
  const convolution = convolutionOf(emitter, input, weight, output);
  if (output.elements === 0) return;
  const { images, groups, inputChannels, outputChannels, kernel, outputSizes } = convolution;
  const depth = depthOf(convolution);
  const places = productOf(outputSizes);
  const filter = `((plane) % ${groups}u * ${outputChannels}u + (row))`;
  const [channel = '0', ...taps] = coordinates('(depth)', [inputChannels, ...kernel]);
  const xs = inputPlaces(convolution, coordinates('(column)', outputSizes), taps);
  const at = placeInChannel(convolution, `(u64)((plane) * ${inputChannels}u + (${channel}))`);
  // The padding holds the zero point, which counts as 0.
  const picked = `[&]() -> int { ${xs.join(' ')} return ${placesInside(convolution)} ? (int)input[${at}] - ${zero('inputZero', inputZero, '0')} : 0; }()`;
  emitComputedProduct(emitter, {
    hint,
    rows: outputChannels,
    columns: places,
    depth,
    planes: images * groups,
    sum: 'int',
    parameters: parametersOf({ weight, input, inputZero, weightZero, ...tensors }),
    a: `(int)weight[(u64)${filter} * ${depth} + (depth)] - ${zero('weightZero', weightZero, filter)}`,
    b: picked,
    aRowsTogether: true,
    bRowsTogether: true,
    finish: finish(
      '(x)',
      filter,
      `(u64)((plane) * ${outputChannels}u + (row)) * ${places} + (column)`,
      allElementsOf(tensors),
    ),
  });
}

const convInteger = {
  type: 'ConvInteger',
  emit(emitter) {
    const output = requiredOutput(emitter);
    emitConvolution(emitter, {
      hint: 'integer_convolution',
      input: emitter.required(0),
      weight: emitter.required(1),
      output,
      inputZero: emitter.input(2),
      weightZero: emitter.input(3),
      tensors: { d: written(output) },
      finish: (sum, _, at, { d }) => d.set(at, sum),
    });
  },
} satisfies Kernels;

const qlinearConv = <Type extends KernelName>(type: Type): Operator<Type> => ({
  type,
  emit(emitter) {
    if (emitter.attribute('channels_last', 0) === 1) throw new Unsupported('its channels come last');
    const [input, weight] = [emitter.required(0), emitter.required(3)];
    const scaleOf = (index: number): Value => asDeclared(emitter, emitter.required(index, ['FP32']));
    const [scaleX, scaleW, scaleY] = [scaleOf(1), scaleOf(4), scaleOf(6)];
    const [zeroY, bias] = [emitter.input(7), emitter.input(8)];
    const output = requiredOutput(emitter);
    emitConvolution(emitter, {
      hint: 'quantized_convolution',
      input,
      weight,
      output,
      inputZero: emitter.input(2),
      weightZero: emitter.input(5),
      tensors: { scaleX, scaleW, scaleY, zeroY, bias, d: written(output) },
      finish: (sum, filter, at, { d }) => {
        const factor = `scaleX[0] * scaleW[${scaleAt(scaleW, filter)}] / scaleY[0]`;
        const value = bias === undefined ? sum : `(${sum} + bias[${filter}])`;
        const added = zeroY === undefined ? '' : ' + (float)zeroY[0]';
        return d.set(at, saturated(`rintf((float)${value} * (${factor}))${added}`, output.datatype));
      },
    });
  },
});

export const quantizedConvolutionOperators = [
  convInteger,
  qlinearConv('QLinearConv'),
  qlinearConv('com.microsoft.QLinearConv'),
] as const satisfies readonly Kernels[];
