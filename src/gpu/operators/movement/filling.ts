/** Range, ConstantOfShape, OneHot and Trilu. */
import { elementBytes } from '../../../tensor/index.ts';
import { elementTypeOf } from '../../../onnx/index.ts';
import { type Emitter, type Kernels, Unsupported } from '../types.ts';
import { numbers, requireDatatype } from '../common/element.ts';
import { axisOf, product } from '../common/indexing.ts';
import { asDeclared, findAttribute, requiredOutput } from '../common/inputs.ts';
import { forEachElement, written, asBits } from '../common/elements.ts';

const trilu = {
  type: 'Trilu',
  emit(emitter) {
    const input = asDeclared(emitter, emitter.required(0));
    const output = requiredOutput(emitter);
    const rows = input.shape.at(-2);
    const columns = input.shape.at(-1);
    if (rows === undefined || columns === undefined) throw new Unsupported(`'${input.name}' is not a matrix`);
    const kept = emitter.attribute('upper', 1) === 1 ? '>=' : '<=';
    const diagonal = emitter.input(1);
    if (diagonal !== undefined) requireDatatype(diagonal, ['INT64']);
    const tensors = { input: asBits(input), diagonal, output: asBits(written(output)) };
    forEachElement(emitter, 'trilu', output.elements, tensors, (of) => [
      `const i64 column = i % ${columns}u;`,
      `const i64 row = i / ${columns}u % ${rows}u;`,
      of.output.set(
        'i',
        `column - row ${kept} ${of.diagonal?.at('0') ?? '0'} ? ${of.input.at('i')} : (${of.input.stored})0`,
      ),
    ]);
  },
} satisfies Kernels;

const range = {
  type: 'Range',
  emit(emitter) {
    const start = emitter.required(0, ['FP32', 'FP64', 'INT16', 'INT32', 'INT64']);
    const step = emitter.required(2);
    const output = requiredOutput(emitter);
    forEachElement(emitter, 'range', output.elements, { start, step, output: written(output) }, (of) =>
      of.output.set('i', `(${of.start.stored})(${of.start.at('0')} + (${of.start.computed})i * ${of.step.at('0')})`),
    );
  },
} satisfies Kernels;

/** The bits of the element that fills a tensor: the attribute `value`, by default 0. */
function fillOf(emitter: Emitter): bigint {
  const tensor = findAttribute(emitter, 'value')?.t;
  if (tensor === undefined) return 0n;
  const output = requiredOutput(emitter);
  if (tensor.dataType !== elementTypeOf(output.datatype))
    throw new Unsupported('its value has another type than its output');
  const bytes = elementBytes[output.datatype];
  const data = tensor.rawData ?? new Uint8Array();
  if (data.byteLength !== bytes) throw new Unsupported('its value is not stored as raw bytes of one element');
  let bits = 0n;
  for (let place = bytes - 1; place >= 0; place--) bits = (bits << 8n) | BigInt(data[place]!);
  return bits;
}

const constantOfShape = {
  type: 'ConstantOfShape',
  emit(emitter) {
    const output = requiredOutput(emitter);
    const bits = fillOf(emitter);
    if (output.elements === 0) return;
    const first = Number(bits & 0xffn);
    const bytes = Array.from({ length: elementBytes[output.datatype] }, (_, place) =>
      Number((bits >> BigInt(8 * place)) & 0xffn),
    );
    if (bytes.every((byte) => byte === first)) {
      emitter.fill(output.buffer, first, output.elements * elementBytes[output.datatype]);
      return;
    }
    forEachElement(emitter, 'constant_of_shape', output.elements, { output: asBits(written(output)) }, (of) =>
      of.output.set('i', `(${of.output.stored})${bits}ull`),
    );
  },
} satisfies Kernels;

const oneHot = {
  type: 'OneHot',
  emit(emitter) {
    const indices = emitter.required(0, numbers);
    const values = asDeclared(emitter, emitter.required(2));
    const output = requiredOutput(emitter);
    const axis = axisOf(emitter.attribute('axis', -1), output.shape.length);
    const depth = output.shape[axis]!;
    const inner = product(output.shape.slice(axis + 1));
    const tensors = { indices, values: asBits(values), output: asBits(written(output)) };
    forEachElement(emitter, 'one_hot', output.elements, tensors, (of) => [
      `const i64 place = i / ${inner}u % ${depth}u;`,
      `i64 hot = (i64)${of.indices.at(`i / ${inner * depth}u * ${inner}u + i % ${inner}u`)};`,
      `if (hot < 0) hot += ${depth};`,
      of.output.set('i', of.values.at('place == hot ? 1 : 0')),
    ]);
  },
} satisfies Kernels;

export const fillingOperators = [trilu, range, constantOfShape, oneHot] as const satisfies readonly Kernels[];
