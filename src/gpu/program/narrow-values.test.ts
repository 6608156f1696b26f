import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildArchitecture, ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { operators } from '../operators/index.ts';
import { compileModel, type Program, type ProgramPrecision } from './index.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-narrow-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const { FLOAT } = ElementType;
let models = 0;

async function compiled(build: (graph: GraphBuilder) => void, precision: ProgramPrecision): Promise<Program> {
  const graph = new GraphBuilder('narrow');
  build(graph);
  const path = join(folder, `${models++}.onnx`);
  await writeModel(graph.build(), path);
  return compileModel(path, [], operators, { cacheFolder: folder, settings: { precision } });
}

const conversions = ({ launches }: Program): number =>
  launches.filter((launch) => launch.kind === 'kernel' && launch.kernel.startsWith('convert')).length;

/** Types of A, B and D. */
const typesOf = ({ launches }: Program): string[] =>
  launches.flatMap((launch) => {
    if (launch.kind !== 'matmul') return [];
    const { typeA, typeB, typeD } = launch.description;
    return [`${typeA} ${typeB} ${typeD}`];
  });

const product = (graph: GraphBuilder, x: string, name: string): string =>
  graph.node('MatMul', [x, graph.weight(name, [8, 8], new Float32Array(64))]);

test('a transformer in half precision converts nothing but its last bias', async () => {
  const settings = { layers: 2, hidden: 32, heads: 4, vocabulary: 50, positions: 40 };
  const path = join(folder, 'bert.onnx');
  await writeModel(buildArchitecture('bert-base', settings).model, path);
  const programsOf = async (tokens: number): Promise<Program[]> => {
    const shapes = ['input_ids', 'attention_mask', 'token_type_ids'].map((name) => ({ name, shape: [1, tokens] }));
    const programs: Program[] = [];
    for (const precision of ['exact', 'fp16', 'bf16'] as const) {
      const options = { cacheFolder: folder, settings: { precision } };
      programs.push(await compileModel(path, shapes, operators, options));
    }
    return programs;
  };
  // With more than 16 rows tensor cores are faster: each attention has two products more.
  for (const [tokens, apart] of [
    [8, 0],
    [20, 2],
  ] as const) {
    const [exact, half, brain] = await programsOf(tokens);
    expect([exact, half, brain].map((program) => conversions(program!))).toEqual([0, 1, 1]);
    expect(half!.launches).toHaveLength(exact!.launches.length + 1 + settings.layers * apart);
    // Scores that are written to memory have 32 bits.
    expect(new Set(typesOf(half!))).toEqual(new Set(['f16 f16 f16', ...(apart > 0 ? ['f16 f16 f32'] : [])]));
    expect(half!.arenaBytes).toBeLessThan(exact!.arenaBytes);
  }
});

test('an input of an operator that only reads 32 bits keeps them, and is converted for the product', async () => {
  const program = await compiled((graph) => {
    const x = graph.node('Tanh', [graph.input('x', FLOAT, [8, 8])]);
    const turned = graph.node('Transpose', [x], { perm: [1, 0] });
    graph.output(graph.node('Mul', [product(graph, x, 'w'), turned]), FLOAT, [8, 8], 'y');
  }, 'fp16');
  expect(conversions(program)).toBe(1);
  expect(typesOf(program)).toEqual(['f16 f16 f16']);
});

test('an operand that is an output, also as a view, keeps its 32 bits', async () => {
  const program = await compiled((graph) => {
    const x = graph.node('Tanh', [graph.input('x', FLOAT, [8, 8])]);
    graph.output(graph.node('Reshape', [x, graph.constant({ ints: [64] })]), FLOAT, [64], 'seen');
    graph.output(product(graph, x, 'w'), FLOAT, [8, 8], 'y');
  }, 'fp16');
  expect(program.outputs.map(({ bytes }) => bytes)).toEqual([256, 256]);
  expect(typesOf(program)).toEqual(['f16 f16 f32']);
});

test('both operands of a product of activations have one type', async () => {
  const program = await compiled((graph) => {
    const x = graph.node('Tanh', [graph.input('x', FLOAT, [8, 8])]);
    const kept = graph.node('Sigmoid', [graph.input('z', FLOAT, [8, 8])]);
    graph.output(graph.node('Transpose', [kept], { perm: [1, 0] }), FLOAT, [8, 8], 'seen');
    const mixed = graph.node('MatMul', [product(graph, x, 'w'), kept]);
    graph.output(graph.node('Relu', [mixed]), FLOAT, [8, 8], 'y');
  }, 'fp16');
  expect(typesOf(program)).toEqual(['f16 f16 f32', 'f32 f32 f32']);
});

/** Two branches of 8 channels that are joined, pooled, and convolved again. */
function branches(graph: GraphBuilder, pieceOf: (branch: string) => string): void {
  const x = graph.input('x', FLOAT, [1, 8, 6, 6]);
  const weight = (name: string, channels: number): string =>
    graph.weight(name, [8, channels, 1, 1], new Float32Array(8 * channels));
  const branch = (name: string): string => graph.node('Relu', [graph.node('Conv', [x, weight(name, 8)])]);
  const joined = graph.node('Concat', [pieceOf(branch('a')), branch('b')], { axis: 1 });
  const pooled = graph.node('MaxPool', [joined], { kernel_shape: [2, 2] });
  graph.output(graph.node('Conv', [pooled, weight('c', 16)]), FLOAT, [1, 8, 5, 5], 'y');
  graph.output(graph.node('Conv', [joined, weight('d', 16)]), FLOAT, [1, 8, 6, 6], 'z');
}

test('branches that are joined and pooled are in 16 bits from product to product', async () => {
  const program = await compiled((graph) => branches(graph, (piece) => piece), 'fp16');
  // The input, once for each product that reads it.
  expect(conversions(program)).toBe(2);
  expect(new Set(typesOf(program))).toEqual(new Set(['f16 f16 f16', 'f16 f16 f32']));
});

test('pieces are joined in 32 bits if one of them is an output', async () => {
  const program = await compiled((graph) => {
    branches(graph, (piece) => {
      graph.output(graph.node('Reshape', [piece, graph.constant({ ints: [288] })]), FLOAT, [288], 'seen');
      return piece;
    });
  }, 'fp16');
  // The joined tensor is converted for the product that reads it; the pool writes 16 bits.
  expect(conversions(program)).toBe(3);
});

test.each(['lstm', 'gru'])(
  'an %s holds the weights of its products in 16 bits, as all other products do',
  async (type) => {
    const path = join(folder, `${type}.onnx`);
    const built = buildArchitecture(type, { layers: 2, input: 16, hidden: 16, sequence: 4, batch: 1 });
    await writeModel(built.model, path);
    const shapes = [{ name: 'input', shape: [1, 4, 16] }];
    const bytesOf = async (precision: ProgramPrecision): Promise<number> => {
      const { layout } = await compileModel(path, shapes, operators, { cacheFolder: folder, settings: { precision } });
      return layout.bytes;
    };
    const [exact, half] = [await bytesOf('exact'), await bytesOf('fp16')];
    // The gates' biases stay, of which there are few.
    expect(half / exact).toBeGreaterThan(0.5);
    expect(half / exact).toBeLessThan(0.56);
  },
);
