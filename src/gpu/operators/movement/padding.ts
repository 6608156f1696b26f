/** Pad: constant, reflect, edge and wrap, where a negative padding cuts off. */
import { elementBytes } from '../../../tensor/index.ts';
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';
import { axisOf, coordinates, product, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, findAttribute, knownNumbers, listOf, requiredOutput } from '../common/inputs.ts';
import { forEachIndex, moveStrided, sideOf, wordType, type Parameter } from '../common/launching.ts';
import { floatLiteral } from '../common/element.ts';

/** Elements put before each axis of the input; those behind follow from the output's shape. */
function paddingBefore(emitter: Emitter, input: Value): number[] {
  const pads = listOf(emitter, 'pads', 1);
  if (pads === undefined) throw new Unsupported('it does not say how much to pad');
  const axes = knownNumbers(emitter, 3, 'axes') ?? input.shape.map((_, axis) => axis);
  const before = input.shape.map(() => 0);
  for (const [index, axis] of axes.entries()) before[axisOf(axis, before.length)] = pads[index] ?? 0;
  return before;
}

/** C statements that bring coordinate `c` into the axis of `size` elements, by the mode's rule. */
function inside(mode: string, c: string, size: number): string[] {
  switch (mode) {
    case 'edge':
      return [`${c} = ${c} < 0 ? 0 : ${c} >= ${size} ? ${size - 1} : ${c};`];
    case 'wrap':
      return [`${c} %= ${size};`, `if (${c} < 0) ${c} += ${size};`];
    case 'reflect': {
      const period = Math.max(1, 2 * (size - 1));
      return [`${c} = (${c} < 0 ? -${c} : ${c}) % ${period};`, `if (${c} >= ${size}) ${c} = ${period} - ${c};`];
    }
    default:
      throw new Unsupported(`its mode '${mode}' is not covered`);
  }
}

/** What is put around: an input that may be computed, an attribute of old versions, or 0. */
function paddedValue(
  emitter: Emitter,
  input: Value,
): { readonly parameters: Parameter[]; readonly expression: string } {
  const type = wordType(elementBytes[input.datatype]);
  const value = emitter.input(2);
  if (value !== undefined) {
    return {
      parameters: [{ name: 'padding', type, buffer: asDeclared(emitter, value).buffer }],
      expression: 'padding[0]',
    };
  }
  const attribute = findAttribute(emitter, 'value')?.f ?? 0;
  if (attribute === 0) return { parameters: [], expression: '0' };
  if (input.datatype !== 'FP32') throw new Unsupported(`its value ${attribute} is padded around ${input.datatype}`);
  return { parameters: [], expression: `__float_as_uint(${floatLiteral(attribute)})` };
}

function emit(emitter: Emitter): void {
  const before = paddingBefore(emitter, emitter.required(0));
  const mode = emitter.attribute('mode', 'constant');
  const output = requiredOutput(emitter);
  if (mode !== 'constant') inside(mode, 'c', 1);
  const input = asDeclared(emitter, emitter.required(0));
  const strides = stridesOf(input.shape);
  const type = wordType(elementBytes[input.datatype]);
  const cutOnly = output.shape.every((size, axis) => before[axis]! <= 0 && size <= input.shape[axis]! + before[axis]!);
  if (cutOnly) {
    const start = before.reduce((sum, pad, axis) => sum - pad * strides[axis]!, 0);
    const to = sideOf(output, stridesOf(output.shape));
    moveStrided(emitter, 'pad', output.shape, input.datatype, sideOf(input, strides, start), to);
    return;
  }
  const padded = paddedValue(emitter, input);
  const empty = product(input.shape) === 0;
  if (empty && mode !== 'constant') throw new Unsupported(`an empty tensor cannot be padded by its own elements`);
  const names = output.shape.map((_, axis) => `c${axis}`);
  const declarations = coordinates('i', output.shape).map((text, axis) =>
    `int c${axis} = (int)${text} - ${before[axis]!};`.replace('- -', '+ '),
  );
  const at = weightedSum(
    names.map((name) => `(i64)${name}`),
    strides,
  );
  // What can be beyond an end is all that is looked at: images are padded along two of four axes.
  const checked = names.filter((_, axis) => before[axis] !== 0 || output.shape[axis] !== input.shape[axis]);
  const condition = checked.map((name) => {
    const size = input.shape[Number(name.slice(1))]!;
    return `${name} >= 0 && ${name} < ${size}`;
  });
  const constant = mode === 'constant';
  forEachIndex(
    emitter,
    'pad',
    output.elements,
    [
      // An empty tensor has no bytes that a kernel could be given.
      ...(empty ? [] : [{ name: 'input', type, buffer: input.buffer }]),
      ...(constant ? padded.parameters : []),
      { name: 'output', type, buffer: output.buffer, access: 'write' },
    ],
    empty
      ? `output[i] = ${padded.expression};`
      : constant
        ? [
            ...declarations,
            `output[i] = ${condition.join(' && ') || 'true'} ? input[${at}] : (${type})${padded.expression};`,
          ].join('\n')
        : [
            ...declarations,
            ...checked.flatMap((name) => inside(mode, name, input.shape[Number(name.slice(1))]!)),
            `output[i] = input[${at}];`,
          ].join('\n'),
  );
}

export const pad: Operator = { type: 'Pad', emit };
