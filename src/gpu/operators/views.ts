/** Operators that move no bytes: their result is their operand with another shape or type. */
import { Unsupported } from '../../operators/index.ts';
import type { Emitter, Kernels } from './types.ts';

function emit(emitter: Emitter): never {
  throw new Unsupported(`'${emitter.node.proto.opType}' is no view here`);
}

/** The same bytes as another type of the same width. */
const bitCast = {
  type: 'BitCast',
  viewOf: (emitter) => {
    const { datatype, storedType } = emitter.required(0);
    if (storedType !== datatype) throw new Unsupported('its input is a weight in another type');
    return 0;
  },
  emit,
} satisfies Kernels;

const reshaping = (['Identity', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'turntable.View'] as const).map(
  (type) => ({ type, viewOf: () => 0, emit }),
);

export const viewOperators = [...reshaping, bitCast] as const satisfies readonly Kernels[];
