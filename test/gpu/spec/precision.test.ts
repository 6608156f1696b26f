/** Models with 16-bit and 32-bit parts: the engine computes each value in the model's type. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel } from '../../../src/gpu/program/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import { filled } from '../../support/operator-cases/case.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { disagreement } from '../../support/operator-cases/checking.ts';
import { Draw } from '../../support/operator-cases/draw.ts';
import { runOnnxRuntime, runProgram } from '../../support/run-program.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-precision-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const { FLOAT, FLOAT16 } = ElementType;
const shape = [4, 4];

/** A random graph of values of both types, with casts between them. */
function mixedModel(seed: number) {
  const draw = new Draw(seed);
  const graph = new GraphBuilder('mixed', { opset: draw.pick([15, 17, 18, 21]) });
  const type = draw.pick([FLOAT, FLOAT16]);
  const values = [{ name: graph.input('x', type, shape), type }];
  const weights = new Map(
    [FLOAT, FLOAT16].map((of) => {
      const tensor = filled(of === FLOAT ? 'FP32' : 'FP16', shape, seed, 0.5);
      return [of, graph.initializer({ ...tensor, name: `w${of}` })];
    }),
  );
  const taken = (wanted: number): string => {
    const { name, type: own } = values[Math.max(0, values.length - draw.pick([1, 1, 2, 3]))]!;
    return own === wanted ? name : graph.node('Cast', [name], { to: wanted });
  };
  for (let step = draw.int(3, 8); step > 0; step--) {
    const of = draw.pick([FLOAT, FLOAT16]);
    const a = taken(of);
    const made = draw.pick([
      () => graph.node('MatMul', [a, weights.get(of)!]),
      () => graph.node('Softmax', [a], { axis: -1 }),
      () => graph.node('Add', [a, taken(of)]),
      () => graph.node('CastLike', [taken(of === FLOAT ? FLOAT16 : FLOAT), a]),
      () => graph.node('Where', [graph.node('Greater', [a, weights.get(of)!]), a, taken(of)]),
      () => graph.node('Erf', [a]),
      () => graph.node('Transpose', [a], { perm: [1, 0] }),
      () =>
        graph.node('Conv', [
          graph.node('Reshape', [a, graph.constant({ ints: [1, 4, 4, 1] })]),
          graph.node('Reshape', [weights.get(of)!, graph.constant({ ints: [4, 4, 1, 1] })]),
        ]),
    ])();
    values.push({ name: graph.node('Reshape', [made, graph.constant({ ints: [4, 4] })]), type: of });
  }
  const last = values.slice(-2);
  for (const [index, { name, type: of }] of last.entries()) graph.output(name, of, shape, `y${index}`);
  const datatype = type === FLOAT ? 'FP32' : 'FP16';
  return { model: graph.build(), inputs: [{ ...filled(datatype, shape, seed), name: 'x' }] };
}

test.skipIf(emulatorMissing)('each value is computed in the type that the model gives it', async () => {
  const seed = Number(process.env['TURNTABLE_SEED']) % 1_000_000;
  const wrong: string[] = [];
  await withEmulatedCuda({}, async (cuda) => {
    for (let index = 0; index < 12; index++) {
      const { model, inputs } = mixedModel(seed * 100 + index);
      const path = join(folder, `${index}.onnx`);
      await writeModel(model, path);
      const program = await compileModel(path, [{ name: 'x', shape }], operators, { cacheFolder: folder });
      const expected = await runOnnxRuntime(path, inputs);
      // ONNX Runtime drops casts, so it rounds to 16 bits in other places: the bound is that of 16 bits.
      const what = disagreement(await runProgram(cuda, program, inputs), expected, { FP16: 2e-2, FP32: 2e-2 });
      if (what !== undefined)
        wrong.push(`${index}: ${what}: ${model.graph.node.map(({ opType }) => opType).join(' ')}`);
    }
  });
  expect(wrong).toEqual([]);
});
