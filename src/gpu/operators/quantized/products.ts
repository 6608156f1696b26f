/**
 * MatMulInteger and ConvInteger: products of 8-bit integers minus their zero points, whose sums are 32-bit integers, and
 * exact. DynamicQuantizeLinear makes such integers.
 */
import { requireDatatype, Unsupported, floats, elementOf } from '../../../operators/index.ts';
import { elementCount, type DataType } from '../../../tensor/index.ts';
import { coordinates, weightedSum, indexType } from '../common/indexing.ts';
import { requiredOutput, asDeclared } from '../common/inputs.ts';
import { allElementsOf, parametersOf, written, forEachElement } from '../common/elements.ts';
import { broadcastShapes, factorOf, sidesOf } from '../dense/matmul.ts';
import { emitComputedProduct, type Factor } from '../dense/product.ts';
import type { KernelName, Kernels, Operator, Value, Emitter } from '../types.ts';
import { convolutionOf, depthOf, inputPlaces, placeInChannel, placesInside } from '../dense/window.ts';
import { read, write } from '../common/launching.ts';
import { teamKernel } from '../common/teams.ts';

const bytes: readonly DataType[] = ['INT8', 'UINT8'];

/** C expression of a zero point, which has one element, one for each `index`, or these for each batch item. */
function zeroText(name: string, zero: Value | undefined, index: string, items: number, size: number): string {
  if (zero === undefined) return '0';
  requireDatatype(zero, [...bytes, 'INT16', 'UINT16', 'INT32']);
  if (zero.elements === 1) return `(int)${name}[0]`;
  if (zero.elements === size) return `(int)${name}[${index}]`;
  if (zero.elements !== items * size) throw new Unsupported(`${zero.elements} zero points for ${size} of ${items}`);
  return `(int)${name}[(plane) * ${size}u + ${index}]`;
}

const matmulInteger = <Type extends KernelName>(type: Type, types: readonly DataType[]): Operator<Type> => ({
  type,
  emit(emitter) {
    const [a, b] = [emitter.required(0, types), emitter.required(1, types)];
    const [zeroA, zeroB] = [emitter.input(2), emitter.input(3)];
    const output = requiredOutput(emitter);
    const { left, right } = sidesOf(a, b);
    const [rows, columns, depth] = [left.rows, right.columns, left.columns];
    const batch = broadcastShapes(left.batch, right.batch);
    const items = elementCount(batch);
    const plane = coordinates('(plane)', batch);
    const place = ({ batchStrides, leading }: Required<Factor>, row: string, column: string): string =>
      `(u64)(${weightedSum(plane, batchStrides)}) + (u64)${row} * ${leading} + ${column}`;
    const tensors = { a, b, zeroA, zeroB, d: written(output) };
    const of = allElementsOf(tensors);
    emitComputedProduct(emitter, {
      hint: 'integer_product',
      rows,
      columns,
      depth,
      planes: items,
      sum: 'int',
      parameters: parametersOf(tensors),
      a: `(int)${of.a.at(place(factorOf(left, batch), '(row)', '(depth)'))} - ${zeroText('zeroA', zeroA, '(row)', items, rows)}`,
      b: `(int)${of.b.at(place(factorOf(right, batch), '(depth)', '(column)'))} - ${zeroText('zeroB', zeroB, '(column)', items, columns)}`,
      aRowsTogether: true,
      bRowsTogether: true,
      finish: of.d.set(`(u64)(plane) * ${rows * columns} + (u64)(row) * ${columns} + (column)`, '(x)'),
    });
  },
});

/** A product whose second factor is read from the image itself. */
const convInteger = {
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
      a: `(int)weight[(u64)${filter} * ${depth} + (depth)] - ${zeroText('weightZero', weightZero, filter, 1, groups * outputChannels)}`,
      // The padding holds the zero point, which counts as 0.
      b: `[&]() -> int { ${xs.join(' ')} return ${placesInside(convolution)} ? (int)input[${at}] - ${zeroText('inputZero', inputZero, '0', 1, 1)} : 0; }()`,
      aRowsTogether: true,
      bRowsTogether: true,
      finish: allElementsOf(tensors).d.set(`(u64)((plane) * ${outputChannels}u + (row)) * ${places} + (column)`, '(x)'),
    });
  },
} satisfies Kernels;

const block = 256;
/** Elements that one block of the first kernel reads. */
const perBlock = 4096;
/** Each thread of the second kernel reads the ranges of all blocks. */
const partsMax = 128;

/** Scale and zero point from the range of the elements, in two launches. */
function emitDynamic(emitter: Emitter): void {
  const input = asDeclared(emitter, emitter.required(0, floats));
  const scale = emitter.output(1)?.buffer ?? emitter.scratch(4);
  const zero = emitter.output(2)?.buffer ?? emitter.scratch(1);
  const element = elementOf(input.datatype);
  const count = input.elements;
  const parts = Math.max(1, Math.min(partsMax, Math.ceil(count / perBlock)));
  const ranges = emitter.scratch(parts * 8);
  const kernel = emitter.kernel(
    'dynamic_range',
    teamKernel('dynamic-range', {
      INPUT: element.stored,
      'LOAD(x)': element.load('(x)'),
      INDEX: indexType(count + partsMax * block),
      COUNT: `${count}u`,
      PARTS: parts,
      BLOCK: block,
    }),
  );
  emitter.launch({ kernel, grid: [parts], block: [block], arguments: [read(input.buffer), write(ranges)] });
  const tensors = {
    ...(count > 0 && { input, output: written(requiredOutput(emitter)) }),
    ranges: { buffer: ranges, storedType: 'FP32' },
    scales: written({ buffer: scale, storedType: 'FP32' }),
    zeros: written({ buffer: zero, storedType: 'UINT8' }),
  } as const;
  // An empty tensor has a scale and a zero point too.
  forEachElement(emitter, 'dynamic_quantize', Math.max(1, count), tensors, (of) => [
    'float low = 0, high = 0;',
    `for (int part = 0; part < ${parts}; part++) {`,
    '  low = ranges[2 * part] < low ? ranges[2 * part] : low;',
    '  high = ranges[2 * part + 1] > high ? ranges[2 * part + 1] : high;',
    '}',
    'const float scale = high == low ? 1.0f : (high - low) / 255.0f;',
    'const float zero = rintf(fminf(fmaxf(-low / scale, 0.0f), 255.0f));',
    of.input ? `output[i] = (u8)fminf(fmaxf(rintf(${of.input.at('i')} / scale) + zero, 0.0f), 255.0f);` : '',
    'if (i == 0) {',
    '  scales[0] = scale;',
    '  zeros[0] = (u8)zero;',
    '}',
  ]);
}

export const integerOperators = [
  matmulInteger('MatMulInteger', bytes),
  matmulInteger('com.microsoft.MatMulInteger16', ['INT16']),
  convInteger,
  { type: 'DynamicQuantizeLinear', emit: emitDynamic },
] as const satisfies readonly Kernels[];
