/** Loops on the engine: those with a number of iterations that follows from the inputs' shapes are unrolled. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel } from '../../../src/gpu/program/index.ts';
import { ElementType, GraphBuilder, unrollLoops, writeModel, type GraphProto } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { relativeError, runOnnxRuntime, runProgram } from '../../support/run-program.ts';
import { shaped } from '../../support/shapes.ts';

const { BOOL, FLOAT, INT64 } = ElementType;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-loops-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** state = tanh((x[:, step] + state) W), output for each step, with an If that reads `step` and captured values. */
function body(goesOn: 'always' | 'while small'): GraphProto {
  const graph = new GraphBuilder('body', { opset: 17, captures: ['x', 'w'] });
  graph.input('step', INT64, []);
  graph.input('on', BOOL, []);
  graph.input('state', FLOAT, ['n', 4]);
  // Names of values are unique across nested graphs.
  graph.scope('body', () => {
    const column = graph.node('Gather', ['x', 'step'], { axis: 1 });
    const first = graph.node('Equal', ['step', graph.constant({ ints: [0], shape: [] })]);
    const branch = (name: string, operator: string): GraphProto => {
      const inner = new GraphBuilder(name, { opset: 17, captures: [column, 'state'] });
      inner.node(operator, [column, 'state'], {}, { outputs: [`sum_${name}`] });
      inner.output(`sum_${name}`, FLOAT, ['n', 4]);
      return inner.buildGraph();
    };
    const chosen = { then_branch: { graph: branch('then', 'Sub') }, else_branch: { graph: branch('else', 'Add') } };
    const sum = graph.node('If', [first], chosen);
    const state = graph.node('Tanh', [graph.node('MatMul', [sum, 'w'])]);
    const size = graph.node('ReduceMax', [state], { keepdims: 0 });
    const on =
      goesOn === 'always'
        ? graph.node('Identity', ['on'])
        : graph.node('Less', [size, graph.constant({ floats: [0.2], shape: [] })]);
    graph.output(on, BOOL, []);
    graph.output(state, FLOAT, ['n', 4]);
    graph.output(size, FLOAT, []);
  });
  return graph.buildGraph();
}

function model(goesOn: 'always' | 'while small') {
  const graph = new GraphBuilder('loops', { opset: 17 });
  graph.input('x', FLOAT, ['n', 'steps', 4]);
  graph.weight(
    'w',
    [4, 4],
    Float32Array.from({ length: 16 }, (_, index) => Math.sin(index)),
  );
  const shape = graph.node('Shape', ['x']);
  const steps = graph.node('Gather', [shape, graph.constant({ ints: [1], shape: [] })]);
  const start = graph.node('ReduceMean', ['x'], { axes: [1], keepdims: 0 });
  const on = graph.initializer({ name: 'on', datatype: 'BOOL', shape: [], data: Uint8Array.of(1) });
  graph.node('Loop', [steps, on, start], { body: { graph: body(goesOn) } }, { outputs: ['last', 'sizes'] });
  graph.output('last', FLOAT, ['n', 4]);
  graph.output('sizes', FLOAT, ['steps']);
  return graph.build();
}

const input = (steps: number): Tensor =>
  tensorOf(
    'x',
    'FP32',
    [2, steps, 4],
    Float32Array.from({ length: 8 * steps }, (_, index) => Math.cos(index) / 2),
  );

test.skipIf(emulatorMissing)(
  'a loop over the columns of its input runs on the GPU, for each number of columns',
  async () => {
    const path = join(folder, 'loop.onnx');
    await writeModel(model('always'), path);
    await withEmulatedCuda({}, async (cuda) => {
      for (const steps of [1, 5]) {
        const program = await compileModel(path, shaped({ x: [2, steps, 4] }), operators, { cacheFolder: folder });
        const expected = await runOnnxRuntime(path, [input(steps)]);
        const actual = await runProgram(cuda, program, [input(steps)]);
        expect(actual.map(({ name, shape }) => [name, shape])).toEqual([
          ['last', [2, 4]],
          ['sizes', [steps]],
        ]);
        for (const [index, wanted] of expected.entries())
          expect(relativeError(actual[index]!, wanted)).toBeLessThan(1e-5);
      }
    });
  },
);

test('a loop whose end depends on values is an obstacle', async () => {
  const path = join(folder, 'while.onnx');
  await writeModel(model('while small'), path);
  await expect(compileModel(path, shaped({ x: [2, 3, 4] }), operators, { cacheFolder: folder })).rejects.toMatchObject({
    code: 'unsupported',
    obstacles: [{ node: '/Loop', operator: 'Loop', reason: 'how often it runs follows from data' }],
  });
});

test('a loop whose count is not constant is not unrolled', () => {
  const made = model('always');
  expect(unrollLoops(made)).toBe(made);
});
