/** The gate through the GPU process: a function's answer on a GPU is compared with ONNX Runtime's. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { shapeIn, shapesOf, startGpuProcess, type GpuClient } from '../../../src/gpu/index.ts';
import {
  buildArchitecture,
  describeModel,
  ElementType,
  GraphBuilder,
  trialShapes,
  writeModel,
} from '../../../src/onnx/index.ts';
import type { ColdStartPlan } from '../../../src/plan/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { loadingAll } from '../../support/loading-all.ts';
import { shaped } from '../../support/shapes.ts';

const { model } = buildArchitecture('bert-base', { layers: 1, hidden: 32, heads: 4, vocabulary: 50, positions: 40 });
const shapes = shaped({ input_ids: [1, 7], attention_mask: [1, 7], token_type_ids: [1, 7] });

let folder: string;
let modelPath: string;
let client: GpuClient;
let plan: ColdStartPlan;

beforeAll(async () => {
  if (emulatorMissing) return;
  folder = await mkdtemp(join(tmpdir(), 'turntable-check-'));
  modelPath = join(folder, 'bert.onnx');
  await writeModel(model, modelPath);
  client = startGpuProcess({
    hostBytes: 2 ** 24,
    slabBytes: 2 ** 20,
    gpuBytes: 2 ** 26,
    cacheFolder: join(folder, 'cache'),
    environment: (await buildEmulatedDriver())?.environment ?? {},
    log: () => undefined,
  });
  plan = loadingAll(await client.register({ key: 'bert@1', modelPath, shapes }));
  await client.stage('bert@1');
});
afterAll(async () => {
  if (emulatorMissing) return;
  await client.stop();
  await rm(folder, { recursive: true, force: true });
});

const of = (length: number) =>
  shaped({ input_ids: [1, length], attention_mask: [1, length], token_type_ids: [1, length] });

const tokens = (name: string, length: number, at: (index: number) => number): Tensor =>
  tensorOf(
    name,
    'INT64',
    [1, length],
    BigInt64Array.from({ length }, (_, index) => BigInt(at(index))),
  );
const call = (length: number, first = 3): Tensor[] => [
  tokens('input_ids', length, (index) => (index === 0 ? first : index)),
  tokens('attention_mask', length, () => 1),
  tokens('token_type_ids', length, () => 0),
];

const four = (values: readonly number[]): Tensor => tensorOf('x', 'FP32', [4], Float32Array.from(values));

/** `rows` different texts of seven tokens. */
const texts = (rows: number): Tensor[] =>
  call(7).map(({ name, data }, place) => {
    const all = Array.from({ length: rows }, (_, row) =>
      data.map((byte) => (place === 0 && byte > 0 ? byte + row : byte)),
    );
    return { name, datatype: 'INT64', shape: [rows, 7], data: new Uint8Array(Buffer.concat(all)) };
  });

