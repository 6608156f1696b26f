/**
 * Weights of 2, 4 or 8 bits with a scale for each block: MatMulNBits and GatherBlockQuantized of ONNX Runtime. Few rows are multiplied while
 * the weights are dequantised; for many, the weights are made once.
 */
import { elementBytes } from '../../../tensor/index.ts';
import { elementOf, floats, requireDatatype } from '../common/element.ts';
import { axisOf, coordinates, product as productOf, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { forEachIndex, type Parameter } from '../common/launching.ts';
import { emitComputedProduct, emitProduct } from '../dense/product.ts';
import { Unsupported, type Operator } from '../types.ts';
import { forEachElement, written } from '../common/elements.ts';

/** Rows up to which each weight is used too seldom to be worth writing it out. */
const fewRows = 64;

const matmulNBits: Operator = {
  type: 'com.microsoft.MatMulNBits',
  emit(emitter) {
    const [given, packed, scales] = [emitter.required(0), emitter.required(1), emitter.required(2)];
    const [zeros, groups, bias] = [emitter.input(3), emitter.input(4), emitter.input(5)];
    requireDatatype(given, floats);
    requireDatatype(packed, ['UINT8']);
    const output = requiredOutput(emitter);
    const [depth, columns] = [emitter.attribute('K', 0), emitter.attribute('N', 0)];
    const [bits, block] = [emitter.attribute('bits', 4), emitter.attribute('block_size', 32)];
    if (![2, 4, 8].includes(bits)) throw new Unsupported(`its weights have ${bits} bits`);
    if (groups !== undefined && groups.elements > 0) throw new Unsupported('its groups are reordered (g_idx)');
    const rows = given.shape.length === 1 ? 1 : productOf(given.shape.slice(0, -1));
    const blocks = Math.ceil(depth / block);
    const perByte = 8 / bits;
    const perColumn = blocks * (block / perByte);
    const mask = 2 ** bits - 1;
    const unpacked = (name: string, at: string, place: string): string =>
      bits === 8
        ? `(int)${name}[${at} + (${place})]`
        : `(int)((${name}[${at} + (${place}) / ${perByte}u] >> ((${place}) % ${perByte}u * ${bits}u)) & ${mask})`;
    const zeroType = zeros === undefined ? undefined : elementOf(zeros.datatype);
    const zeroPerColumn = Math.ceil(blocks / perByte);
    const dequantized = (column: string, k: string): string => {
      const scale = elementOf(scales.kept).load(`scales[(u64)${column} * ${blocks} + ${k} / ${block}u]`);
      const zero =
        zeros === undefined
          ? `${2 ** (bits - 1)}`
          : zeros.datatype === 'UINT8'
            ? unpacked('zeros', `(u64)${column} * ${zeroPerColumn}`, `${k} / ${block}u`)
            : zeroType!.load(`zeros[(u64)${column} * ${blocks} + ${k} / ${block}u]`);
      return `((float)(${unpacked('packed', `(u64)${column} * ${perColumn}`, k)}) - (float)(${zero})) * ${scale}`;
    };
    const weights: Parameter[] = [
      { name: 'packed', type: 'u8', buffer: packed.buffer },
      { name: 'scales', type: elementOf(scales.kept).stored, buffer: scales.buffer },
      ...(zeros === undefined ? [] : [{ name: 'zeros', type: zeroType!.stored, buffer: zeros.buffer }]),
    ];
    const input = asDeclared(emitter, given);
    const element = elementOf(input.datatype);
    const target = elementOf(output.datatype);
    if (rows <= fewRows || bias !== undefined) {
      const added = bias === undefined ? '' : ` + ${elementOf(bias.kept).load('bias[column]')}`;
      emitComputedProduct(emitter, {
        hint: 'blockwise_product',
        rows,
        columns,
        depth,
        planes: 1,
        sum: 'float',
        parameters: [
          { name: 'a', type: element.stored, buffer: input.buffer },
          ...weights,
          ...(bias === undefined ? [] : [{ name: 'bias', type: elementOf(bias.kept).stored, buffer: bias.buffer }]),
          { name: 'd', type: target.stored, buffer: output.buffer, access: 'write' },
        ],
        a: element.load(`a[(u64)(row) * ${depth} + (depth)]`),
        b: dequantized('(column)', '(depth)'),
        aRowsTogether: true,
        bRowsTogether: false,
        finish: `d[(u64)(row) * ${columns} + (column)] = ${target.store(`x${added}`)}`,
      });
      return;
    }
    const whole = emitter.scratch(depth * columns * elementBytes[input.datatype]);
    forEachIndex(
      emitter,
      'blockwise_weights',
      depth * columns,
      [...weights, { name: 'output', type: element.stored, buffer: whole, access: 'write' }],
      [
        `const u32 k = (u32)(i % ${depth}u), column = (u32)(i / ${depth}u);`,
        `output[i] = ${element.store(dequantized('column', 'k'))};`,
      ].join('\n'),
    );
    emitProduct(emitter, {
      rows,
      columns,
      depth,
      batch: [],
      a: { buffer: input.buffer, type: input.datatype, transposed: false, leading: depth, batchStrides: [] },
      b: { buffer: whole, type: input.datatype, transposed: true, leading: depth, batchStrides: [] },
      d: { buffer: output.buffer, type: output.datatype },
    });
  },
};

/** Rows of a table of quantised weights: 8 bits, or 4 of which two are in a byte along the last axis. */
const gatherBlockQuantized: Operator = {
  type: 'com.microsoft.GatherBlockQuantized',
  emit(emitter) {
    const [data, indices, scales] = [emitter.required(0), emitter.required(1), emitter.required(2)];
    const zeros = emitter.input(3);
    requireDatatype(data, ['UINT8']);
    requireDatatype(indices, ['INT64', 'INT32']);
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
    const unpack = (name: string, place: string): string =>
      bits === 8 ? `(int)${name}[${place}]` : `(int)((${name}[(${place}) / 2] >> ((${place}) % 2 * 4)) & 15)`;
    const zeroSizes = scales.shape.map((size, axis) =>
      axis === rank - 1 && bits === 4 ? Math.ceil(size / 2) * 2 : size,
    );
    const zero =
      zeros === undefined ? `${2 ** (bits - 1)}` : unpack('zeros', weightedSum(blockPlaces, stridesOf(zeroSizes)));
    const tensors = { data, indices, scales, zeros, output: written(output) };
    forEachElement(emitter, 'gather_block_quantized', output.elements, tensors, (of) => [
      `i64 index = indices[${chosen}];`,
      `if (index < 0) index += ${sizes[gathered]};`,
      'float y = F32_NAN;',
      `if (index >= 0 && index < ${sizes[gathered]}) {`,
      '  const u64 at = (u64)index;',
      `  const u64 place = ${weightedSum(inData, stridesOf(sizes))};`,
      `  const u64 block = ${weightedSum(blockPlaces, stridesOf(scales.shape))};`,
      `  y = (float)(${unpack('data', 'place')} - (${zero})) * ${of.scales.at('block')};`,
      '}',
      of.output.set('i', 'y'),
    ]);
  },
};

export const blockwiseOperators: readonly Operator[] = [matmulNBits, gatherBlockQuantized];
