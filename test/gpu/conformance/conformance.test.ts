import { expect, test } from 'vitest';
import { operators } from '../../../src/gpu/operators/index.ts';
import type { Operator } from '../../../src/gpu/operators/types.ts';
import { conformanceCase, filled, given } from './case.ts';
import { Draw } from '../../support/operator-cases/draw.ts';
import { drawnAttention } from './cases/attention.ts';
import { caseGroups } from './cases/index.ts';
import { differences } from './checking.ts';
import { deviceMissing, withDevice } from './device.ts';

test('no operator is registered twice', () => {
  const types = operators.map(({ type }) => type);
  expect(types).toEqual([...new Set(types)]);
});

for (const [group, cases] of Object.entries(caseGroups)) {
  test.skipIf(deviceMissing)(`${cases.length} ${group} cases agree with ONNX Runtime`, async () => {
    const found = await withDevice((cuda) => differences(cuda, cases));
    expect(found).toEqual([]);
  });
}

const seed = Number(process.env['TURNTABLE_SEED']);
test.skipIf(deviceMissing)(`random forms of fused attention, of seed ${seed}, agree with ONNX Runtime`, async () => {
  const cases = Array.from({ length: 20 }, (_, index) => drawnAttention(new Draw((seed % 1e6) * 1000 + index)));
  const found = await withDevice((cuda) => differences(cuda, cases));
  expect(found).toEqual([]);
});

test.skipIf(deviceMissing)('wrong results of an operator are reported', async () => {
  const cases = [
    conformanceCase('Relu', 'both signs', [given(filled('FP32', [3, 5]))]),
    conformanceCase('Transpose', 'a matrix', [given(filled('FP32', [3, 5]))]),
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
