import { link, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildArchitecture, ElementType, GraphBuilder, readModel, tensorBytes, writeModel } from '../../onnx/index.ts';
import type { Emitter, Operator } from '../operators/types.ts';
import { elementwiseOperators } from '../operators/elementwise/expressed.ts';
import { viewOperators } from '../operators/views.ts';
import { compileModel, ProgramError, type Program } from './index.ts';
import { singlesToFp16 } from '../../tensor/index.ts';
import { shaped } from '../../../test/support/shapes.ts';
import type { InputShapes } from './types.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-program-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** An operator whose kernel does nothing: it declares what it reads and writes. */
const touching = (type: string): Operator => ({
  type,
  emit(emitter: Emitter) {
    const kernel = emitter.kernel('touch', `KERNEL void NAME() { /* ${type} */ }`);
    const inputs = emitter.node.proto.input.flatMap((name, index) => (name === '' ? [] : [emitter.required(index)]));
    const outputs = emitter.node.proto.output.flatMap((_, index) => emitter.output(index) ?? []);
    emitter.launch({
      kernel,
      grid: [1],
      block: [32],
      arguments: [
        ...inputs.map(({ buffer }) => ({ type: 'read' as const, buffer })),
        ...outputs.map(({ buffer }) => ({ type: 'write' as const, buffer })),
      ],
    });
  },
});

const operators: readonly Operator[] = [
  ...viewOperators,
  ...elementwiseOperators,
  ...'MatMul Gemm Gather LayerNormalization Softmax Transpose Split Conv MaxPool GlobalAveragePool LSTM Concat'
    .split(' ')
    .map(touching),
];

async function write(name: string, build: (graph: GraphBuilder) => void): Promise<string> {
  const graph = new GraphBuilder(name);
  build(graph);
  const path = join(folder, `${name}.onnx`);
  await writeModel(graph.build(), path);
  return path;
}

const tinyBert = { layers: 2, hidden: 32, heads: 4, vocabulary: 600, positions: 40 };

async function architecture(name: string, settings: Record<string, number | number[]>): Promise<string> {
  const path = join(folder, `${name}.onnx`);
  await writeModel(buildArchitecture(name, settings).model, path);
  return path;
}

const tokenShapes = (batch: number, sequence: number): InputShapes =>
  ['input_ids', 'attention_mask', 'token_type_ids'].map((name) => ({ name, shape: [batch, sequence] }));

const cache = (): string => join(folder, 'cache');

const lookedUpIn = (path: string, precision: 'fp16' | 'bf16'): Promise<Program> =>
  compileModel(path, shaped({ ids: [3] }), [touching('Gather')], { cacheFolder: cache(), settings: { precision } });

/** A weight's bytes on disk. */
async function bytesAt(program: Program, name: string): Promise<Uint8Array> {
  const weight = program.layout.weights.find((each) => each.name === name);
  if (weight === undefined) throw new Error(`no weight '${name}'`);
  const file = await readFile(weight.source.path);
  return file.subarray(weight.source.byteOffset, weight.source.byteOffset + weight.bytes);
}

const modelFiles = ({ layout }: Program): Set<string> =>
  new Set(layout.weights.map(({ source }) => source.path).filter((each) => each.endsWith('.onnx')));

test('a model under two names is compiled once for both, and each program reads the file of its own name', async () => {
  const { model } = buildArchitecture('bert-base', tinyBert);
  const path = join(folder, 'two-names.onnx');
  await writeModel(model, path);
  const other = join(folder, 'other-name.onnx');
  await link(path, other);
  const cacheFolder = join(folder, 'two-names-cache');
  const shapes = shaped({ input_ids: [1, 8], attention_mask: [1, 8], token_type_ids: [1, 8] });
  let emitted = 0;
  const counted = operators.map((operator) =>
    operator.type === 'Softmax'
      ? { ...operator, emit: (emitter: Emitter) => (emitted++, operator.emit(emitter)) }
      : operator,
  );
  const [one, two] = await Promise.all(
    [path, other].map((each) => compileModel(each, shapes, counted, { cacheFolder })),
  );
  expect(two!.key).toBe(one!.key);
  expect(emitted).toBe(tinyBert.layers);
  expect([modelFiles(one!), modelFiles(two!)]).toEqual([new Set([path]), new Set([other])]);
});

test('the layout is the same for every input shape, and its bytes are those of the model', async () => {
  const path = await architecture('bert-base', tinyBert);
  const one = await compileModel(path, tokenShapes(1, 8), operators, { cacheFolder: cache() });
  const two = await compileModel(path, tokenShapes(3, 16), operators, { cacheFolder: cache() });
  expect(two.layout).toEqual(one.layout);
  expect(two.key).not.toBe(one.key);
  const model = await readModel(path);
  expect(one.layout.weights).toHaveLength(model.graph.initializer.length);
  for (const tensor of model.graph.initializer) {
    expect(Buffer.compare(await bytesAt(one, tensor.name), tensorBytes(tensor))).toBe(0);
  }
  const large = one.layout.weights.find(({ name }) => name.endsWith('word_embeddings.weight'));
  expect(large?.source.path).toBe(path);
});

