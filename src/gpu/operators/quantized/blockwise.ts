/**
 * Weights of 2, 4 or 8 bits with a scale for each block: ONNX Runtime's MatMulNBits and GatherBlockQuantized. With few
 * rows, the product dequantises weights while it reads them; with many, weights are dequantised once before.
 */
import { elementCount } from '../../../tensor/index.ts';
import { floats, Unsupported } from '../../../operators/index.ts';
import { allElementsOf, elementsOf, forEachElement, parametersOf, written } from '../common/elements.ts';
import { axisOf, coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput, scratchValue } from '../common/inputs.ts';
import { emitComputedProduct, emitProduct } from '../dense/product.ts';
import type { Kernels, Value } from '../types.ts';

/** Up to this number of rows, writing the dequantised weights to memory does not pay. */
const fewRows = 64;

/** C expression of a packed weight or zero point: number `place` of the row that begins `at`. */
function unpacked(name: string, bits: number, at: string, place: string): string {
  if (bits === 8) return `(int)${name}[${at} + (${place})]`;
  const perByte = 8 / bits;
  const mask = 2 ** bits - 1;
  return `(int)((${name}[${at} + (${place}) / ${perByte}u] >> ((${place}) % ${perByte}u * ${bits}u)) & ${mask})`;
}

interface BlockWeights {
  readonly packed: Value;
  readonly scales: Value;
  readonly zeros: Value | undefined;
  readonly bits: number;
  readonly block: number;
  readonly depth: number;
}

/** C expression of the weight of a column at depth `k`, over the tensors of {@link BlockWeights}. */
function dequantized({ scales, zeros, bits, block, depth }: BlockWeights, column: string, k: string): string {
  const blocks = Math.ceil(depth / block);
  const perColumn = blocks * (block / (8 / bits));
  const inBlocks = `(u64)${column} * ${blocks} + ${k} / ${block}u`;
  const packedZero = (): string =>
    unpacked('zeros', bits, `(u64)${column} * ${Math.ceil(blocks / (8 / bits))}`, `${k} / ${block}u`);
  const zero =
    zeros === undefined
      ? `${2 ** (bits - 1)}`
      : zeros.datatype === 'UINT8'
        ? packedZero()
        : elementsOf('zeros', zeros).at(inBlocks);
  const weight = unpacked('packed', bits, `(u64)${column} * ${perColumn}`, k);
  return `((float)(${weight}) - (float)(${zero})) * ${elementsOf('scales', scales).at(inBlocks)}`;
}

const matmulNBits = {
  type: 'com.microsoft.MatMulNBits',
  emit(emitter) {
    const [given, packed, scales] = [emitter.required(0, floats), emitter.required(1, ['UINT8']), emitter.required(2)];
    const [zeros, groups, bias] = [emitter.input(3), emitter.input(4), emitter.input(5)];
    const output = requiredOutput(emitter);
    const [depth, columns] = [emitter.attribute('K', 0), emitter.attribute('N', 0)];
    const [bits, block] = [emitter.attribute('bits', 4), emitter.attribute('block_size', 32)];
    if (![2, 4, 8].includes(bits)) throw new Unsupported(`its weights have ${bits} bits`);
    if (groups !== undefined && groups.elements > 0) throw new Unsupported('its groups are reordered (g_idx)');
    const rows = given.shape.length === 1 ? 1 : elementCount(given.shape.slice(0, -1));
    const weights = { packed, scales, zeros, bits, block, depth };
    const a = asDeclared(emitter, given);
    if (rows <= fewRows || bias !== undefined) {
      const tensors = { a, packed, scales, zeros, bias, d: written(output) };
      const of = allElementsOf(tensors);
      emitComputedProduct(emitter, {
        hint: 'blockwise_product',
        rows,
        columns,
        depth,
        planes: 1,
        sum: 'float',
        parameters: parametersOf(tensors),
        a: of.a.at(`(u64)(row) * ${depth} + (depth)`),
        b: dequantized(weights, '(column)', '(depth)'),
        aRowsTogether: true,
        bRowsTogether: false,
        finish: of.d.set(`(u64)(row) * ${columns} + (column)`, of.bias ? `x + ${of.bias.at('column')}` : 'x'),
      });
      return;
    }
    const whole = scratchValue(emitter, a.datatype, [columns, depth]);
    const tensors = { packed, scales, zeros, output: written(whole) };
    forEachElement(emitter, 'blockwise_weights', whole.elements, tensors, (of) => [
      `const u32 k = (u32)(i % ${depth}u), column = (u32)(i / ${depth}u);`,
      of.output.set('i', dequantized(weights, 'column', 'k')),
    ]);
    emitProduct(emitter, {
      rows,
      columns,
      depth,
      batch: [],
      a: { buffer: a.buffer, storedType: a.datatype, leading: depth },
      b: { ...whole, transposed: true, leading: depth },
      d: { buffer: output.buffer, storedType: output.datatype },
    });
  },
} satisfies Kernels;

/** Rows of a table of quantised weights: 8 bits, or 4 bits with two in a byte along the last axis. */
const gatherBlockQuantized = {
  type: 'com.microsoft.GatherBlockQuantized',
  emit(emitter) {
    const data = emitter.required(0, ['UINT8']);
    const [indices, scales] = [emitter.required(1, ['INT64', 'INT32']), emitter.required(2)];
    const zeros = emitter.input(3);
    const output = requiredOutput(emitter);
    const bits = emitter.attribute('bits', 4);
    if (bits !== 4 && bits !== 8) throw new Unsupported(`its weights have ${bits} bits`);
    const rank = data.shape.length;
    const gathered = axisOf(emitter.attribute('gather_axis', 0), rank);
    const along = axisOf(emitter.attribute('quantize_axis', 1), rank);
    const block = emitter.attribute('block_size', 128);
    const sizes = data.shape.map((size, axis) => (axis === rank - 1 ? size * (8 / bits) : size));
    const index = indices.shape.length;
    const places = coordinates('i', output.shape);
    const chosen = weightedSum(places.slice(gathered, gathered + index), stridesOf(indices.shape));
    const inData = sizes.map((_, axis) =>
      axis === gathered ? 'at' : `(u64)(${places[axis < gathered ? axis : axis + index - 1]})`,
    );
    const blockPlaces = inData.map((place, axis) => (axis === along ? `(${place} / ${block}u)` : place));
    const zeroSizes = scales.shape.map((size, axis) =>
      axis === rank - 1 && bits === 4 ? Math.ceil(size / 2) * 2 : size,
    );
    const zero =
      zeros === undefined
        ? `${2 ** (bits - 1)}`
        : unpacked('zeros', bits, '0', weightedSum(blockPlaces, stridesOf(zeroSizes)));
    const tensors = { data, indices, scales, zeros, output: written(output) };
    forEachElement(emitter, 'gather_block_quantized', output.elements, tensors, (of) => [
      `i64 index = indices[${chosen}];`,
      `if (index < 0) index += ${sizes[gathered]};`,
      'float y = F32_NAN;',
      `if (index >= 0 && index < ${sizes[gathered]}) {`,
      '  const u64 at = (u64)index;',
      `  const u64 place = ${weightedSum(inData, stridesOf(sizes))};`,
      `  const u64 block = ${weightedSum(blockPlaces, stridesOf(scales.shape))};`,
      `  y = (float)(${unpacked('data', bits, '0', 'place')} - (${zero})) * ${of.scales.at('block')};`,
      '}',
      of.output.set('i', 'y'),
    ]);
  },
} satisfies Kernels;

export const blockwiseOperators = [matmulNBits, gatherBlockQuantized] as const satisfies readonly Kernels[];
