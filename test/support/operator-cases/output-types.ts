/** Element types of a case's outputs, as a reader of the model infers them. */
import { dataTypeOf, elementTypeOf, nodeProto, type ValueType } from '../../../src/onnx/index.ts';
import { inferElementTypes } from '../../../src/onnx/infer.ts';
import type { DataType } from '../../../src/tensor/index.ts';
import { operatorName, type Case } from './case.ts';

/** @param taken which outputs a node uses. @returns undefined for an output that is not used, or whose type is not known */
export function inferredTypes(
  { operator, inputs, attributes }: Pick<Case, 'operator' | 'inputs' | 'attributes'>,
  taken: readonly boolean[],
): (DataType | undefined)[] {
  const { domain, name } = operatorName(operator);
  const types = new Map<string, ValueType>();
  const given = inputs.map((input, place) => {
    if (input === undefined) return '';
    types.set(`in${place}`, { elementType: elementTypeOf(input.tensor.datatype), shape: undefined });
    return `in${place}`;
  });
  const outputs = taken.map((isTaken, place) => (isTaken ? `out${place}` : ''));
  const proto = nodeProto(name, given, outputs, attributes, { domain });
  inferElementTypes([{ proto, name, uses: [], outputs, constant: false }], types);
  return outputs.map((output) => dataTypeOf(types.get(output)?.elementType ?? 0));
}