test('the weights of a layer are adjacent, aligned, and fill its block', async () => {
  const path = await architecture('gpt2', { ...tinyBert, vocabulary: 50 });
  const { layout } = await compileModel(path, shaped({ input_ids: [1, 8] }), operators, { cacheFolder: cache() });
  for (const { index, bytes } of layout.layers) {
    let end = 0;
    for (const weight of layout.weights.filter(({ layer }) => layer === index)) {
      expect(weight.byteOffset % 256).toBe(0);
      expect(weight.byteOffset).toBeGreaterThanOrEqual(end);
      end = weight.byteOffset + weight.bytes;
    }
    expect(bytes).toBe(Math.ceil(end / 256) * 256);
  }
  expect(layout.bytes).toBe(layout.layers.reduce((sum, { bytes }) => sum + bytes, 0));
});

test('the weights of Q, K and V are adjacent in the layer of Q', async () => {
  const path = await architecture('bert-base', tinyBert);
  const { layout } = await compileModel(path, tokenShapes(1, 8), operators, { cacheFolder: cache() });
  const query = layout.layers.find(({ name }) => name.endsWith('layer.1.attention.self.query'))!;
  const held = layout.weights.filter(({ layer }) => layer === query.index);
  expect(held.map(({ name }) => name.split('.').slice(-2).join('.'))).toEqual(
    ['weight', 'bias'].flatMap((kind) => ['query', 'key', 'value'].map((name) => `${name}.${kind}`)),
  );
  // 32 x 32 floats each, then 32 each, aligned to 256 bytes.
  expect(held.map(({ byteOffset }) => byteOffset)).toEqual([0, 4096, 8192, 12_288, 12_544, 12_800]);
  const rest = layout.layers.slice(query.index + 1, query.index + 3);
  expect(rest.map(({ name, bytes }) => [name.split('.').at(-1), bytes])).toEqual([
    ['key', 0],
    ['value', 0],
  ]);
});

test('launches are in the order of layers, and name every layer that they read', async () => {
  const path = await architecture('gpt2', { ...tinyBert, vocabulary: 50 });
  const program = await compileModel(path, shaped({ input_ids: [1, 8] }), operators, { cacheFolder: cache() });
  let last = 0;
  for (const { layer, reads } of program.launches) {
    expect(layer).toBeGreaterThanOrEqual(last);
    last = layer;
    for (const read of reads) expect(read).toBeLessThanOrEqual(layer);
  }
  // The table of tokens is also the output projection.
  const table = program.layout.weights.findIndex(({ name }) => name.endsWith('wte.weight'));
  const readers = program.launches.filter(
    (launch) =>
      launch.kind === 'kernel' &&
      launch.arguments.some(
        (each) => each.type === 'pointer' && each.operand.space === 'weight' && each.operand.weight === table,
      ),
  );
  expect(readers.length).toBeGreaterThan(1);
  expect(readers.at(-1)?.reads).toContain(program.layout.weights[table]?.layer);
  expect(readers.at(-1)?.layer).toBeGreaterThan(program.layout.weights[table]!.layer);
});

test('an Identity of a weight is that weight, and shape arithmetic needs no launch', async () => {
  const path = await write('aliases', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 8]);
    const scale = graph.weight('scale', [8], new Float32Array(8).fill(3));
    const alias = graph.node('Identity', [scale]);
    const first = graph.node('Mul', [x, scale]);
    const second = graph.node('Add', [first, alias]);
    const shape = graph.node('Shape', [x]);
    const batch = graph.node('Gather', [shape, graph.constant({ ints: 0 })], { axis: 0 });
    const whole = graph.node(
      'Concat',
      [graph.node('Unsqueeze', [batch, graph.constant({ ints: [0] })]), graph.constant({ ints: [2, 4] })],
      { axis: 0 },
    );
    graph.output(graph.node('Reshape', [second, whole]), ElementType.FLOAT, ['batch', 2, 4], 'y');
  });
  const program = await compileModel(path, shaped({ x: [5, 8] }), operators, { cacheFolder: cache() });
  expect(program.layout.weights.map(({ name }) => name)).toEqual(['scale']);
  expect(program.launches).toHaveLength(1);
  expect(program.outputs).toMatchObject([{ name: 'y', shape: [5, 2, 4] }]);
});

