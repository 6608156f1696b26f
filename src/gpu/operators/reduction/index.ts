/** Reductions, ArgMax, ArgMin, TopK, running sums, and Det. */
import { Unsupported, listOf } from '../../../operators/index.ts';
import type { Emitter, Kernels } from '../types.ts';
import { determinant } from './determinant.ts';
import { orderingOperators } from './ordering.ts';
import { typedEntries } from '../../../tools/index.ts';
import { emitReduction, reductions, type Reduction } from './reducing.ts';

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
