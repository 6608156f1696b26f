import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ElementType, GraphBuilder, readModel, writeModel } from '../../onnx/index.ts';
import { tensorOf } from '../../tensor/index.ts';
import { ProgramError } from './error.ts';
import { fold, runModel, runOnZeros } from './fold-client.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-fold-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test("a refused graph's error has ONNX Runtime's message, and the next graph is folded", async () => {
  const bad = join(folder, 'bad.onnx');
  await writeFile(bad, 'not a model');
  const optimizedPath = join(folder, 'folded.onnx');
  const graph = new GraphBuilder('shape');
  const x = graph.input('x', ElementType.FLOAT, [2, 6]);
  const size = graph.node('Gather', [graph.node('Shape', [x]), graph.constant({ ints: [0] })]);
  const shape = graph.node('Concat', [size, graph.constant({ ints: [-1, 3] })], { axis: 0 });
  graph.output(graph.node('Reshape', [x, shape]), ElementType.FLOAT, [2, 2, 3], 'y');
  const good = join(folder, 'good.onnx');
  await writeModel(graph.build(), good);
  const [refused] = await Promise.allSettled([fold(bad, optimizedPath), fold(good, optimizedPath)]);
  expect(refused).toMatchObject({ status: 'rejected', reason: expect.any(ProgramError) as ProgramError });
  expect(String((refused as PromiseRejectedResult).reason)).toMatch(
    /^ProgramError: ONNX Runtime refuses the graph: .*[Pp]rotobuf/,
  );
  const { node } = (await readModel(optimizedPath)).graph;
  expect(node.map(({ opType }) => opType)).toEqual(['Reshape']);
});

test('values that follow from constants are computed, with their shapes', async () => {
  const graph = new GraphBuilder('constants');
  const sum = graph.node('Add', [graph.weight('a', [2], Float32Array.of(1, 2)), graph.constant({ floats: 10 })]);
  graph.output(sum, ElementType.FLOAT, [2], 'y');
  const modelPath = join(folder, 'constants.onnx');
  await writeModel(graph.build(), modelPath);
  const [y, ...others] = await runModel(modelPath, [], false);
  expect({ ...y, data: new Uint8Array(y!.data) }).toEqual(tensorOf('y', 'FP32', [2], Float32Array.of(11, 12)));
  expect(others).toEqual([]);
});

test('a run on zeros tells the datatypes and shapes of the outputs', async () => {
  const graph = new GraphBuilder('places');
  const x = graph.input('x', ElementType.FLOAT16, ['rows', 3]);
  graph.output(
    graph.node('Not', [graph.node('Cast', [x], { to: ElementType.BOOL })]),
    ElementType.BOOL,
    ['rows', 3],
    'y',
  );
  graph.output(graph.node('NonZero', [x]), ElementType.INT64, [2, 'count'], 'places');
  const modelPath = join(folder, 'places.onnx');
  await writeModel(graph.build(), modelPath);
  expect(await runOnZeros(modelPath, [{ name: 'x', datatype: 'FP16', shape: [2, 3] }])).toMatchObject([
    { name: 'y', datatype: 'BOOL', shape: [2, 3] },
    { name: 'places', datatype: 'INT64', shape: [2, 0] },
  ]);
});
