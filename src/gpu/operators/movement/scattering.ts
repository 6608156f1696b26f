/**
 * ScatterElements, ScatterND and TensorScatter: copy the data, then apply updates. One thread applies all updates that
 * may have the same target, in order, so that results are deterministic. An index beyond its axis is ignored.
 */
import { Unsupported } from '../../../operators/index.ts';
import { elementCount, elementBytes } from '../../../tensor/index.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { asBits, changed, forEachElement, type Elements } from '../common/elements.ts';
import { axisOf, coordinates, indexType, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { indexedPlace } from './gathering.ts';

const reductions: Readonly<Record<string, (a: string, b: string) => string>> = {
  none: (_, b) => b,
  add: (a, b) => `${a} + ${b}`,
  mul: (a, b) => `${a} * ${b}`,
  max: (a, b) => `(${a} > ${b} ? ${a} : ${b})`,
  min: (a, b) => `(${a} < ${b} ? ${a} : ${b})`,
};

/** C statement that applies an update to the output. */
function updateStatement(reduction: string, output: Elements, at: string, update: string): string {
  return output.set(at, `(${output.computed})(${combinationOf(reduction)(output.at(at), update)})`);
}

function combinationOf(reduction: string): (a: string, b: string) => string {
  const combine = reductions[reduction];
  if (combine === undefined) throw new Unsupported(`its reduction '${reduction}' is not covered`);
  return combine;
}

function copyWhole(emitter: Emitter, data: Value, output: Value): void {
  if (data.buffer.id === output.buffer.id && data.buffer.byteOffset === output.buffer.byteOffset) return;
  const bytes = data.elements * elementBytes[data.datatype];
  if (bytes > 0) emitter.copy(data.buffer, output.buffer, bytes);
}

function emitScatterElements(emitter: Emitter): void {
  const indices = emitter.required(1, ['INT64', 'INT32']);
  const output = requiredOutput(emitter);
  const axis = axisOf(emitter.attribute('axis', 0), output.shape.length);
  const strides = stridesOf(output.shape);
  const stepIndex = stridesOf(indices.shape)[axis] ?? 1;
  const length = indices.shape[axis] ?? 1;
  const size = output.shape[axis] ?? 1;
  // A thread for each line of indices along the axis: updates of different lines have different targets.
  const lineSizes = indices.shape.map((own, place) => (place === axis ? 1 : own));
  const places = coordinates('i', lineSizes);
  const type = indexType(Math.max(output.elements, indices.elements));
  const line = weightedSum(places, strides);
  const reduction = emitter.attribute('reduction', 'none');
  combinationOf(reduction);
  const updates = emitter.required(2);
  copyWhole(emitter, asDeclared(emitter, emitter.required(0)), output);
  const count = indices.elements === 0 ? 0 : elementCount(lineSizes);
  forEachElement(emitter, 'scatter_elements', count, { indices, updates, output: changed(output) }, (of) => [
    `const ${type} line = ${line};`,
    `${type} from = ${weightedSum(places, stridesOf(indices.shape))};`,
    `for (int step = 0; step < ${length}; step++, from += ${stepIndex}u) {`,
    '  i64 at = indices[from];',
    `  if (at < 0) at += ${size};`,
    `  if (at >= 0 && at < ${size}) ${updateStatement(reduction, of.output, `line + (${type})at * ${strides[axis] ?? 1}u`, of.updates.at('from'))}`,
    '}',
  ]);
}

function emitScatterNd(emitter: Emitter): void {
  const indices = emitter.required(1, ['INT64']);
  const output = requiredOutput(emitter);
  const depth = indices.shape.at(-1);
  if (depth === undefined || depth > output.shape.length) {
    throw new Unsupported(`its indices [${indices.shape.join(',')}] do not fit [${output.shape.join(',')}]`);
  }
  const tuples = elementCount(indices.shape.slice(0, -1));
  const inner = elementCount(output.shape.slice(depth));
  const type = indexType(Math.max(output.elements, tuples * inner));
  const reduction = emitter.attribute('reduction', 'none');
  combinationOf(reduction);
  const updates = emitter.required(2);
  copyWhole(emitter, asDeclared(emitter, emitter.required(0)), output);
  // Without a reduction the standard forbids equal indices, so all updates can run at once. With one they are applied
  // in order.
  const apart = reduction === 'none';
  const count = apart ? tuples * inner : tuples === 0 ? 0 : inner;
  forEachElement(emitter, 'scatter_nd', count, { indices, updates, output: changed(output) }, (of) => [
    ...(apart
      ? [`const auto t = i / ${inner}u;`, `const auto c = i % ${inner}u;`]
      : ['const auto c = i;', `for (u32 t = 0; t < ${tuples}u; t++) {`]),
    ...indexedPlace('t', output.shape.slice(0, depth), type),
    `if (inside) ${updateStatement(reduction, of.output, `at * ${inner}u + c`, of.updates.at(`(${type})t * ${inner}u + c`))}`,
    apart ? '' : '}',
  ]);
}

/** TensorScatter: writes new rows into a cache, at an index for each batch item. */
function emitTensorScatter(emitter: Emitter): void {
  const output = requiredOutput(emitter);
  const axis = axisOf(emitter.attribute('axis', -2), output.shape.length);
  if (axis === 0) throw new Unsupported('its axis is the one of the batch');
  const circular = emitter.attribute<string>('mode', 'linear') === 'circular';
  const data = asDeclared(emitter, emitter.required(0));
  const updates = asDeclared(emitter, emitter.required(1));
  const starts = emitter.input(2);
  copyWhole(emitter, data, output);
  const size = output.shape[axis]!;
  const inner = elementCount(output.shape.slice(axis + 1));
  const rows = updates.shape[axis]!;
  const perItem = elementCount(updates.shape.slice(1));
  const tensors = { updates: asBits(updates), starts, output: asBits(changed(output)) };
  forEachElement(emitter, 'tensor_scatter', updates.elements, tensors, (of) => [
    `i64 at = (i64)(i / ${inner}u % ${rows}u)${of.starts === undefined ? '' : ` + ${of.starts.at(`i / ${perItem}u`)}`};`,
    ...(circular ? [`at %= ${size};`, `if (at < 0) at += ${size};`] : []),
    `if (at >= 0 && at < ${size}) ${of.output.set(`((u64)(i / ${inner * rows}u) * ${size} + at) * ${inner} + i % ${inner}u`, of.updates.at('i'))}`,
  ]);
}

export const scatteringOperators = [
  { type: 'TensorScatter', emit: emitTensorScatter },
  { type: 'Scatter', emit: emitScatterElements },
  { type: 'ScatterElements', emit: emitScatterElements },
  { type: 'ScatterND', emit: emitScatterNd },
] as const satisfies readonly Kernels[];
