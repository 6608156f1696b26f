/** What is made rather than moved: Range, ConstantOfShape, OneHot; and Trilu, which keeps one side of a diagonal. */
import { elementBytes, elements } from '../../../tensor/index.ts';
import { elementTypeOf } from '../../../onnx/index.ts';
import { Unsupported, type Emitter, type Operator } from '../types.ts';
import { elementOf, numbers, requireDatatype } from '../common/element.ts';
import { axisOf, product } from '../common/indexing.ts';
import { asDeclared, findAttribute, requiredOutput } from '../common/inputs.ts';
import { forEachIndex, wordType, type Parameter } from '../common/launching.ts';

const trilu: Operator = {
  type: 'Trilu',
  emit(emitter) {
    const input = asDeclared(emitter, emitter.required(0));
    const output = requiredOutput(emitter);
    const rows = input.shape.at(-2);
    const columns = input.shape.at(-1);
    if (rows === undefined || columns === undefined) throw new Unsupported(`'${input.name}' is not a matrix`);
    const type = wordType(elementBytes[input.datatype]);
    const diagonal = diagonalOf(emitter);
    const kept = emitter.attribute('upper', 1) === 1 ? '>=' : '<=';
    forEachIndex(
      emitter,
      'trilu',
      output.elements,
      [
        { name: 'input', type, buffer: input.buffer },
        ...diagonal.parameters,
        { name: 'output', type, buffer: output.buffer, access: 'write' },
      ],
      [
        `const i64 column = i % ${columns}u;`,
        `const i64 row = i / ${columns}u % ${rows}u;`,
        `output[i] = column - row ${kept} ${diagonal.expression} ? input[i] : (${type})0;`,
      ].join('\n'),
    );
  },
};

function diagonalOf(emitter: Emitter): { readonly parameters: Parameter[]; readonly expression: string } {
  const value = emitter.input(1);
  if (value === undefined) return { parameters: [], expression: '0' };
  requireDatatype(value, ['INT64']);
  const known = emitter.constant(1);
  if (known !== undefined) return { parameters: [], expression: `(${Number(elements(known)[0])})` };
  return { parameters: [{ name: 'diagonal', type: 'i64', buffer: value.buffer }], expression: 'diagonal[0]' };
}

const range: Operator = {
  type: 'Range',
  emit(emitter) {
    const start = emitter.required(0);
    const step = emitter.required(2);
    requireDatatype(start, ['FP32', 'FP64', 'INT16', 'INT32', 'INT64']);
    const output = requiredOutput(emitter);
    const { stored, computed } = elementOf(start.datatype);
    forEachIndex(
      emitter,
      'range',
      output.elements,
      [
        { name: 'start', type: stored, buffer: start.buffer },
        { name: 'step', type: stored, buffer: step.buffer },
        { name: 'output', type: stored, buffer: output.buffer, access: 'write' },
      ],
      `output[i] = (${stored})(start[0] + (${computed})i * step[0]);`,
    );
  },
};

/** The bits of the element that fills a tensor: the attribute `value`, or a float's 0. */
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

const constantOfShape: Operator = {
  type: 'ConstantOfShape',
  emit(emitter) {
    const output = requiredOutput(emitter);
    const bits = fillOf(emitter);
    const type = wordType(elementBytes[output.datatype]);
    if (output.elements === 0) return;
    const first = Number(bits & 0xffn);
    const bytes = Array.from({ length: elementBytes[output.datatype] }, (_, place) =>
      Number((bits >> BigInt(8 * place)) & 0xffn),
    );
    if (bytes.every((byte) => byte === first)) {
      emitter.fill(output.buffer, first, output.elements * elementBytes[output.datatype]);
      return;
    }
    const parameters: Parameter[] = [{ name: 'output', type, buffer: output.buffer, access: 'write' }];
    forEachIndex(emitter, 'constant_of_shape', output.elements, parameters, `output[i] = (${type})${bits}ull;`);
  },
};

const oneHot: Operator = {
  type: 'OneHot',
  emit(emitter) {
    const indices = emitter.required(0);
    requireDatatype(indices, numbers);
    const values = asDeclared(emitter, emitter.required(2));
    const output = requiredOutput(emitter);
    const axis = axisOf(emitter.attribute('axis', -1), output.shape.length);
    const depth = output.shape[axis]!;
    const inner = product(output.shape.slice(axis + 1));
    const type = wordType(elementBytes[output.datatype]);
    const index = elementOf(indices.datatype);
    forEachIndex(
      emitter,
      'one_hot',
      output.elements,
      [
        { name: 'indices', type: index.stored, buffer: indices.buffer },
        { name: 'values', type, buffer: values.buffer },
        { name: 'output', type, buffer: output.buffer, access: 'write' },
      ],
      [
        `const i64 place = i / ${inner}u % ${depth}u;`,
        `i64 hot = (i64)${index.load(`indices[i / ${inner * depth}u * ${inner}u + i % ${inner}u]`)};`,
        `if (hot < 0) hot += ${depth};`,
        'output[i] = values[place == hot ? 1 : 0];',
      ].join('\n'),
    );
  },
};

export const fillingOperators: readonly Operator[] = [trilu, range, constantOfShape, oneHot];
