/**
 * ScatterElements and ScatterND: a copy of the data, then updates. Updates that may meet are made by one thread in their order, so
 * that a result never depends on which came first. An index beyond its axis changes nothing.
 */
import { elementBytes } from '../../../tensor/index.ts';
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { elementOf, requireDatatype } from '../common/element.ts';
import { axisOf, coordinates, indexType, product, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { forEachIndex } from '../common/launching.ts';

const reductions: Readonly<Record<string, (a: string, b: string) => string>> = {
  none: (_, b) => b,
  add: (a, b) => `${a} + ${b}`,
  mul: (a, b) => `${a} * ${b}`,
  max: (a, b) => `(${a} > ${b} ? ${a} : ${b})`,
  min: (a, b) => `(${a} < ${b} ? ${a} : ${b})`,
};

/** C statement that lets an update into the output. */
function updateStatement(reduction: string, output: Value, at: string, update: string): string {
  const combine = reductions[reduction];
  if (combine === undefined) throw new Unsupported(`its reduction '${reduction}' is not covered`);
  const element = elementOf(output.datatype);
  if (reduction === 'none') return `output[${at}] = ${update};`;
  const result = combine(element.load(`output[${at}]`), element.load(update));
  return `output[${at}] = ${element.store(`(${element.computed})(${result})`)};`;
}

function copyWhole(emitter: Emitter, data: Value, output: Value): void {
  if (data.buffer.id === output.buffer.id && data.buffer.byteOffset === output.buffer.byteOffset) return;
  const bytes = data.elements * elementBytes[data.datatype];
  if (bytes > 0) emitter.copy(data.buffer, output.buffer, bytes);
}

function emitScatterElements(emitter: Emitter): void {
  const indices = emitter.required(1);
  requireDatatype(indices, ['INT64', 'INT32']);
  const output = requiredOutput(emitter);
  const axis = axisOf(emitter.attribute('axis', 0), output.shape.length);
  const strides = stridesOf(output.shape);
  const stepIndex = stridesOf(indices.shape)[axis] ?? 1;
  const length = indices.shape[axis] ?? 1;
  const size = output.shape[axis] ?? 1;
  // A thread for each line of indices along the axis: updates in different lines cannot meet.
  const lineSizes = indices.shape.map((own, place) => (place === axis ? 1 : own));
  const places = coordinates('i', lineSizes);
  const type = indexType(Math.max(output.elements, indices.elements));
  const line = weightedSum(places, strides);
  const statement = updateStatement(
    emitter.attribute('reduction', 'none'),
    output,
    `line + (${type})at * ${strides[axis] ?? 1}u`,
    `updates[from]`,
  );
  const data = asDeclared(emitter, emitter.required(0));
  const updates = asDeclared(emitter, emitter.required(2));
  copyWhole(emitter, data, output);
  const element = elementOf(output.datatype);
  forEachIndex(
    emitter,
    'scatter_elements',
    indices.elements === 0 ? 0 : product(lineSizes),
    [
      { name: 'indices', type: elementOf(indices.datatype).stored, buffer: indices.buffer },
      { name: 'updates', type: element.stored, buffer: updates.buffer },
      { name: 'output', type: element.stored, buffer: output.buffer, access: 'read-write' },
    ],
    [
      `const ${type} line = ${line};`,
      `${type} from = ${weightedSum(places, stridesOf(indices.shape))};`,
      `for (int step = 0; step < ${length}; step++, from += ${stepIndex}u) {`,
      '  i64 at = indices[from];',
      `  if (at < 0) at += ${size};`,
      `  if (at >= 0 && at < ${size}) ${statement}`,
      '}',
    ].join('\n'),
  );
}

function emitScatterNd(emitter: Emitter): void {
  const indices = emitter.required(1);
  requireDatatype(indices, ['INT64']);
  const output = requiredOutput(emitter);
  const depth = indices.shape.at(-1);
  if (depth === undefined || depth > output.shape.length) {
    throw new Unsupported(`its indices [${indices.shape.join(',')}] do not fit [${output.shape.join(',')}]`);
  }
  const tuples = product(indices.shape.slice(0, -1));
  const inner = product(output.shape.slice(depth));
  const type = indexType(Math.max(output.elements, tuples * inner));
  const reduction = emitter.attribute('reduction', 'none');
  const statement = updateStatement(reduction, output, `at * ${inner}u + c`, `updates[(${type})t * ${inner}u + c]`);
  const data = asDeclared(emitter, emitter.required(0));
  const updates = asDeclared(emitter, emitter.required(2));
  copyWhole(emitter, data, output);
  const element = elementOf(output.datatype);
  const one = [
    `${type} at = 0;`,
    'bool inside = true;',
    ...output.shape
      .slice(0, depth)
      .flatMap((size, place) => [
        `i64 index${place} = indices[t * ${depth}u + ${place}];`,
        `if (index${place} < 0) index${place} += ${size};`,
        `inside = inside && index${place} >= 0 && index${place} < ${size};`,
        `at = at * ${size}u + (${type})index${place};`,
      ]),
    `if (inside) ${statement}`,
  ];
  // Without a reduction the standard forbids equal indices, so all updates can be made at once. With one, they are added up in order.
  const apart = reduction === 'none';
  forEachIndex(
    emitter,
    'scatter_nd',
    apart ? tuples * inner : tuples === 0 ? 0 : inner,
    [
      { name: 'indices', type: 'i64', buffer: indices.buffer },
      { name: 'updates', type: element.stored, buffer: updates.buffer },
      { name: 'output', type: element.stored, buffer: output.buffer, access: 'read-write' },
    ],
    apart
      ? [`const auto t = i / ${inner}u;`, `const auto c = i % ${inner}u;`, ...one].join('\n')
      : ['const auto c = i;', `for (u32 t = 0; t < ${tuples}u; t++) {`, ...one.map((text) => `  ${text}`), '}'].join(
          '\n',
        ),
  );
}

export const scatteringOperators: readonly Operator[] = [
  { type: 'ScatterElements', emit: emitScatterElements },
  { type: 'ScatterND', emit: emitScatterNd },
];
