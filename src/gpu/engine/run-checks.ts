/** What is refused before anything of a run is submitted. */
import type { ColdStartPlan } from '../../plan/index.ts';
import { elementCount, type Tensor } from '../../tensor/index.ts';
import type { Program } from '../program/types.ts';
import { GpuError } from '../types.ts';
import type { EngineFunction } from './engine-function.ts';

/** The given tensors in the order of the program's inputs. @throws GpuError 'invalid' */
export function matchInputs(
  program: Program,
  given: readonly Tensor[],
  arriving: ReadonlySet<string>,
): (Tensor | null)[] {
  const unknown = given.find(({ name }) => !program.inputs.some((input) => input.name === name));
  if (unknown !== undefined) throw new GpuError('invalid', `'${unknown.name}' is not an input of the program`);
  return program.inputs.map(({ name, datatype, shape, bytes }) => {
    if (arriving.has(name)) return null;
    const tensor = given.find((candidate) => candidate.name === name);
    if (tensor === undefined) throw new GpuError('invalid', `input '${name}' is missing`);
    const isSame =
      tensor.datatype === datatype &&
      tensor.shape.length === shape.length &&
      tensor.shape.every((size, axis) => size === shape[axis]) &&
      tensor.data.byteLength === bytes;
    if (!isSame) {
      throw new GpuError(
        'invalid',
        `input '${name}' is ${tensor.datatype} [${tensor.shape.join(',')}] with ${tensor.data.byteLength} bytes, and the program takes ${datatype} [${shape.join(',')}] of ${elementCount(shape)} elements`,
      );
    }
    return tensor;
  });
}

/** @throws GpuError 'invalid' */
export function checkPlan(plan: ColdStartPlan, { key, weights }: EngineFunction, gpu: number): void {
  const count = weights.layout.layers.length;
  if (plan.layers.length !== count) {
    throw new GpuError('invalid', `the plan has ${plan.layers.length} layers, and function '${key}' has ${count}`);
  }
  if (plan.primary !== gpu) {
    throw new GpuError('invalid', `the plan is for GPU ${plan.primary}, and GPU ${gpu} was asked for`);
  }
}
