/** What lies between a GPU and cores beside plain tensors: nothing, texts, sizes that only a run tells, results that nobody computes. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/gpu/engine/index.ts';
import { compileHybrid } from '../../src/gpu/hybrid/compile.ts';
import { startCpuCores, type CpuCoreThreads } from '../../src/gpu/hybrid/cpu-cores.ts';
import { OpenHybrid } from '../../src/gpu/hybrid/open.ts';
import { draftOperators, type OperatorDraft } from '../../src/gpu/hybrid/operator-draft.ts';
import { hybridGraph } from '../../src/gpu/hybrid/prepare.ts';
import { operators } from '../../src/gpu/operators/index.ts';
import { defaultSettings, type InputShapes } from '../../src/gpu/program/index.ts';
import { ElementType, GraphBuilder, writeModel, type GraphProto } from '../../src/onnx/index.ts';
import { packBytes, tensorOf, type Tensor } from '../../src/tensor/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../support/emulated-cuda.ts';
import { relativeError, runOnnxRuntime } from '../support/run-program.ts';
import { loading, noise } from './examples.ts';

let folder: string;
let cores: CpuCoreThreads;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-boundaries-'));
  cores = startCpuCores({ count: 2 });
});
afterAll(async () => {
  await cores.close();
  await rm(folder, { recursive: true, force: true });
});

const { FLOAT, INT64, BOOL, STRING } = ElementType;
const floats = (name: string, shape: readonly number[], values: readonly number[]): Tensor =>
  tensorOf(name, 'FP32', shape, Float32Array.from(values));
const steps = (count: bigint): Tensor => tensorOf('n', 'INT64', [], BigInt64Array.of(count));
const weight = (graph: GraphBuilder): string =>
  graph.weight('w', [4, 4], new Float32Array(noise('w', [4, 4], 1).data.buffer));

/** With all that can be there on the GPU, with every operator a call of its own, and with nothing but the first on the GPU. */
function plansOf(draft: OperatorDraft) {
  const order = draft.operators.map(({ name }) => name);
  const lacking = draft.operators.filter(({ obstacle }) => obstacle !== null);
  const butFirst = draft.operators.filter(({ obstacle }, index) => obstacle !== null || index > 0);
  return [lacking, draft.operators, butFirst].map((onCpu, index) => ({
    id: `plan-${index}`,
    order,
    segments: onCpu.map(({ name }, place) => ({ core: 1 + (place % 2), operators: [name] })),
  }));
}

/** The outputs of every run under every plan, plan by plan. */
async function answers(
  graph: GraphBuilder,
  runs: readonly (readonly Tensor[])[],
  expected?: readonly (readonly Tensor[])[],
): Promise<{ readonly draft: OperatorDraft; readonly errors: readonly number[] }> {
  const model = graph.build();
  const modelPath = join(folder, `${model.graph.name}.onnx`);
  await writeModel(model, modelPath);
  const shapes: InputShapes = Object.fromEntries(runs[0]!.map((input) => [input.name, input.shape]));
  const prepared = await hybridGraph({ modelPath, shapes, cells: 1, cacheFolder: join(folder, 'cache') });
  const partFolder = join(folder, 'parts');
  const draft = await draftOperators(prepared, { operators, settings: defaultSettings, partFolder });
  const wanted = expected ?? (await Promise.all(runs.map((inputs) => runOnnxRuntime(modelPath, inputs))));
  const errors: number[] = [];
  await withEmulatedCuda({ devices: 1 }, async (cuda) => {
    const engine = new Engine(cuda, { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 24 });
    for (const plan of plansOf(draft)) {
      const hybrid = await compileHybrid(prepared, plan, operators, defaultSettings, partFolder);
      engine.addFunction('f', hybrid.layout);
      const open = await OpenHybrid.open(engine, 'f', hybrid, cores);
      const options = { gpu: 0, plan: loading(prepared.base.layers, hybrid.promise.layers) };
      for (const [run, inputs] of runs.entries()) {
        const { outputs } = await open.run(inputs, options);
        expect(outputs.map(({ name }) => name)).toEqual(wanted[run]!.map(({ name }) => name));
        errors.push(...outputs.map((output, index) => relativeError(output, wanted[run]![index]!)));
      }
      await open.close();
      await engine.removeFunction('f');
    }
    await engine.close();
  });
  return { draft, errors };
}

const obstaclesOf = ({ operators: all }: OperatorDraft): string[] =>
  all.filter(({ obstacle }) => obstacle !== null).map(({ operator }) => operator);

/** A body that adds `added` to its state, and gives the state of every turn. */
function turns(added: string): GraphProto {
  const body = new GraphBuilder('body', { captures: [added] });
  return body.scope('body', () => {
    body.input('turn', INT64, []);
    const go = body.input('go', BOOL, []);
    const state = body.input('state', FLOAT, [2, 4]);
    const next = body.node('Add', [state, added]);
    body.output(body.node('Identity', [go]), BOOL, [], 'go_on');
    body.output(next, FLOAT, [2, 4], 'next');
    body.output(body.node('Identity', [next]), FLOAT, [2, 4], 'each');
    return body.buildGraph();
  });
}

