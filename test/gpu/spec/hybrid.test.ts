/** Random operators, divided between a GPU and cores at random, agree with ONNX Runtime. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { compileHybrid } from '../../../src/gpu/hybrid/compile.ts';
import { CpuCores } from '../../../src/gpu/hybrid/cpu-cores.ts';
import { openHybrid } from '../../../src/gpu/hybrid/open.ts';
import { draftOperators } from '../../../src/gpu/hybrid/operator-draft.ts';
import { hybridGraph } from '../../../src/gpu/hybrid/prepare.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { defaultSettings } from '../../../src/gpu/program/index.ts';
import { writeModel } from '../../../src/onnx/index.ts';
import type { Tensor } from '../../../src/tensor/index.ts';
import { loading } from '../hybrid/examples.ts';
import { randomOf, randomPlan } from '../hybrid/random-plans.ts';
import { describeCase, type Case } from '../../support/operator-cases/case.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { disagreement, tolerances } from '../../support/operator-cases/checking.ts';
import { casesOf, drawn } from '../../support/operator-cases/index.ts';
import { modelOf, referenceOf, togetherOf, type CaseModel } from '../../support/operator-cases/models.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

let folder: string;
let cores: CpuCores;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-hybrid-spec-'));
  cores = new CpuCores({ count: 2 });
});
afterAll(async () => {
  await cores.close();
  await rm(folder, { recursive: true, force: true });
});

const seed = Number(process.env['TURNTABLE_SEED']);

/** Sums over no elements: ONNX Runtime's kernels give another shape than its inference. */
const hasNoOneShape = (one: Case): boolean =>
  /^Reduce|Softmax/.test(one.operator) && one.inputs[0]?.tensor.data.byteLength === 0;

/** Cases of one opset, out of a few drawn for each operator. */
async function casesOfOpset(opset: number): Promise<{ cases: Case[]; models: CaseModel[]; expected: Tensor[] }> {
  const cases: Case[] = [];
  const models: CaseModel[] = [];
  const expected: Tensor[] = [];
  for (const operator of drawn.keys()) {
    const one = casesOf(operator, seed, 6).find((each) => each.opset === opset && !hasNoOneShape(each));
    const made = one && modelOf(one);
    const outputs = made && (await referenceOf(made));
    if (made === undefined || outputs === undefined) continue;
    for (const output of outputs) expected.push({ ...output, name: `c${models.length}.${output.name}` });
    cases.push(one!);
    models.push(made);
  }
  return { cases, models, expected };
}

test.skipIf(emulatorMissing)(
  "any division of operators between GPU and cores gives ONNX Runtime's answers",
  async () => {
    const { cases, models, expected } = await casesOfOpset(17);
    expect(models.length).toBeGreaterThan(drawn.size / 4);
    const { model, inputs } = togetherOf(models);
    const modelPath = join(folder, 'together.onnx');
    await writeModel(model, modelPath);
    const shapes = shapesOf(inputs);
    const prepared = await hybridGraph({ modelPath, shapes, cells: 1, cacheFolder: join(folder, 'cache') });
    const draft = await draftOperators(prepared, { operators, settings: defaultSettings, cacheFolder: folder });
    const lacking = draft.operators.filter(({ obstacle }) => obstacle !== null);
    const mustBeOnCpu = new Set(lacking.flatMap(({ nodes }) => nodes.map(({ name }) => name)));
    await withEmulatedCuda({ devices: 1 }, async (cuda) => {
      const engine = new Engine(cuda, { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 26 });
      for (const cpuShare of [0.2, 0.7]) {
        const plan = randomPlan(prepared, randomOf(seed), { id: `share ${cpuShare}`, cores: 2, cpuShare, mustBeOnCpu });
        const hybrid = await compileHybrid(prepared, plan, operators, defaultSettings, folder);
        engine.addFunction('f', hybrid.layout);
        await engine.stage('f');
        const open = await openHybrid(engine, 'f', hybrid, cores);
        const options = { gpu: 0, plan: loading(prepared.base.layers, hybrid.promise.layers) };
        const { outputs } = await open.run(inputs, options);
        const wrong = expected.flatMap((wanted) => {
          const found = outputs.filter(({ name }) => name === wanted.name);
          const one = cases[Number(wanted.name.slice(1).split('.')[0])]!;
          const what = disagreement(found, [wanted], tolerances, one.operator);
          return what === undefined ? [] : [`${describeCase(one)}: ${what}`];
        });
        expect(wrong).toEqual([]);
        await open.close();
        await engine.removeFunction('f');
      }
      await engine.close();
    });
  },
);
