import { expect, test } from 'vitest';
import { ordinary, type OperatorFacts } from './facts.ts';
import { argumentsOf, factsOf, families } from './records.ts';
import { nodeProto } from '../onnx/index.ts';

test('an operator has one record', () => {
  const names = Object.values(families).flatMap((family) => Object.keys(family));
  expect(names.filter((name, place) => names.indexOf(name) !== place)).toEqual([]);
});

test('a record without a rule for shapes or rows does not compile', () => {
  const rules = { shapes: 'run', rows: 'unknown' } as const;
  const { shapes, rows } = rules;
  const whole: OperatorFacts = { ...ordinary, ...rules };
  // @ts-expect-error: no shapes
  const withoutShapes: OperatorFacts = { ...ordinary, rows };
  // @ts-expect-error: no rows
  const withoutRows: OperatorFacts = { ...ordinary, shapes };
  expect([whole, withoutShapes, withoutRows]).toHaveLength(3);
});

test.each([
  ['Gelu', '', families.elementwise.Gelu],
  ['Gelu', 'ai.onnx', families.elementwise.Gelu],
  ['Gelu', 'com.microsoft', families.elementwise['com.microsoft.Gelu']],
  ['Attention', '', families.attention.Attention],
  ['Attention', 'com.microsoft', families.attention['com.microsoft.Attention']],
  // ONNX Runtime writes some operators in the other domain.
  ['FusedConv', '', families.dense['com.microsoft.FusedConv']],
  ['SimplifiedLayerNormalization', 'com.microsoft', families.normalization.SimplifiedLayerNormalization],
  ['Gelu', 'a.domain.of.ones.own', undefined],
  ['NoOperator', '', undefined],
  ['constructor', '', undefined],
])('%s of the domain %j has the record of its operator', (opType, domain, facts) => {
  expect(factsOf({ opType, domain })).toBe(facts);
});

test.each([
  ['Reshape', ['x', 'shape'], ['shape']],
  ['Pad', ['x', 'pads', 'value', 'axes'], ['pads', 'axes']],
  ['Range', ['from', 'to', 'step'], ['from', 'to', 'step']],
  ['CumSum', ['x', 'axis'], []],
  ['Relu', ['x'], []],
])('the inputs of %s that decide its shape are found', (opType, inputs, expected) => {
  expect(argumentsOf(nodeProto(opType, inputs, ['y']), 'shape', 'growth')).toEqual(expected);
});

test('an input that a kernel needs as a constant is no size', () => {
  expect(argumentsOf(nodeProto('CumSum', ['x', 'axis'], ['y']), 'kernel')).toEqual(['axis']);
});