describe.skipIf(emulatorMissing)('a check', () => {
  test('a check of a correct program agrees, on drawn inputs and on those of a call', async () => {
    expect(await client.check('bert@1', { gpu: 0, plan })).toEqual({
      kind: 'agreed',
      difference: expect.any(Number),
      inputs: 'drawn',
      precision: 'fp32',
      tolerance: 1e-3,
    });
    // Another length than that of the registration.
    expect(await client.check('bert@1', { gpu: 0, plan, inputs: call(5) })).toMatchObject({
      kind: 'agreed',
      difference: expect.any(Number),
      inputs: 'given',
    });
  });

  test('a check of an earlier answer names the output and the element that differ', async () => {
    const inputs = call(4);
    const { outputs } = await client.run('bert@1', inputs, { gpu: 0, plan });
    expect(await client.check('bert@1', { gpu: 0, plan, inputs, outputs })).toMatchObject({ kind: 'agreed' });
    const [first] = outputs;
    const values = new Float32Array(new Uint8Array(first!.data).buffer);
    values[2]! += 1;
    const wrong = [{ ...first!, data: new Uint8Array(values.buffer) }, ...outputs.slice(1)];
    const verdict = await client.check('bert@1', { gpu: 0, plan, inputs, outputs: wrong });
    expect(verdict).toMatchObject({ kind: 'disagreed', output: first!.name });
    expect(verdict).toHaveProperty(
      'why',
      expect.stringMatching(/^element 2 of \[.*\] is .* on the GPU and .* in ONNX/),
    );
    const cut = [{ ...first!, shape: [1, ...first!.shape] }, ...outputs.slice(1)];
    expect(await client.check('bert@1', { gpu: 0, plan, inputs, outputs: cut })).toHaveProperty(
      'why',
      expect.stringMatching(/^it is FP32 \[1,1,.* on the GPU, and FP32 \[1,/),
    );
  });

  test('a check on inputs that ONNX Runtime refuses is undecided', async () => {
    const verdict = await client.check('bert@1', { gpu: 0, plan, inputs: call(4, 1000) });
    expect(verdict).toMatchObject({ kind: 'undecided' });
    expect(verdict).toHaveProperty('why', expect.stringMatching(/out of.*bounds|out of.*range/i));
  });

  test('a check is undecided where all outputs are too small to tell, and decided by inputs with larger ones', async () => {
    const graph = new GraphBuilder('detector', { opset: 17 });
    graph.input('x', ElementType.FLOAT, [4]);
    graph.output(graph.node('Sigmoid', ['x']), ElementType.FLOAT, [4]);
    const path = join(folder, 'detector.onnx');
    await writeModel(graph.build(), path);
    const coverage = await client.register({ key: 'detector@1', modelPath: path, shapes: shaped({ x: [4] }) });
    await client.stage('detector@1');
    const order = { gpu: 0, plan: loadingAll(coverage) };
    // ONNX Runtime's logistic function ends at 8.9e-8.
    expect(await client.check('detector@1', { ...order, inputs: [four([-18, -19, -20, -30])] })).toMatchObject({
      kind: 'undecided',
      why: expect.stringMatching(/^output '.*': element . of \[4\] is .*, which is too little to tell/) as string,
    });
    expect(await client.check('detector@1', { ...order, inputs: [four([-18, 2, -20, 0])] })).toMatchObject({
      kind: 'agreed',
      difference: expect.any(Number),
    });
  });
});

describe.skipIf(emulatorMissing)('shapes', () => {
  test('shapes that are refused do not affect other prepared shapes', async () => {
    expect(await client.prepare('bert@1', { shapes: of(9) })).toMatchObject({ covered: true });
    const refused = await client.prepare('bert@1', { shapes: of(60) });
    expect(refused).toMatchObject({ covered: false });
    expect(await client.prepare('bert@1', { shapes: of(12) })).toMatchObject({ covered: true });
    expect(await client.check('bert@1', { gpu: 0, plan, inputs: call(12) })).toMatchObject({ kind: 'agreed' });
  });

  test('shapes of three texts run in the program for four, and their answer has three', async () => {
    const program = shapesOf(texts(4));
    expect(await client.prepare('bert@1', { shapes: shapesOf(texts(3)), program })).toEqual({ covered: true });
    const { outputs } = await client.run('bert@1', texts(3), { gpu: 0, plan });
    expect(outputs.map(({ shape }) => shape[0])).toEqual(outputs.map(() => 3));
    expect(await client.check('bert@1', { gpu: 0, plan, inputs: texts(3), outputs })).toMatchObject({ kind: 'agreed' });
    // The shapes of the larger program, which was made for the padded call, are covered too.
    expect(await client.check('bert@1', { gpu: 0, plan, inputs: texts(4) })).toMatchObject({ kind: 'agreed' });
  });

  test('shapes of a model that mixes rows have no larger program', async () => {
    const graph = new GraphBuilder('meets', { opset: 17 });
    graph.input('x', ElementType.FLOAT, ['batch', 4]);
    const scaled = graph.node('Softmax', ['x'], { axis: 0 });
    graph.output(scaled, ElementType.FLOAT, ['batch', 4]);
    const path = join(folder, 'meets.onnx');
    await writeModel(graph.build(), path);
    await client.register({ key: 'meets@1', modelPath: path, shapes: shaped({ x: [1, 4] }) });
    const order = { shapes: shaped({ x: [3, 4] }), program: shaped({ x: [4, 4] }) };
    expect(await client.prepare('meets@1', order)).toMatchObject({
      isExactOnly: true,
      reason: expect.stringMatching(/^Softmax '.*' works along the rows$/) as string,
    });
    expect(await client.prepare('meets@1', { shapes: order.shapes })).toEqual({ covered: true });
  });

  test('shapes tried for a model of 40 positions end at the first length that fits', async () => {
    const [first, ...alternatives] = trialShapes(describeModel(model).inputs);
    expect(shapeIn(first, 'input_ids')).toEqual([1, 128]);
    const coverage = await client.register({ key: 'short@1', modelPath, shapes: first, alternatives });
    expect(coverage).toMatchObject({ covered: true, shapes: of(32) });
  });
});
