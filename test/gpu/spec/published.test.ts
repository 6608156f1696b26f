/**
 * Every named or random case that ONNX Runtime runs can be published: it passes the validator's check and runs in a CPU
 * instance's session.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ModelSession } from '../../../src/cpu/instance/session.ts';
import { checkModelFile } from '../../../src/host/store/model-check.ts';
import { elementTypeOf, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import type { Tensor } from '../../../src/tensor/index.ts';
import { describeCase } from '../../support/operator-cases/case.ts';
import { disagreement } from '../../support/operator-cases/checking.ts';
import { casesOf, drawn, named } from '../../support/operator-cases/index.ts';
import { modelOf, referenceOf } from '../../support/operator-cases/models.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-published-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The model as a file may have it: outputs with types, nodes in any order. */
function declared(model: ModelProto, outputs: readonly Tensor[]): ModelProto {
  const output = outputs.map(({ name, datatype, shape }) => ({
    name,
    type: {
      tensorType: {
        elemType: elementTypeOf(datatype),
        shape: { dim: shape.map((size) => ({ dimValue: BigInt(size) })) },
      },
    },
  }));
  return { ...model, graph: { ...model.graph, node: model.graph.node.toReversed(), output } };
}

test("every case that ONNX Runtime runs is accepted, and an instance gives ONNX Runtime's answer", async () => {
  const seed = Number(process.env['TURNTABLE_SEED']);
  const wrong: string[] = [];
  let run = 0;
  for (const one of [...named, ...[...drawn.keys()].flatMap((operator) => casesOf(operator, seed, 2))]) {
    const made = modelOf(one);
    const expected = await referenceOf(made);
    if (expected === undefined) continue;
    run++;
    const path = join(folder, `${run}.onnx`);
    await writeModel(declared(made.model, expected), path);
    const reply = await checkModelFile({ modelPath: path });
    if (reply.outcome === 'refused') {
      wrong.push(`${describeCase(one)}: refused: ${reply.reason}`);
      continue;
    }
    const session = await ModelSession.open(path, { threads: 1, spinning: false, isAlone: false });
    const found = session.runTensors(made.inputs);
    const inOrder = expected.map(({ name }) => found.find((tensor) => tensor.name === name)!);
    const what = disagreement(inOrder, expected);
    if (what !== undefined) wrong.push(`${describeCase(one)}: ${what}`);
  }
  expect(wrong).toEqual([]);
  expect(run).toBeGreaterThan(drawn.size);
});
