/** Every operator of the engine, on random attributes, shapes and types, agrees with ONNX Runtime. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeCase } from '../../support/operator-cases/case.ts';
import { checkCases } from '../../support/operator-cases/checking.ts';
import { casesAsCalled, drawn } from '../../support/operator-cases/index.ts';
import { draws } from '../../support/draws.ts';
import { deviceMissing, withDevice } from './device.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-spec-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const seed = Number(process.env['TURNTABLE_SEED']);
const each = Number(process.env['TURNTABLE_CASES'] ?? draws(1));

test.skipIf(deviceMissing)(
  `random cases of each of ${drawn.size} operators, of seed ${seed}, agree with ONNX Runtime`,
  async () => {
    const cases = [...drawn.keys()].flatMap((operator) => casesAsCalled(operator, seed, each));
    const checked = await withDevice((cuda) => checkCases(cuda, cases, folder));
    const wrong = checked.flatMap(({ one, verdict }) =>
      verdict.kind === 'wrong' ? [`${describeCase(one)}: ${verdict.what}`] : [],
    );
    expect(wrong).toEqual([]);
    expect(checked.filter(({ verdict }) => verdict.kind === 'agrees').length).toBeGreaterThan(cases.length / 2);
  },
);
