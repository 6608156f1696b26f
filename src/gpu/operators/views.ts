/** Operators that move nothing: their result is their operand's bytes, under another shape. */
import { elements } from '../../tensor/index.ts';
import { Unsupported, type Emitter, type Operator } from './types.ts';

function never(emitter: Emitter): never {
  throw new Unsupported(`'${emitter.node.proto.opType}' is no view here`);
}

const firstInput = (): number => 0;

const plain = ['Identity', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'turntable.View'].map((type): Operator => ({
  type,
  viewOf: firstInput,
  emit: never,
}));

/** Nothing is dropped when a model is run; the mask of what would be is not made. */
const dropout: Operator = {
  type: 'Dropout',
  viewOf: (emitter) => {
    const training = emitter.constant(2);
    if (emitter.input(2) !== undefined && (training === undefined || elements(training)[0] !== 0)) {
      throw new Unsupported('it is in training mode');
    }
    if (emitter.output(1) !== undefined) throw new Unsupported('its mask is used');
    return 0;
  },
  emit: never,
};

export const viewOperators: readonly Operator[] = [...plain, dropout];
