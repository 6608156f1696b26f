/**
 * Special values between a GPU and cores: empty tensors, strings, sizes known only at run time, unused results, and
 * values that cannot cross.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { compileHybrid } from '../../../src/gpu/hybrid/compile.ts';
import { CpuCores } from '../../../src/gpu/hybrid/cpu-cores.ts';
import { openHybrid } from '../../../src/gpu/hybrid/open.ts';
import { draftOperators, type OperatorDraft } from '../../../src/gpu/hybrid/operator-draft.ts';
import { graphProfileOf } from '../../../src/gpu/hybrid/operator-profile.ts';
import { hybridGraph } from '../../../src/gpu/hybrid/prepare.ts';
import type { HybridPlan } from '../../../src/gpu/hybrid/types.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { defaultSettings } from '../../../src/gpu/program/index.ts';
import { ElementType, GraphBuilder, writeModel, type GraphProto, type ModelProto } from '../../../src/onnx/index.ts';
import { hybridPlanOf, planCpuOnly, planVariants, planChrion } from '../../../src/plan/chrion/index.ts';
import { packBytes, tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { relativeError, runOnnxRuntime } from '../../support/run-program.ts';
import { loading, noise } from './examples.ts';
import { randomOf } from './random-plans.ts';
import { shapesOf } from '../../../src/gpu/index.ts';

const use = sharedEmulatedCuda({ devices: 1 });
let folder: string;
let cores: CpuCores;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-boundaries-'));
  cores = new CpuCores({ count: 2 });
});
afterAll(async () => {
  await cores.close();
  await rm(folder, { recursive: true, force: true });
});

const { FLOAT, INT64, BOOL, STRING } = ElementType;
const floats = (name: string, shape: readonly number[], values: readonly number[]): Tensor =>
  tensorOf(name, 'FP32', shape, Float32Array.from(values));
const steps = (count: bigint): Tensor => tensorOf('n', 'INT64', [], BigInt64Array.of(count));
const weight = (graph: GraphBuilder, name = 'w'): string =>
  graph.weight(name, [4, 4], new Float32Array(noise(name, [4, 4], name.length).data.buffer));

/**
 * Four plans: everything possible on the GPU; every operator as its own call; only the first on the GPU; and the
 * planner's choice for arbitrary times.
 */
function plansOf(draft: OperatorDraft): HybridPlan[] {
  const order = draft.operators.map(({ name }) => name);
  const lacking = draft.operators.filter(({ obstacle }) => obstacle !== null);
  const butFirst = draft.operators.filter(({ obstacle }, index) => obstacle !== null || index > 0);
  const byHand = [lacking, draft.operators, butFirst].map((onCpu, index) => ({
    id: `plan-${index}`,
    order,
    segments: onCpu.map(({ name }, place) => ({ core: 1 + (place % 2), operators: [name] })),
  }));
  return [...byHand, ...[1, 2, 3].flatMap((seed) => plannersOwn(draft, seed))];
}

function plannersOwn(draft: OperatorDraft, seed: number): HybridPlan[] {
  const random = randomOf(seed);
  const nodes = draft.operators.flatMap((operator) => operator.nodes);
  const profile = graphProfileOf(draft, {
    gpuMs: new Map(nodes.map(({ label }) => [label, random()])),
    cpuMs: new Map(nodes.map(({ name }) => [name, [random(), 1 + random()]])),
    bandwidth: 10,
    latencyMs: 0.01,
    callMs: 0.01,
  });
  const plans = [planChrion(profile, { alpha: 0 }), planCpuOnly(profile), ...planVariants(profile)];
  return plans.map((plan, index) => hybridPlanOf(plan, `planned-${seed}-${index}`));
}

