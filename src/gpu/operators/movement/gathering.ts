/**
 * Gather, GatherElements and GatherND. A kernel cannot report an index beyond its axis, and must not read outside the
 * tensor. The result then has all bits set: NaN in every float type, and -1 in signed integers.
 */
import { Unsupported, elementOf } from '../../../operators/index.ts';
import { elementCount, elementBytes } from '../../../tensor/index.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { axisOf, coordinates, indexType, stridesOf, weightedSum } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { forEachIndex, widestWord, wordType } from '../common/launching.ts';

/** How elements are copied from `data` to `output`: in words, or one by one if `data` is kept in another type. */
interface Transfer {
  /** Elements in a word. */
  readonly perWord: number;
  readonly dataType: string;
  readonly outputType: string;
  /** C statements that write word `to` of the output: from word `from` of the data, or for an index beyond the axis. */
  readonly copy: (to: string, from: string) => string;
  readonly missing: (to: string) => string;
}

/** @param run number of adjacent elements in both tensors; the word must divide it */
function transferOf(data: Value, output: Value, run: number): Transfer {
  if (data.storedType !== data.datatype) {
    const from = elementOf(data.storedType);
    const to = elementOf(output.datatype);
    return {
      perWord: 1,
      dataType: from.stored,
      outputType: to.stored,
      copy: (target, source) => `output[${target}] = ${to.store(from.load(`data[${source}]`))};`,
      missing: (target) => `output[${target}] = ${to.store('F32_NAN')};`,
    };
  }
  const bytes = elementBytes[data.datatype];
  const offsets = [data.buffer.byteOffset, output.buffer.byteOffset, run * bytes];
  const word = widestWord(bytes, offsets);
  const missing = word === 16 ? 'Word{~0u, ~0u, ~0u, ~0u}' : `(${wordType(word)})~0ull`;
  return {
    perWord: word / bytes,
    dataType: wordType(word),
    outputType: wordType(word),
    copy: (to, from) => `output[${to}] = data[${from}];`,
    missing: (to) => `output[${to}] = ${missing};`,
  };
}

const indexTypes = ['INT64', 'INT32'] as const;

/**
 * C statements that declare `at`, the place of a tuple of indices along axes of these sizes, and whether it is
 * `inside`.
 */
export function indexedPlace(tuple: string, sizes: readonly number[], type: string, start = '0'): string[] {
  return [
    `${type} at = ${start};`,
    'bool inside = true;',
    ...sizes.flatMap((size, place) => [
      `i64 index${place} = indices[${tuple} * ${sizes.length}u + ${place}];`,
      `if (index${place} < 0) index${place} += ${size};`,
      `inside = inside && index${place} >= 0 && index${place} < ${size};`,
      `at = at * ${size}u + (${type})index${place};`,
    ]),
  ];
}

/** C statements that write word `i` of the output, by the index at `place` along an axis of `size` elements. */
const lookedUp = (transfer: Transfer, place: string, size: number, from: string): string[] => [
  `i64 at = indices[${place}];`,
  `if (at < 0) at += ${size};`,
  `if (at < 0 || at >= ${size}) ${transfer.missing('i')}`,
  `else ${transfer.copy('i', from)}`,
];

function emitGather(
  emitter: Emitter,
  hint: string,
  data: Value,
  indices: Value,
  output: Value,
  transfer: Transfer,
  lines: readonly string[],
): void {
  forEachIndex(
    emitter,
    hint,
    output.elements / transfer.perWord,
    [
      { name: 'data', type: transfer.dataType, buffer: data.buffer },
      { name: 'indices', type: elementOf(indices.datatype).stored, buffer: indices.buffer },
      { name: 'output', type: transfer.outputType, buffer: output.buffer, access: 'write' },
    ],
    lines,
  );
}

const gather = {
  type: 'Gather',
  emit(emitter) {
    const data = emitter.required(0);
    const indices = emitter.required(1, indexTypes);
    const axis = axisOf(emitter.attribute('axis', 0), data.shape.length);
    const output = requiredOutput(emitter);
    const inner = elementCount(data.shape.slice(axis + 1));
    const size = data.shape[axis]!;
    const transfer = transferOf(data, output, inner);
    const row = inner / transfer.perWord;
    const type = indexType(Math.max(data.elements, output.elements));
    const from = `((${type})(r / ${indices.elements}u) * ${size}u + (${type})at) * ${row}u + c`;
    emitGather(emitter, 'gather', data, indices, output, transfer, [
      `const auto c = i % ${row}u;`,
      `const auto r = i / ${row}u;`,
      ...lookedUp(transfer, `r % ${indices.elements}u`, size, from),
    ]);
  },
} satisfies Kernels;

const gatherElements = {
  type: 'GatherElements',
  emit(emitter) {
    const data = emitter.required(0);
    const indices = emitter.required(1, indexTypes);
    const axis = axisOf(emitter.attribute('axis', 0), data.shape.length);
    const output = requiredOutput(emitter);
    const transfer = transferOf(data, output, 1);
    const strides = stridesOf(data.shape);
    const places = coordinates('i', indices.shape);
    places[axis] = `(${indexType(data.elements)})at`;
    const lines = lookedUp(transfer, 'i', data.shape[axis]!, weightedSum(places, strides));
    emitGather(emitter, 'gather_elements', data, indices, output, transfer, lines);
  },
} satisfies Kernels;

const gatherNd = {
  type: 'GatherND',
  emit(emitter) {
    const data = emitter.required(0);
    const indices = emitter.required(1, ['INT64']);
    const batchAxes = emitter.attribute('batch_dims', 0);
    const depth = indices.shape.at(-1);
    if (depth === undefined || batchAxes + depth > data.shape.length) {
      throw new Unsupported(`its indices [${indices.shape.join(',')}] do not fit [${data.shape.join(',')}]`);
    }
    const output = requiredOutput(emitter);
    const inner = elementCount(data.shape.slice(batchAxes + depth));
    const transfer = transferOf(data, output, inner);
    const row = inner / transfer.perWord;
    const batches = elementCount(data.shape.slice(0, batchAxes));
    const tuplesPerBatch = batches === 0 || depth === 0 ? 1 : indices.elements / depth / batches;
    const sizes = data.shape.slice(batchAxes, batchAxes + depth);
    const type = indexType(Math.max(data.elements, output.elements));
    emitGather(emitter, 'gather_nd', data, indices, output, transfer, [
      `const auto c = i % ${row}u;`,
      `const auto t = i / ${row}u;`,
      ...indexedPlace('t', sizes, type, `t / ${tuplesPerBatch}u`),
      `if (!inside) ${transfer.missing('i')}`,
      `else ${transfer.copy('i', `at * ${row}u + c`)}`,
    ]);
  },
} satisfies Kernels;

export const gatheringOperators = [gather, gatherElements, gatherNd] as const satisfies readonly Kernels[];
