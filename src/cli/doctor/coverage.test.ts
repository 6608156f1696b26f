import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { inspectCoverage, trialShapes } from './coverage.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-coverage-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const input = (name: string, shape: readonly number[], dimensionNames: readonly (string | undefined)[] = []) => ({
  name,
  datatype: 'FP32' as const,
  shape,
  dimensionNames: shape.map((_, axis) => dimensionNames[axis] ?? ''),
});

test('open dimensions are tried with one item, an image of the usual size, or a short series', () => {
  expect(
    trialShapes([
      input('image', [-1, 3, -1, -1]),
      input('tokens', [-1, -1], ['batch', 'sequence']),
      input('time-first', [-1, -1, 8], ['time', 'batch']),
      input('fixed', [2, 5]),
    ]),
  ).toEqual({ image: [1, 3, 224, 224], tokens: [1, 16], 'time-first': [1, 1, 8], fixed: [2, 5] });
});

async function write(name: string, build: (graph: GraphBuilder) => void): Promise<string> {
  const graph = new GraphBuilder(name);
  build(graph);
  const path = join(folder, `${name}.onnx`);
  await writeModel(graph.build(), path);
  return path;
}

test('a model that is covered says what it would take', async () => {
  const path = await write('covered', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 8]);
    const weight = graph.weight('fc.weight', [8, 4], new Float32Array(32));
    graph.output(graph.node('Relu', [graph.node('MatMul', [x, weight])]), ElementType.FLOAT, ['batch', 4], 'y');
  });
  expect(await inspectCoverage(path, [input('x', [-1, 8])])).toEqual({
    state: 'covered',
    shapes: { x: [1, 8] },
    layers: 1,
    launches: 1,
    weightBytes: 256,
    arenaBytes: 512,
  });
});

test('a model that is not covered names each operator in the way once, with its node', async () => {
  const path = await write('uncovered', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    const square = graph.node('Reshape', [x, graph.constant({ ints: [-1, 2, 2] })]);
    graph.output(graph.node('Det', [square]), ElementType.FLOAT, ['batch'], 'y');
    const found = graph.node('NonZero', [x]);
    graph.output(graph.node('Abs', [found]), ElementType.INT64, [2, 'found'], 'z');
  });
  const coverage = await inspectCoverage(path, [input('x', [-1, 4])]);
  expect(coverage).toMatchObject({ state: 'uncovered', shapes: { x: [1, 4] } });
  const named = coverage.state === 'uncovered' ? coverage.obstacles.map(({ node }) => node) : [];
  expect(named.toSorted()).toEqual(['/Abs', '/Det', '/NonZero']);
});

test('a file that is no model leaves the coverage open, with the reason', async () => {
  const path = join(folder, 'broken.onnx');
  await writeFile(path, 'not a model');
  expect(await inspectCoverage(path, [])).toMatchObject({ state: 'unknown' });
});
