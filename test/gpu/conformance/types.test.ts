/** Element types that `src/onnx` infers by lists of its own are those of the operators' cases. */
import { expect, test } from 'vitest';
import { elementTypeName } from '../../../src/onnx/element-type.ts';
import { elementTypeOf, nodeProto, type ValueType } from '../../../src/onnx/index.ts';
import { inferElementTypes } from '../../../src/onnx/infer.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { drawn } from '../../support/operator-cases/index.ts';
import { describeCase, type Case } from './case.ts';
import { caseGroups } from './cases/index.ts';
import { operatorName } from './reference.ts';

const cases = Object.values(caseGroups).flat();
/** Our own fused operators are made once types are known. */
const published = cases.filter(({ operator }) => !operator.startsWith('turntable.'));

/** Outputs whose inferred type is another one than the case's, in words. */
function wrongTypes(one: Case): string[] {
  const { domain, name } = operatorName(one.operator);
  const inputs = one.inputs.map((input, place) => (input === undefined ? '' : `in${place}`));
  const outputs = one.outputs.map((datatype, place) => (datatype === undefined ? '' : `out${place}`));
  const types = new Map<string, ValueType>();
  for (const [place, input] of one.inputs.entries()) {
    if (input === undefined) continue;
    types.set(`in${place}`, { elementType: elementTypeOf(input.tensor.datatype), shape: undefined });
  }
  const proto = nodeProto(name, inputs, outputs, one.attributes, { domain });
  inferElementTypes([{ proto, name: one.name, uses: [], outputs: proto.output, constant: false }], types);
  return one.outputs.flatMap((datatype, place) => {
    if (datatype === undefined) return [];
    const inferred = types.get(`out${place}`)?.elementType;
    if (inferred === elementTypeOf(datatype)) return [];
    const found = inferred === undefined ? 'unknown' : elementTypeName(inferred);
    return [`${describeCase(one)}: output ${place} is ${datatype}, not ${found}`];
  });
}

test('the types inferred from the inputs of all cases are those of their outputs', () => {
  expect(published.flatMap(wrongTypes)).toEqual([]);
});

test('each operator with a kernel has a case', () => {
  const named = new Set([...cases.map(({ operator }) => operator), ...drawn.keys()]);
  expect(operators.map(({ type }) => type).filter((type) => !named.has(type))).toEqual([]);
});