test('a value that follows from weights alone is computed once, for all shapes', async () => {
  const path = await write('derived', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    const weight = graph.weight('w', [4], Float32Array.of(1, 2, 3, 4));
    const doubled = graph.node('Mul', [weight, graph.constant({ floats: 2 })]);
    graph.output(graph.node('Add', [x, doubled]), ElementType.FLOAT, ['batch', 4], 'y');
  });
  const program = await compileModel(path, shaped({ x: [2, 4] }), operators, { cacheFolder: cache() });
  expect(program.layout.weights).toHaveLength(1);
  const bytes = await bytesAt(program, program.layout.weights[0]!.name);
  expect(new Float32Array(new Uint8Array(bytes).buffer)).toEqual(Float32Array.of(2, 4, 6, 8));
  expect(program.launches).toHaveLength(1);
});

test('all weights of products, their biases and tables are kept in 16 bits, in a file that has them so', async () => {
  const path = await architecture('bert-base', tinyBert);
  const shapes = tokenShapes(1, 8);
  const settings = { precision: 'fp16' as const };
  const folder = cache();
  const program = await compileModel(path, shapes, operators, { cacheFolder: folder, settings });
  const wide = await compileModel(path, shapes, operators, { cacheFolder: folder });
  for (const { name, datatype, bytes, shape } of program.layout.weights) {
    const narrow = !name.includes('LayerNorm');
    expect([name, datatype]).toEqual([name, narrow ? 'FP16' : 'FP32']);
    expect(bytes).toBe(shape.reduce((product, size) => product * size, narrow ? 2 : 4));
    const whole = new Uint8Array(await bytesAt(wide, name));
    const halves = new Uint16Array(whole.byteLength / 4);
    singlesToFp16(new Uint32Array(whole.buffer), halves);
    expect(Buffer.from(await bytesAt(program, name)).equals(narrow ? Buffer.from(halves.buffer) : whole)).toBe(true);
  }
});

test('a weight with a value beyond its 16 bits is refused by name, and infinite ones stay as they are', async () => {
  const largeAt = 777;
  const table = (values: readonly number[]): Promise<string> =>
    write('table', (graph) => {
      const ids = graph.input('ids', ElementType.INT64, ['batch']);
      const rows = Float32Array.from({ length: 2000 }, (_, at) =>
        at < largeAt ? at / 2000 : (values[at - largeAt] ?? 0),
      );
      graph.output(graph.node('Gather', [graph.weight('table', [500, 4], rows), ids]), ElementType.FLOAT, [], 'y');
    });
  const path = await table([-65_520]);
  await expect(lookedUpIn(path, 'fp16')).rejects.toThrow("element 777 of weight 'table' is too large for FP16");
  expect((await lookedUpIn(path, 'bf16')).layout.bytes).toBeGreaterThan(0);
  const program = await lookedUpIn(await table([65_519, Infinity, -Infinity, NaN]), 'fp16');
  const bits = new Uint16Array(new Uint8Array(await bytesAt(program, 'table')).buffer);
  expect([...bits.subarray(largeAt, largeAt + 3)]).toEqual([0x7bff, 0x7c00, 0xfc00]);
});

test('the error for a model that is not covered names all obstacles', async () => {
  const path = await write('uncovered', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    const found = graph.node('NonZero', [graph.node('Relu', [x])]);
    graph.output(found, ElementType.INT64, [2, 'found'], 'y');
    graph.output(
      graph.node('Det', [graph.node('Reshape', [x, graph.constant({ ints: [-1, 2, 2] })])]),
      ElementType.FLOAT,
      ['batch'],
      'z',
    );
  });
  const error = (await compileModel(path, shaped({ x: [1, 4] }), operators, { cacheFolder: cache() }).catch(
    (reason: unknown) => reason,
  )) as ProgramError;
  expect(error).toBeInstanceOf(ProgramError);
  expect(error.message).toMatch(/cannot run this model: .*'\/(NonZero|Det)'/);
  expect(error.obstacles.map(({ node, operator }) => [node, operator])).toEqual(
    expect.arrayContaining([
      ['/NonZero', 'NonZero'],
      ['/Det', 'Det'],
    ]),
  );
});

test('the error for shapes that do not fit the model names the input', async () => {
  const path = await write('shapes', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    graph.output(graph.node('Relu', [x]), ElementType.FLOAT, ['batch', 4], 'y');
  });
  const compile = (shapes: Record<string, number[]>) =>
    compileModel(path, shaped(shapes), operators, { cacheFolder: cache() });
  await expect(compile({ x: [1, 5] })).rejects.toThrow(
    "the input 'x' has the shape [batch,4], which [1,5] does not fit",
  );
  await expect(compile({ z: [1] })).rejects.toThrow("the model has no input 'z'");
  await expect(compile({})).rejects.toThrow("the input 'x' has no shape given, and the model leaves it open");
  await expect(compile({ x: [1, 5] })).rejects.toBeInstanceOf(ProgramError);
});

