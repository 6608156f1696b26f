/** ConvInteger: a product whose second factor is read from the image itself. */
import { elementCount } from '../../../tensor/index.ts';
import { requireDatatype } from '../../../operators/index.ts';
import { coordinates } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { allElementsOf, parametersOf, written } from '../common/elements.ts';
import { emitComputedProduct } from '../dense/product.ts';
import { convolutionOf, depthOf, inputPlaces, placeInChannel, placesInside } from '../dense/window.ts';
import type { Kernels, Value } from '../types.ts';
import { bytes } from './products.ts';

const zero = (name: string, value: Value | undefined, index: string): string =>
  value === undefined ? '0' : `(int)${name}[${value.elements === 1 ? '0' : index}]`;

export const convInteger = {
  type: 'ConvInteger',
  emit(emitter) {
    const [input, weight] = [emitter.required(0), emitter.required(1)];
    const [inputZero, weightZero] = [emitter.input(2), emitter.input(3)];
    const output = requiredOutput(emitter);
    for (const value of [input, weight]) requireDatatype(value, bytes);
    const convolution = convolutionOf(emitter, input, weight, output);
    if (output.elements === 0) return;
    const { images, groups, inputChannels, outputChannels, kernel, outputSizes } = convolution;
    const depth = depthOf(convolution);
    const places = elementCount(outputSizes);
    const filter = `((plane) % ${groups}u * ${outputChannels}u + (row))`;
    const [channel = '0', ...taps] = coordinates('(depth)', [inputChannels, ...kernel]);
    const xs = inputPlaces(convolution, coordinates('(column)', outputSizes), taps);
    const at = placeInChannel(convolution, `(u64)((plane) * ${inputChannels}u + (${channel}))`);
    const tensors = { weight, input, inputZero, weightZero, d: written(output) };
    emitComputedProduct(emitter, {
      hint: 'integer_convolution',
      rows: outputChannels,
      columns: places,
      depth,
      planes: images * groups,
      sum: 'int',
      parameters: parametersOf(tensors),
      a: `(int)weight[(u64)${filter} * ${depth} + (depth)] - ${zero('weightZero', weightZero, filter)}`,
      // The padding holds the zero point, which counts as 0.
      b: `[&]() -> int { ${xs.join(' ')} return ${placesInside(convolution)} ? (int)input[${at}] - ${zero('inputZero', inputZero, '0')} : 0; }()`,
      aRowsTogether: true,
      bRowsTogether: true,
      finish: allElementsOf(tensors).d.set(`(u64)((plane) * ${outputChannels}u + (row)) * ${places} + (column)`, '(x)'),
    });
  },
} satisfies Kernels;
