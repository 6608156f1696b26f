/** Reductions, ArgMax, ArgMin, TopK, running sums, and Det. */
import { Unsupported, listOf, floats } from '../../../operators/index.ts';
import type { Emitter, Kernels } from '../types.ts';
import { orderingOperators } from './ordering.ts';
import { typedEntries } from '../../../tools/index.ts';
import { emitReduction, reductions, type Reduction } from './reducing.ts';
import { elementBytes } from '../../../tensor/index.ts';
import { forEachElement, written } from '../common/elements.ts';
import { requiredOutput } from '../common/inputs.ts';

/** Gaussian elimination on a copy of each matrix, a thread for each matrix. */
const determinant = {
  type: 'Det',
  emit(emitter) {
    const given = emitter.required(0, floats);
    const size = given.shape.at(-1);
    if (size === undefined || given.shape.at(-2) !== size) {
      throw new Unsupported(`'${given.name}' of shape [${given.shape.join(',')}] is not made of square matrices`);
    }
    const output = requiredOutput(emitter);
    const storedType = given.datatype === 'FP64' ? 'FP64' : 'FP32';
    const copy = emitter.scratch(Math.max(1, given.elements) * elementBytes[storedType]);
    const tensors = { input: given, copy: written({ buffer: copy, storedType }), output: written(output) };
    forEachElement(
      emitter,
      'determinant',
      output.elements,
      tensors,
      ({ input, copy: { stored: type }, output: to }) => [
        `${type} *m = copy + (u64)i * ${size * size};`,
        `for (int at = 0; at < ${size * size}; at++) m[at] = ${input.at(`(u64)i * ${size * size} + at`)};`,
        `${type} determinant = 1;`,
        `for (int step = 0; step < ${size}; step++) {`,
        '  int pivot = step;',
        `  for (int row = step + 1; row < ${size}; row++) {`,
        `    if (fabs((double)m[row * ${size} + step]) > fabs((double)m[pivot * ${size} + step])) pivot = row;`,
        '  }',
        `  const ${type} divisor = m[pivot * ${size} + step];`,
        '  determinant *= pivot == step ? divisor : -divisor;',
        '  if (divisor == 0) break;',
        '  if (pivot != step) {',
        `    for (int column = step; column < ${size}; column++) {`,
        `      const ${type} moved = m[step * ${size} + column];`,
        `      m[step * ${size} + column] = m[pivot * ${size} + column];`,
        `      m[pivot * ${size} + column] = moved;`,
        '    }',
        '  }',
        `  for (int row = step + 1; row < ${size}; row++) {`,
        `    const ${type} factor = m[row * ${size} + step] / divisor;`,
        `    for (int column = step; column < ${size}; column++) m[row * ${size} + column] -= factor * m[step * ${size} + column];`,
        '  }',
        '}',
        to.set('i', 'determinant'),
      ],
    );
  },
} satisfies Kernels;

/** The axes to reduce. If none are named, all, or none with `noop_with_empty_axes`. */
function axesOf(emitter: Emitter): readonly number[] {
  const axes = listOf(emitter, 'axes', 1) ?? [];
  if (axes.length > 0) return axes;
  return emitter.attribute('noop_with_empty_axes', 0) === 1 ? [] : emitter.required(0).shape.map((_, axis) => axis);
}

const reducing = typedEntries<keyof typeof reductions, Reduction>(reductions).map(([type, reduction]) => ({
  type,
  emit: (emitter: Emitter) => {
    const input = emitter.required(0);
    const axes = axesOf(emitter);
    // ONNX Runtime does not reduce such axes of an empty tensor, though its inference says so.
    if (input.elements === 0 && axes.some((axis) => axis < 0))
      throw new Unsupported(
        'ONNX Runtime makes another shape than it infers of no elements, along axes counted from the end',
      );
    emitReduction(emitter, type.toLowerCase(), reduction, input, axes);
  },
}));

export const reductionOperators = [
  ...reducing,
  ...orderingOperators,
  determinant,
] as const satisfies readonly Kernels[];
