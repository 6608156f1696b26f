/** Operators that move no bytes: their result is their operand with another shape. */
import { Unsupported } from '../../operators/index.ts';
import type { Emitter, Kernels } from './types.ts';

/** For operators that are always views. */
export function emitNoView(emitter: Emitter): never {
  throw new Unsupported(`'${emitter.node.proto.opType}' is no view here`);
}

export const viewOperators = (
  ['Identity', 'Reshape', 'Flatten', 'Squeeze', 'Unsqueeze', 'turntable.View'] as const
).map((type) => ({ type, viewOf: () => 0, emit: emitNoView })) satisfies readonly Kernels[];