/** The outputs of every run under every plan, plan by plan. */
async function answers(
  made: GraphBuilder | ModelProto,
  runs: readonly (readonly Tensor[])[],
  expected?: readonly (readonly Tensor[])[],
): Promise<{ readonly draft: OperatorDraft; readonly errors: readonly number[] }> {
  const model = made instanceof GraphBuilder ? made.build() : made;
  const modelPath = join(folder, `${model.graph.name}.onnx`);
  await writeModel(model, modelPath);
  const shapes = shapesOf(runs[0]!);
  const prepared = await hybridGraph({ modelPath, shapes, cells: 1, cacheFolder: join(folder, 'cache') });
  const draft = await draftOperators(prepared, { operators, settings: defaultSettings, cacheFolder: folder });
  const wanted = expected ?? (await Promise.all(runs.map((inputs) => runOnnxRuntime(modelPath, inputs))));
  const errors: number[] = [];
  await use(async (cuda) => {
    const engine = new Engine(cuda, { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 24 });
    for (const plan of plansOf(draft)) {
      const hybrid = await compileHybrid(prepared, plan, operators, defaultSettings, folder);
      engine.addFunction('f', hybrid.layout);
      await engine.stage('f');
      const open = await openHybrid(engine, 'f', hybrid, cores);
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

/** A body that adds `added` to its state, and returns the state of every turn. */
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
  it('a size known only at run time is not taken from a run on zeros', async () => {
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

  it('a loop runs the requested number of turns, and later operators get all of them', async () => {
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

  it('no operator waits for a tensor without elements', async () => {
    const graph = new GraphBuilder('empty');
    const x = graph.input('x', FLOAT, [3, 4]);
    const nothing = graph.node('Relu', [graph.node('MatMul', [graph.input('none', FLOAT, [0, 4]), weight(graph)])]);
    const odd = graph.node('Abs', [graph.node('Hardmax', [nothing])]);
    graph.output(graph.node('Concat', [odd, graph.node('Relu', [x])], { axis: 0 }), FLOAT, [3, 4], 'y');
    graph.output(graph.node('Neg', [nothing]), FLOAT, [0, 4], 'empty');
    const { errors } = await answers(graph, [[noise('x', [3, 4], 2), floats('none', [0, 4], [])]]);
    expect(Math.max(...errors)).toBe(0);
  });

  it('outputs that are inputs, weights or constants are returned unchanged', async () => {
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

  it('strings go from the caller to the cores, and the GPU does the rest', async () => {
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

  it('sequences stay in one call with everything between their operators, and the GPU does the rest', async () => {
    const graph = new GraphBuilder('sequences');
    const hidden = graph.node('MatMul', [graph.input('x', FLOAT, [2, 4]), weight(graph)]);
    const rows = graph.node('SplitToSequence', [hidden], { axis: 0 });
    // These two could be separate calls, if the sequence did not wait for them.
    const count = graph.node('SequenceLength', [rows]);
    const last = graph.node('SequenceAt', [rows, graph.node('Sub', [count, graph.constant({ ints: 1 })])]);
    const three = graph.node('SequenceInsert', [rows, graph.node('Tanh', [last])]);
    graph.output(graph.node('ConcatFromSequence', [three], { axis: 0 }), FLOAT, [3, 4], 'y');
    graph.output(graph.node('Neg', [graph.node('SequenceLength', [three])]), INT64, [], 'count');
    graph.output(graph.node('Relu', [graph.node('MatMul', [hidden, weight(graph, 'w2')])]), FLOAT, [2, 4], 'z');
    const { draft, errors } = await answers(graph, [[noise('x', [2, 4], 2)], [noise('x', [2, 4], 3)]]);
    const shown = draft.operators.map(({ operator, obstacle }) => `${obstacle === null ? 'any' : 'CPU'}: ${operator}`);
    expect(shown.sort()).toEqual([
      `CPU: SplitToSequence + SequenceLength + Sub + SequenceAt + Tanh + SequenceInsert + ConcatFromSequence + SequenceLength`,
      'any: MatMul',
      'any: MatMul',
      'any: Neg',
      'any: Relu',
    ]);
    expect(Math.max(...errors)).toBeLessThan(1e-5);
  });

  it('optional values stay in the call that makes them', async () => {
    const graph = new GraphBuilder('optionals', { opset: 18 });
    const hidden = graph.node('MatMul', [graph.input('x', FLOAT, [2, 4]), weight(graph)]);
    const optional = graph.node('Optional', [hidden]);
    const has = graph.node('OptionalHasElement', [optional]);
    graph.output(graph.node('Not', [has]), BOOL, [], 'has');
    graph.output(graph.node('OptionalGetElement', [optional]), FLOAT, [2, 4], 'y');
    const { draft, errors } = await answers(graph, [[noise('x', [2, 4], 2)]]);
    const kept = draft.operators.filter(({ nodes }) => nodes.length > 1).map(({ operator }) => operator);
    expect(kept).toHaveLength(1);
    expect(kept[0]).toContain('Optional + ');
    expect(kept[0]).toContain('OptionalGetElement');
    expect(draft.operators[0]).toMatchObject({ operator: 'MatMul', obstacle: null });
    expect(Math.max(...errors)).toBeLessThan(1e-5);
  });

  it('bfloat16, which ONNX Runtime does not take, stays on one side, whichever that is', async () => {
    const graph = new GraphBuilder('bfloat16');
    const hidden = graph.node('MatMul', [graph.input('x', FLOAT, [2, 4]), weight(graph)]);
    const short = graph.node('Cast', [hidden], { to: ElementType.BFLOAT16 });
    graph.output(graph.node('Neg', [graph.node('Cast', [short], { to: FLOAT })]), FLOAT, [2, 4], 'y');
    const { draft, errors } = await answers(graph, [[noise('x', [2, 4], 2)]]);
    expect(draft.operators.map(({ operator }) => operator)).toEqual(['MatMul', 'Cast + Cast', 'Neg']);
    expect(draft.operators.map(({ obstacle }) => obstacle)).toEqual([null, null, null]);
    expect(Math.max(...errors)).toBeLessThan(1e-5);
  });
});
