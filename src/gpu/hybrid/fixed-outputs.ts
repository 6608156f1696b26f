/** Outputs that do not depend on the inputs: weights, and values that folding has made constants. */
import { dataTypeOf, tensorBytes } from '../../onnx/index.ts';
import { packBytes, type Tensor } from '../../tensor/index.ts';
import type { PreparedGraph } from '../program/prepared.ts';
import { GpuError } from '../types.ts';
import { initializersOf } from './submodel.ts';

/** @throws GpuError 'invalid' for an output whose element type has no datatype */
export function fixedOutputs(prepared: PreparedGraph): Tensor[] {
  const initializers = initializersOf(prepared);
  const given = new Set(prepared.inputs);
  return prepared.outputs.flatMap((name): Tensor[] => {
    const tensor = given.has(name) ? undefined : initializers(name)?.tensor;
    if (tensor === undefined) return [];
    const datatype = dataTypeOf(tensor.dataType);
    if (datatype === undefined) throw new GpuError('invalid', `the element type of '${name}' is not known`);
    const data = datatype === 'BYTES' ? packBytes(tensor.stringData ?? []) : tensorBytes(tensor);
    return [{ name, datatype, shape: tensor.dims.map(Number), data }];
  });
}
