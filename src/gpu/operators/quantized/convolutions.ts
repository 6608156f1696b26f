/** Convolutions of 8-bit whole numbers: ConvInteger, QLinearConv. Products whose second factor is picked from the image while it is read. */
import type { DataType } from '../../../tensor/index.ts';
import { elementOf, requireDatatype } from '../common/element.ts';
import { coordinates, product as productOf } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import type { Parameter } from '../common/launching.ts';
import { emitComputedProduct } from '../dense/product.ts';
import { convolutionOf, depthOf, inputPlaces, placeInChannel, placesInside } from '../dense/window.ts';
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { bytes, saturated, scaleText } from './products.ts';

interface Quantized {
  readonly hint: string;
  readonly input: Value;
  readonly weight: Value;
  readonly output: Value;
  readonly inputZero: Value | undefined;
  readonly weightZero: Value | undefined;
  readonly parameters: readonly Parameter[];
  /** C statement over the sum, the filter and the place in the output. */
  readonly finish: (sum: string, filter: string, at: string) => string;
}

const zero = (name: string, value: Value | undefined, index: string): string =>
  value === undefined ? '0' : `(int)${name}[${value.elements === 1 ? '0' : index}]`;

const zeros = (name: string, value: Value | undefined): Parameter[] =>
  value === undefined ? [] : [{ name, type: elementOf(value.datatype).stored, buffer: value.buffer }];

function emitConvolution(emitter: Emitter, quantized: Quantized): void {
  const { hint, input, weight, output, inputZero, weightZero, parameters, finish } = quantized;
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
  // In the margins is the zero point, which is nothing.
  const picked = `[&]() -> int { ${xs.join(' ')} return ${placesInside(convolution)} ? (int)input[${at}] - ${zero('inputZero', inputZero, '0')} : 0; }()`;
  emitComputedProduct(emitter, {
    hint,
    rows: outputChannels,
    columns: places,
    depth,
    planes: images * groups,
    sum: 'int',
    parameters: [
      { name: 'weight', type: elementOf(weight.datatype).stored, buffer: weight.buffer },
      { name: 'input', type: elementOf(input.datatype).stored, buffer: input.buffer },
      ...zeros('inputZero', inputZero),
      ...zeros('weightZero', weightZero),
      ...parameters,
    ],
    a: `(int)weight[(u64)${filter} * ${depth} + (depth)] - ${zero('weightZero', weightZero, filter)}`,
    b: picked,
    aRowsTogether: true,
    bRowsTogether: true,
    finish: finish('(x)', filter, `(u64)((plane) * ${outputChannels}u + (row)) * ${places} + (column)`),
  });
}

const convInteger: Operator = {
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
      parameters: [{ name: 'd', type: 'i32', buffer: output.buffer, access: 'write' }],
      finish: (sum, _, at) => `d[${at}] = ${sum}`,
    });
  },
};

const floatTypes: readonly DataType[] = ['FP32'];

const qlinearConv = (type: string): Operator => ({
  type,
  emit(emitter) {
    if (emitter.attribute('channels_last', 0) === 1) throw new Unsupported('its channels come last');
    const [input, weight] = [emitter.required(0), emitter.required(3)];
    const [xScale, wScale, yScale] = [emitter.required(1), emitter.required(4), emitter.required(6)];
    const [yZero, bias] = [emitter.input(7), emitter.input(8)];
    const output = requiredOutput(emitter);
    const scales = [
      ['scaleX', xScale],
      ['scaleW', wScale],
      ['scaleY', yScale],
    ] as const;
    for (const [, value] of scales) requireDatatype(value, floatTypes);
    emitConvolution(emitter, {
      hint: 'quantized_convolution',
      input,
      weight,
      output,
      inputZero: emitter.input(2),
      weightZero: emitter.input(5),
      parameters: [
        ...scales.map(([name, value]) => ({ name, type: 'float', buffer: asDeclared(emitter, value).buffer })),
        ...(yZero === undefined
          ? []
          : [{ name: 'zeroY', type: elementOf(yZero.datatype).stored, buffer: yZero.buffer }]),
        ...(bias === undefined ? [] : [{ name: 'bias', type: 'i32', buffer: bias.buffer }]),
        { name: 'd', type: elementOf(output.datatype).stored, buffer: output.buffer, access: 'write' },
      ],
      finish: (sum, filter, at) => {
        const factor = `scaleX[0] * ${scaleText('scaleW', wScale, filter)} / scaleY[0]`;
        const value = bias === undefined ? sum : `(${sum} + bias[${filter}])`;
        const zero = yZero === undefined ? '' : ' + (float)zeroY[0]';
        return `d[${at}] = ${saturated(`rintf((float)${value} * (${factor}))${zero}`, output.datatype)}`;
      },
    });
  },
});

export const quantizedConvolutionOperators: readonly Operator[] = [
  convInteger,
  qlinearConv('QLinearConv'),
  qlinearConv('com.microsoft.QLinearConv'),
];