describe.skipIf(emulatorMissing)('between a GPU and cores', () => {
  it('a size that only a run can tell is not taken for that of zeros', async () => {
    const graph = new GraphBuilder('count');
    const x = graph.input('x', FLOAT, [2, 4]);
    const size = graph.node('Shape', [graph.node('NonZero', [x])]);
    graph.output(graph.node('Cast', [size], { to: FLOAT }), FLOAT, [2], 'count');
    graph.output(graph.node('MatMul', [x, weight(graph)]), FLOAT, [2, 4], 'y');
    const runs = [floats('x', [2, 4], [1, 0, 0, 2, 3, 0, 0, 0]), noise('x', [2, 4], 2)].map((input) => [input]);
    const { draft, errors } = await answers(graph, runs);
    expect(obstaclesOf(draft)).toContain('NonZero');
    expect(Math.max(...errors)).toBeLessThan(1e-5);
  });

  it('a loop gives as many turns as it is asked for, and what comes behind it takes them all', async () => {
    const graph = new GraphBuilder('turns');
    const x = graph.input('x', FLOAT, [2, 4]);
    const count = graph.input('n', INT64, []);
    const hidden = graph.node('MatMul', [x, weight(graph)]);
    const always = graph.constant({ tensor: { datatype: 'BOOL', shape: [], data: Uint8Array.of(1) } });
    const body = { graph: turns(hidden) };
    const [last, each] = graph.node('Loop', [count, always, hidden], { body }, { outputs: 2 });
    graph.output(graph.node('Exp', [each]), FLOAT, ['turns', 2, 4], 'each');
    graph.output(graph.node('Relu', [last]), FLOAT, [2, 4], 'last');
    const x1 = noise('x', [2, 4], 2);
    const { draft, errors } = await answers(graph, [
      [x1, steps(3n)],
      [x1, steps(1n)],
      [x1, steps(0n)],
    ]);
    expect(obstaclesOf(draft)).toEqual(expect.arrayContaining(['Loop', 'Exp']));
    expect(obstaclesOf(draft)).not.toContain('MatMul');
    expect(Math.max(...errors)).toBeLessThan(1e-5);
  });

  it('a tensor without elements is waited for by nobody', async () => {
    const graph = new GraphBuilder('empty');
    const x = graph.input('x', FLOAT, [3, 4]);
    const nothing = graph.node('Relu', [graph.node('MatMul', [graph.input('none', FLOAT, [0, 4]), weight(graph)])]);
    const odd = graph.node('Abs', [graph.node('Hardmax', [nothing])]);
    graph.output(graph.node('Concat', [odd, graph.node('Relu', [x])], { axis: 0 }), FLOAT, [3, 4], 'y');
    graph.output(graph.node('Neg', [nothing]), FLOAT, [0, 4], 'empty');
    const { errors } = await answers(graph, [[noise('x', [3, 4], 2), floats('none', [0, 4], [])]]);
    expect(Math.max(...errors)).toBe(0);
  });

  it('outputs that are inputs, weights or constants are given as such', async () => {
    const graph = new GraphBuilder('fixed');
    const x = graph.input('x', FLOAT, [2, 4]);
    const w = weight(graph);
    const odd = graph.node('Hardmax', [graph.node('MatMul', [x, w])]);
    graph.output(graph.node('Shape', [odd]), INT64, [2], 'shape');
    graph.output(graph.node('Relu', [odd]), FLOAT, [2, 4], 'y');
    graph.output(w, FLOAT, [4, 4]);
    graph.output(x, FLOAT, [2, 4]);
    graph.output(graph.node('Identity', [x]), FLOAT, [2, 4], 'same');
    const { errors } = await answers(graph, [[noise('x', [2, 4], 2)]]);
    expect(Math.max(...errors)).toBeLessThan(1e-5);
  });

  it('texts go from the caller to the cores, and the GPU does the rest', async () => {
    const graph = new GraphBuilder('texts');
    const given = graph.node('Cast', [graph.input('texts', STRING, [2, 4])], { to: FLOAT });
    graph.output(graph.node('Neg', [graph.node('MatMul', [given, weight(graph)])]), FLOAT, [2, 4], 'y');
    const numbers = new GraphBuilder('numbers');
    const x = numbers.input('x', FLOAT, [2, 4]);
    numbers.output(numbers.node('Neg', [numbers.node('MatMul', [x, weight(numbers)])]), FLOAT, [2, 4], 'y');
    const path = join(folder, 'numbers.onnx');
    await writeModel(numbers.build(), path);
    const values = [1, 2.5, -3, 4e2, 5, 6, 7, 8];
    const texts = { name: 'texts', datatype: 'BYTES', shape: [2, 4], data: packBytes(values.map(String)) } as const;
    const expected = await runOnnxRuntime(path, [floats('x', [2, 4], values)]);
    const { draft, errors } = await answers(graph, [[texts]], [expected]);
    expect(obstaclesOf(draft)).toEqual(['Cast']);
    expect(Math.max(...errors)).toBeLessThan(1e-5);
  });
});
