/** Every operator of the engine, on random attributes, shapes and types, agrees with ONNX Runtime. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operators } from '../../../src/gpu/operators/index.ts';
import { describeCase } from '../conformance/case.ts';
import { caseGroups } from '../conformance/cases/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { checkCases } from '../../support/operator-cases/checking.ts';
import { casesAsCalled, drawn } from '../../support/operator-cases/index.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-spec-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const seed = Number(process.env['TURNTABLE_SEED']);
const each = Number(process.env['TURNTABLE_CASES'] ?? 2);

test.skipIf(emulatorMissing)(
  `random cases of each of ${drawn.size} operators, of seed ${seed}, agree with ONNX Runtime`,
  async () => {
    const cases = [...drawn.keys()].flatMap((operator) => casesAsCalled(operator, seed, each));
    const checked = await withEmulatedCuda({}, (cuda) => checkCases(cuda, cases, folder));
    const wrong = checked.flatMap(({ one, verdict }) =>
      verdict.kind === 'wrong' ? [`${describeCase(one)}: ${verdict.what}`] : [],
    );
    expect(wrong).toEqual([]);
    expect(checked.filter(({ verdict }) => verdict.kind === 'agrees').length).toBeGreaterThan(cases.length / 2);
  },
);

test('every operator has random or hand-written cases', () => {
  const written = new Set(Object.values(caseGroups).flatMap((cases) => cases.map(({ operator }) => operator)));
  expect(operators.map(({ type }) => type).filter((type) => !drawn.has(type) && !written.has(type))).toEqual([]);
});
