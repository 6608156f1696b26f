/** Calls that give inputs which the model has a value for. */
import type { ModelOpening } from '../../onnx/index.ts';
import type { Tensor } from '../../tensor/index.ts';

/**
 * Whether a call gives an optional input. It then runs alone, whole, and on a CPU: the rows of that input are not those
 * of the batch, and a GPU's program has its initializer as a constant.
 */
export const givesOptional = (inputs: readonly Tensor[], opening: ModelOpening | undefined): boolean =>
  opening !== undefined && inputs.some(({ name }) => opening.optionalInputs.includes(name));