test('a program is read from the cache unchanged, and a damaged one is made again', async () => {
  const path = await write('cached', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, [2, 4]);
    const half = graph.constant({ floats: [0.5, 0.25, 1, 2] });
    graph.output(graph.node('Mul', [graph.node('Tanh', [x]), half]), ElementType.FLOAT, [2, 4], 'y');
  });
  const cacheFolder = join(folder, 'own-cache');
  const made = await compileModel(path, [], operators, { cacheFolder });
  const [file] = await readdir(join(cacheFolder, 'programs'));
  const stored = join(cacheFolder, 'programs', file!);
  const whole = await readFile(stored);
  expect(await compileModel(path, [], operators, { cacheFolder })).toEqual(made);
  for (const damage of [whole.subarray(0, 3), whole.subarray(0, -2), Buffer.from('not a program at all')]) {
    await writeFile(stored, damage);
    expect(await compileModel(path, [], operators, { cacheFolder })).toEqual(made);
    expect(Buffer.compare(await readFile(stored), whole)).toBe(0);
  }
});

test('a chain of elementwise operators is one kernel, and without fusion one for each', async () => {
  const path = await write('chain', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, [4, 64]);
    let y = graph.node('Sigmoid', [x]);
    y = graph.node('Mul', [y, x]);
    y = graph.node('Add', [y, graph.weight('bias', [64], new Float32Array(64))]);
    graph.output(graph.node('Relu', [y]), ElementType.FLOAT, [4, 64], 'y');
  });
  const fused = await compileModel(path, [], operators, { cacheFolder: cache() });
  expect(fused.launches).toHaveLength(1);
  const plain = await compileModel(path, [], operators, { cacheFolder: cache(), fusion: false });
  expect(plain.launches).toHaveLength(4);
  expect(plain.key).not.toBe(fused.key);
});

test('an output may be an input, a weight or a constant, and two outputs may be one value', async () => {
  const path = await write('plain-outputs', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, [4]);
    const weight = graph.weight('w', [4], Float32Array.of(1, 2, 3, 4));
    const y = graph.node('Tanh', [x]);
    graph.output(y, ElementType.FLOAT, [4], 'y');
    graph.output(graph.node('Reshape', [y, graph.constant({ ints: [2, 2] })]), ElementType.FLOAT, [2, 2], 'y2');
    graph.output(x, ElementType.FLOAT, [4], 'same');
    graph.output(graph.node('Identity', [weight]), ElementType.FLOAT, [4], 'kept');
    graph.output(graph.node('Shape', [x]), ElementType.INT64, [1], 'shape');
  });
  const program = await compileModel(path, [], operators, { cacheFolder: cache() });
  expect(program.outputs.map(({ name, shape, bytes }) => [name, shape, bytes])).toEqual([
    ['y', [4], 16],
    ['y2', [2, 2], 16],
    ['same', [4], 16],
    ['kept', [4], 16],
    ['shape', [1], 8],
  ]);
  const copies = program.launches.flatMap((launch) => (launch.kind === 'copy' ? [launch.from.space] : []));
  expect(copies).toEqual(['arena', 'weight', 'constant']);
  expect(new Set(program.outputs.map(({ byteOffset }) => byteOffset)).size).toBe(4);
});

test('a model with an empty input compiles to a program without launches', async () => {
  const path = await write('empty', (graph) => {
    const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    graph.output(graph.node('Relu', [graph.node('Tanh', [x])]), ElementType.FLOAT, ['batch', 4], 'y');
  });
  const program = await compileModel(path, shaped({ x: [0, 4] }), operators, { cacheFolder: cache() });
  expect(program.launches).toEqual([]);
  expect(program.outputs).toMatchObject([{ shape: [0, 4], bytes: 0 }]);
});

test("weights in a model's external data are read from there", async () => {
  const path = join(folder, 'external.onnx');
  const { model } = buildArchitecture('mlp', { layers: 3, input: 64, hidden: 48, output: 32 });
  await writeModel(model, path, { externalData: 'always' });
  const shapes = model.graph.input.map(({ name, type }) => ({
    name,
    shape: (type?.tensorType?.shape?.dim ?? []).map(({ dimValue }) => Number(dimValue ?? 2n)),
  }));
  const program = await compileModel(path, shapes, operators, { cacheFolder: cache() });
  const beside = program.layout.weights.filter(({ source }) => source.path === `${path}.data`);
  expect(beside.length).toBeGreaterThan(1);
  const stored = await readModel(path);
  for (const { name } of beside) {
    const tensor = stored.graph.initializer.find((each) => each.name === name)!;
    expect(Buffer.compare(await bytesAt(program, name), tensorBytes(tensor, folder))).toBe(0);
  }
});
