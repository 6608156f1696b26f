/** Element types of a case's outputs, as a reader of the model infers them. */
import { dataTypeOf, elementTypeOf, nodeProto } from '../../../src/onnx/index.ts';
import { resultType } from '../../../src/operators/typed-graph.ts';
import type { DataType } from '../../../src/tensor/index.ts';
import { operatorName, type Case } from './case.ts';

/** @param taken which outputs a node uses. @returns undefined for an output that is not used, or whose type is not known */
export function inferredTypes(
  { operator, inputs, attributes }: Pick<Case, 'operator' | 'inputs' | 'attributes'>,
  taken: readonly boolean[],
): (DataType | undefined)[] {
  const { domain, name } = operatorName(operator);
  const given = inputs.map((input, place) => (input === undefined ? '' : `in${place}`));
  const outputs = taken.map((_, place) => `out${place}`);
  const proto = nodeProto(name, given, outputs, attributes, { domain });
  const typeOfInput = (place: number): number | undefined => {
    const datatype = inputs[place]?.tensor.datatype;
    return datatype === undefined ? undefined : elementTypeOf(datatype);
  };
  return taken.map((isTaken, place) => (isTaken ? dataTypeOf(resultType(proto, place, typeOfInput) ?? 0) : undefined));
}
