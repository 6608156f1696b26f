import { expect, test } from 'vitest';
import { operators } from '../../../src/gpu/operators/index.ts';
import type { Operator } from '../../../src/gpu/operators/types.ts';
import { filled, given, operatorCase } from '../../support/operator-cases/case.ts';
import { casesOf, drawnFused, families } from '../../support/operator-cases/index.ts';
import { differences } from './checking.ts';
import { deviceMissing, withDevice } from './device.ts';

const types = operators.map(({ type }) => type);

test('no operator is registered twice', () => {
  expect(types).toEqual([...new Set(types)]);
});

for (const [family, { named }] of Object.entries(families)) {
  const cases = named.filter(({ operator }) => types.includes(operator));
  if (cases.length === 0) continue;
  test.skipIf(deviceMissing)(`${cases.length} named cases of ${family} agree with ONNX Runtime`, async () => {
    const found = await withDevice((cuda) => differences(cuda, cases));
    expect(found).toEqual([]);
  });
}

const seed = Number(process.env['TURNTABLE_SEED']);
test.skipIf(deviceMissing)(`random forms of fused operators, of seed ${seed}, agree with ONNX Runtime`, async () => {
  // Attention has many kernels and layouts.
  const cases = [...drawnFused.keys()].flatMap((operator) =>
    casesOf(operator, seed % 1e6, operator === 'turntable.Attention' ? 20 : 4),
  );
  const found = await withDevice((cuda) => differences(cuda, cases));
  expect(found).toEqual([]);
});

test.skipIf(deviceMissing)('wrong results of an operator are reported', async () => {
  const cases = [
    operatorCase('Relu', 'both signs', [given(filled('FP32', [3, 5]))]),
    operatorCase('Transpose', 'a matrix', [given(filled('FP32', [3, 5]))]),
  ];
  const wrong: Operator[] = [
    { type: 'Relu', emit: () => {}, elementwise: (_, [x]) => `(${x} < 0 ? 0 : 1.001f * ${x})` },
    // Does not write its output, which is NaN on the emulated driver.
    { type: 'Transpose', emit: () => {} },
  ];
  const found = await withDevice((cuda) => differences(cuda, cases, wrong));
  expect(found).toHaveLength(2);
  expect(found[0]).toMatch(/^Relu \(both signs; opset 17\): FP32\[3,5\] .*is .*, not /);
});
