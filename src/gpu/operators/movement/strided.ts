/** Operators that are one strided copy, Slice and Expand, and Pad, which is one if it only cuts. */
import type { Kernels, Emitter, Value } from '../types.ts';
import {
  sliceRange,
  Unsupported,
  knownNumbers,
  listOf,
  findAttribute,
  floatLiteral,
} from '../../../operators/index.ts';
import { axisOf, broadcastStrides, stridesOf, coordinates, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { moveStrided, sideOf } from '../common/launching.ts';
import { elementCount } from '../../../tensor/index.ts';
import { forEachElement, written, asBits } from '../common/elements.ts';

const slice = {
  type: 'Slice',
  emit(emitter) {
    const given = emitter.required(0);
    const starts = listOf(emitter, 'starts', 1);
    const ends = listOf(emitter, 'ends', 2);
    if (starts === undefined || ends === undefined) throw new Unsupported('it has no starts or no ends');
    const axes = listOf(emitter, 'axes', 3) ?? starts.map((_, axis) => axis);
    const steps = knownNumbers(emitter, 4, 'steps') ?? starts.map(() => 1);
    if (steps.includes(0)) throw new Unsupported('a step of its slice is 0');
    const input = asDeclared(emitter, given);
    const output = requiredOutput(emitter);
    const strides = stridesOf(input.shape);
    const walk = [...strides];
    let start = 0;
    for (const [index, named] of axes.entries()) {
      const axis = axisOf(named, input.shape.length);
      const { from } = sliceRange(input.shape[axis]!, starts[index]!, ends[index]!, steps[index]!);
      start += from * strides[axis]!;
      walk[axis] = steps[index]! * strides[axis]!;
    }
    const to = sideOf(output, stridesOf(output.shape));
    moveStrided(emitter, 'slice', output.shape, input.datatype, sideOf(input, walk, start), to);
  },
} satisfies Kernels;

const expand = {
  type: 'Expand',
  emit(emitter) {
    const input = asDeclared(emitter, emitter.required(0));
    const output = requiredOutput(emitter);
    const from = sideOf(input, broadcastStrides(input.shape, output.shape));
    moveStrided(emitter, 'expand', output.shape, input.datatype, from, sideOf(output, stridesOf(output.shape)));
  },
} satisfies Kernels;

/** Padding before each axis of the input; padding behind follows from the output's shape. */
function paddingBefore(emitter: Emitter, input: Value): number[] {
  const pads = listOf(emitter, 'pads', 1);
  if (pads === undefined) throw new Unsupported('it does not say how much to pad');
  const axes = knownNumbers(emitter, 3, 'axes') ?? input.shape.map((_, axis) => axis);
  const before = input.shape.map(() => 0);
  for (const [index, axis] of axes.entries()) before[axisOf(axis, before.length)] = pads[index] ?? 0;
  return before;
}

/** C statements that map coordinate `c` into an axis of `size` elements, by the mode's rule. */
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

/** The padding value from the attribute of old versions, as a C expression of its bits. */
function namedPadding(emitter: Emitter, input: Value): string {
  const attribute = findAttribute(emitter, 'value')?.f ?? 0;
  if (attribute === 0) return '0';
  if (input.datatype !== 'FP32') throw new Unsupported(`its value ${attribute} is padded around ${input.datatype}`);
  return `__float_as_uint(${floatLiteral(attribute)})`;
}

/** Constant, reflect, edge and wrap. Negative padding removes elements. */
function emitPad(emitter: Emitter): void {
  const before = paddingBefore(emitter, emitter.required(0));
  const mode = emitter.attribute('mode', 'constant');
  const output = requiredOutput(emitter);
  if (mode !== 'constant') inside(mode, 'c', 1);
  const input = asDeclared(emitter, emitter.required(0));
  const strides = stridesOf(input.shape);
  const cutOnly = output.shape.every((size, axis) => before[axis]! <= 0 && size <= input.shape[axis]! + before[axis]!);
  if (cutOnly) {
    const start = before.reduce((sum, pad, axis) => sum - pad * strides[axis]!, 0);
    const to = sideOf(output, stridesOf(output.shape));
    moveStrided(emitter, 'pad', output.shape, input.datatype, sideOf(input, strides, start), to);
    return;
  }
  const empty = elementCount(input.shape) === 0;
  if (empty && mode !== 'constant') throw new Unsupported(`an empty tensor cannot be padded by its own elements`);
  const names = output.shape.map((_, axis) => `c${axis}`);
  const declarations = coordinates('i', output.shape).map((text, axis) =>
    `int c${axis} = (int)${text} - ${before[axis]!};`.replace('- -', '+ '),
  );
  const at = weightedSum(
    names.map((name) => `(i64)${name}`),
    strides,
  );
  // Only padded axes are checked: images are padded along two of four.
  const checked = names.filter((_, axis) => before[axis] !== 0 || output.shape[axis] !== input.shape[axis]);
  const condition = checked.map((name) => {
    const size = input.shape[Number(name.slice(1))]!;
    return `${name} >= 0 && ${name} < ${size}`;
  });
  const constant = mode === 'constant';
  const value = constant ? emitter.input(2) : undefined;
  const tensors = {
    // An empty input has no buffer to pass to a kernel.
    input: empty ? undefined : asBits(input),
    padding: value && asBits(asDeclared(emitter, value)),
    output: asBits(written(output)),
  };
  forEachElement(emitter, 'pad', output.elements, tensors, (of) => {
    const padding = of.padding?.at('0') ?? (constant ? namedPadding(emitter, input) : '0');
    if (of.input === undefined) return of.output.set('i', padding);
    const element = of.input.at(at);
    if (!constant) {
      const moved = checked.flatMap((name) => inside(mode, name, input.shape[Number(name.slice(1))]!));
      return [...declarations, ...moved, of.output.set('i', element)];
    }
    const isInside = condition.join(' && ') || 'true';
    return [...declarations, of.output.set('i', `${isInside} ? ${element} : (${of.input.stored})${padding}`)];
  });
}

export const stridedOperators = [slice, expand, { type: 'Pad', emit: emitPad }] as const satisfies readonly Kernels[];
