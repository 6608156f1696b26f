/** Operators that move no bytes: their result is their operand with another shape. */
import { Unsupported } from '../../operators/index.ts';
import { elementBytes, elements } from '../../tensor/index.ts';
import { asDeclared } from './common/inputs.ts';
import type { Emitter, Kernels } from './types.ts';

/** For operators that are always views. */
export function emitNoView(emitter: Emitter): never {
  throw new Unsupported(`'${emitter.node.proto.opType}' is no view here`);
}

const firstInput = (): number => 0;

const plain = (['Identity', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'turntable.View'] as const).map((type) => ({
  type,
  viewOf: firstInput,
  emit: emitNoView,
}));

/** At inference nothing is dropped. If the mask is used, it is all true. */
const dropout = {
  type: 'Dropout',
  viewOf: (emitter) => {
    const training = emitter.constant(2);
    if (emitter.input(2) !== undefined && (training === undefined || elements(training)[0] !== 0)) {
      throw new Unsupported('it is in training mode');
    }
    return emitter.output(1) === undefined ? 0 : undefined;
  },
  emit(emitter) {
    const input = asDeclared(emitter, emitter.required(0));
    const [output, mask] = [emitter.output(0), emitter.output(1)];
    const bytes = input.elements * elementBytes[input.datatype];
    if (output !== undefined) emitter.copy(input.buffer, output.buffer, bytes);
    if (mask !== undefined) emitter.fill(mask.buffer, 1, mask.elements);
  },
} satisfies Kernels;

export const viewOperators = [...plain, dropout] as const satisfies readonly Kernels[];
