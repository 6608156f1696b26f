/** Checks before any work of a run is submitted. */
import type { ColdStartPlan } from '../../plan/index.ts';
import { elementCount, type Tensor } from '../../tensor/index.ts';
import { GpuError } from '../types.ts';
import type { EngineFunction } from './engine-function.ts';

/** The expected input. Strings, which do not go to the GPU, may have any length and number. */
interface ExpectedInput extends Omit<Tensor, 'shape' | 'data'> {
  readonly shape?: readonly number[] | undefined;
  readonly bytes: number;
}

/** The given tensors in the order of the inputs; `taker` names their program in errors. @throws GpuError 'invalid' */
export function matchInputs(inputs: readonly ExpectedInput[], given: readonly Tensor[], taker: string): Tensor[] {
  const unknown = given.find(({ name }) => !inputs.some((input) => input.name === name));
  if (unknown !== undefined) throw new GpuError('invalid', `'${unknown.name}' is not an input of the ${taker}`);
  return inputs.map(({ name, datatype, shape, bytes }) => {
    const tensor = given.find((candidate) => candidate.name === name);
    if (tensor === undefined) throw new GpuError('invalid', `input '${name}' is missing`);
    const isSame =
      tensor.datatype === datatype &&
      (shape === undefined ||
        (tensor.shape.length === shape.length &&
          tensor.shape.every((size, axis) => size === shape[axis]) &&
          tensor.data.byteLength === bytes));
    if (isSame) return tensor;
    const found = `${tensor.datatype} [${tensor.shape.join(',')}] with ${tensor.data.byteLength} bytes`;
    const wanted = `${datatype} [${shape?.join(',') ?? '?'}]${shape ? ` of ${elementCount(shape)} elements` : ''}`;
    throw new GpuError('invalid', `input '${name}' is ${found}, and the ${taker} takes ${wanted}`);
  });
}

/** @throws GpuError 'invalid' */
export function checkPlan(plan: ColdStartPlan, { key, layout }: EngineFunction, gpu: number): void {
  const count = layout.layers.length;
  if (plan.layers.length !== count) {
    throw new GpuError('invalid', `the plan has ${plan.layers.length} layers, and function '${key}' has ${count}`);
  }
  if (plan.primary !== gpu) {
    throw new GpuError('invalid', `the plan is for GPU ${plan.primary}, and GPU ${gpu} was asked for`);
  }
}

/** A layer that went away in the middle of a run or load: moving it has failed. */
export const layerLost = (key: string, layer: number): GpuError =>
  new GpuError('cancelled', `layer ${layer} of function '${key}' was lost when layers were moved together`);
