import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildEmulatedDriver } from '../../../test/emulated-driver/build.ts';
import { shaped } from '../../../test/support/shapes.ts';
import { ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { inspectCoverage } from './coverage.ts';

const emulated = await buildEmulatedDriver();

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-coverage-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function write(name: string, build: (graph: GraphBuilder) => void): Promise<string> {
  const graph = new GraphBuilder(name);
  build(graph);
  const path = join(folder, `${name}.onnx`);
  await writeModel(graph.build(), path);
  return path;
}

test('a covered model is reported with its layers, launches and memory', async () => {
  const path = await write('covered', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 8]);
    const weight = graph.weight('fc.weight', [8, 4], new Float32Array(32));
    graph.output(graph.node('Relu', [graph.node('MatMul', [x, weight])]), ElementType.FLOAT, ['batch', 4], 'y');
  });
  expect(await inspectCoverage(path, [shaped({ x: [1, 8] })])).toMatchObject({
    state: 'covered',
    shapes: [{ name: 'x', shape: [1, 8] }],
    layers: 1,
    launches: 1,
    weightBytes: 256,
    arenaBytes: 512,
  });
});

test.skipIf(emulated === undefined)('where there is a GPU, its answer is held against ONNX Runtime', async () => {
  const path = await write('checked', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 8]);
    graph.output(graph.node('Tanh', [x]), ElementType.FLOAT, ['batch', 8], 'y');
  });
  const { environment = {} } = emulated ?? {};
  expect(await inspectCoverage(path, [shaped({ x: [1, 8] })], { environment })).toMatchObject({
    state: 'covered',
    check: { kind: 'agreed', inputs: 'drawn', precision: 'fp32' },
  });
});

test('a model that is not covered is reported with each unsupported operator once, and its node', async () => {
  const path = await write('uncovered', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    const odd = graph.node('Normalizer', [x], { norm: 'L2' }, { domain: 'ai.onnx.ml' });
    graph.output(odd, ElementType.FLOAT, ['batch', 4], 'y');
    const found = graph.node('NonZero', [x]);
    graph.output(graph.node('Abs', [found]), ElementType.INT64, [2, 'found'], 'z');
  });
  const coverage = await inspectCoverage(path, [shaped({ x: [1, 4] })]);
  expect(coverage).toMatchObject({ state: 'uncovered', shapes: [{ name: 'x', shape: [1, 4] }] });
  const named = coverage.state === 'uncovered' ? coverage.obstacles.map(({ node }) => node) : [];
  expect(named.toSorted()).toEqual(['/Abs', '/NonZero', '/Normalizer']);
});

test('a model with few positions is covered for a length that it supports', async () => {
  const path = await write('positions', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 'sequence', 4]);
    const length = graph.node('Gather', [graph.node('Shape', [x]), graph.constant({ ints: 1 })]);
    const places = graph.node('Range', [graph.constant({ ints: 0 }), length, graph.constant({ ints: 1 })]);
    const table = graph.weight('positions', [77, 4], new Float32Array(308));
    graph.output(
      graph.node('Add', [x, graph.node('Gather', [table, places])]),
      ElementType.FLOAT,
      ['batch', 'sequence', 4],
      'y',
    );
  });
  const trials = [128, 77].map((length) => shaped({ x: [1, length, 4] }));
  expect(await inspectCoverage(path, trials)).toMatchObject({
    state: 'covered',
    shapes: [{ name: 'x', shape: [1, 77, 4] }],
  });
});

test('the coverage of a file that is no model is unknown, with the reason', async () => {
  const path = join(folder, 'broken.onnx');
  await writeFile(path, 'not a model');
  expect(await inspectCoverage(path, [[]])).toMatchObject({ state: 'unknown' });
});
