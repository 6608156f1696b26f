import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildFamily, families, familyInputs, type Family } from '../../test/support/model-families.ts';
import {
  columns,
  independentSteps,
  isConstant,
  mixingSteps,
  modelOfSteps,
  rowModel,
} from '../../test/support/row-models.ts';
import { ElementType, GraphBuilder, writeModel, type ModelProto, type TensorSpec } from '../onnx/index.ts';
import { NativeSession, tensorOf, type Tensor } from '../tensor/index.ts';
import { declaredRows, rowsByGraph, rowsByRuns, thresholdsOf, type RowsByRuns } from './index.ts';

const seed = Number(process.env['TURNTABLE_SEED']);
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-rows-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const example = [tensorOf('x', 'FP32', [1, columns], Float32Array.of(0.3, -0.2, 0.9, 0.1))];

async function opened<Result>(model: ModelProto, use: (session: NativeSession) => Result): Promise<Result> {
  const path = join(folder, 'model.onnx');
  await writeModel(model, path);
  const session = new NativeSession(path, { intraOpNumThreads: 1, logSeverityLevel: 4 });
  try {
    return use(session);
  } finally {
    session.release();
  }
}

const byRuns = (model: ModelProto, inputs: readonly Tensor[] = example): Promise<RowsByRuns> =>
  opened(model, (session) =>
    rowsByRuns({
      run: (given) => session.runTensors(given),
      inputs,
      rowsMax: 12,
      thresholds: thresholdsOf(model),
      isTimeUp: () => false,
    }),
  );

describe('a model of one step', () => {
  test.each(Object.keys(independentSteps))('%s: its rows are found to be independent', async (step) => {
    const model = modelOfSteps([step], seed);
    expect(rowsByGraph(model, example).kind).not.toBe('mixing');
    expect(await byRuns(model)).toEqual({ kind: 'independent' });
  });

  test.each(Object.keys(mixingSteps))('%s: its rows are found to mix', async (step) => {
    const model = modelOfSteps([step], seed);
    expect(rowsByGraph(model, example).kind).not.toBe('independent');
    expect(await byRuns(model)).toMatchObject({ kind: 'mixing' });
  });
});

test(`of generated models of seed ${seed}, the graph or the runs find each that mixes, and none that does not`, async () => {
  const wrong: unknown[] = [];
  let shown = 0;
  for (let index = 0; index < 80; index++) {
    const isMixing = index % 2 === 0;
    const { model, steps } = rowModel(seed + index, isMixing);
    if (isMixing && (await isConstant(model, folder))) continue;
    const [graph, runs] = [rowsByGraph(model, example), await byRuns(model)];
    const isWrong = isMixing
      ? graph.kind === 'independent' || (graph.kind !== 'mixing' && runs.kind !== 'mixing')
      : graph.kind === 'mixing' || runs.kind !== 'independent';
    if (isWrong) wrong.push({ steps, graph, runs });
    if (graph.kind !== 'unknown') shown++;
  }
  expect(wrong).toEqual([]);
  // A graph that shows nothing would pass too.
  expect(shown).toBeGreaterThan(20);
});

const nameOf = ({ kind, exporter, opset }: Family): string => `${kind} of ${exporter} at opset ${opset}`;
const isMixing = ({ precision }: Family): boolean => precision === 'dynamic';

describe("a model in the form of PyTorch's exporters", () => {
  const open = families.filter(({ isDynamic }) => isDynamic);

  test.each(open.filter((family) => !isMixing(family)).map((family) => [family.precision, nameOf(family), family]))(
    'joins its rows: %s %s',
    async (_precision, _name, family) => {
      const [model, inputs] = [buildFamily(family), familyInputs(family)];
      expect(rowsByGraph(model, inputs).kind).not.toBe('mixing');
      expect(await byRuns(model, inputs)).toEqual({ kind: 'independent' });
    },
  );

  test.each(open.filter(isMixing).map((family) => [nameOf(family), family]))(
    'does not join its rows where scales come from all of them: quantized while it runs, %s',
    async (_name, family) => {
      const [model, inputs] = [buildFamily(family), familyInputs(family)];
      expect(rowsByGraph(model, inputs).kind).not.toBe('independent');
      expect(await byRuns(model, inputs)).toMatchObject({ kind: 'mixing' });
    },
  );
});

describe('a check by runs', () => {
  const { FLOAT, INT64 } = ElementType;

  test('a check by runs finds the whole numbers that a lookup takes, and a mask that decides which rows count', async () => {
    const graph = new GraphBuilder('lookup');
    const ids = graph.input('ids', INT64, ['n', 'length']);
    const mask = graph.input('mask', INT64, ['n', 'length']);
    const table = graph.weight(
      'table',
      [50, 2],
      Float32Array.from({ length: 100 }, (_, at) => Math.sin(at)),
    );
    const found = graph.node('Gather', [table, ids]);
    const weighted = graph.node('Mul', [
      found,
      graph.node('Unsqueeze', [graph.node('Cast', [mask], { to: FLOAT }), graph.constant({ ints: [2] })]),
    ]);
    graph.output(
      graph.node('ReduceSum', [weighted, graph.constant({ ints: [1] })], { keepdims: 0 }),
      FLOAT,
      ['n', 2],
      'y',
    );
    const inputs = ['ids', 'mask'].map((name) => tensorOf(name, 'INT64', [1, 3], BigInt64Array.of(1n, 1n, 1n)));
    expect(await byRuns(graph.build(), inputs)).toEqual({ kind: 'independent' });
  });

  test('a check by runs tells a random model from one that mixes', async () => {
    const graph = new GraphBuilder('random');
    const x = graph.input('x', FLOAT, ['n', columns]);
    graph.output(graph.node('Add', [x, graph.node('RandomNormalLike', [x])]), FLOAT, ['n', columns], 'y');
    expect(await byRuns(graph.build())).toMatchObject({
      kind: 'unknown',
      reason: expect.stringContaining('random') as string,
    });
  });

  test('a check by runs of a model that runs single rows alone says so', async () => {
    const graph = new GraphBuilder('single');
    const x = graph.input('x', FLOAT, ['n', columns]);
    graph.output(graph.node('Reshape', [x, graph.constant({ ints: [1, columns] })]), FLOAT, ['n', columns], 'y');
    expect(await byRuns(graph.build())).toMatchObject({
      kind: 'mixing',
      reason: expect.stringContaining('not together') as string,
    });
  });

  test('a check by runs whose inputs the model refuses decides nothing', async () => {
    const model = modelOfSteps(['product'], seed);
    const wrong = [tensorOf('x', 'FP32', [1, 3], new Float32Array(3))];
    expect(await byRuns(model, wrong)).toMatchObject({ kind: 'unknown', isOutOfTime: false });
  });
});

const spec = (name: string, ...shape: (number | string)[]): TensorSpec => ({
  name,
  datatype: 'FP32',
  shape: shape.map((size) => (typeof size === 'string' ? -1 : size)),
  dimensionNames: shape.map((size) => (typeof size === 'string' && size !== '' ? size : undefined)),
});

describe('rows as a model declares them', () => {
  test.each([
    ['an open first dimension everywhere', [spec('x', 'n', 4)], [spec('y', 'm', 4)], 'open'],
    ['two inputs of one symbol', [spec('a', 'n', 4), spec('b', 'n')], [spec('y', 'n')], 'open'],
    ['symbols that converters make up', [spec('a', 'unk__1', 4), spec('b', 'unk__2')], [spec('y', '')], 'open'],
    ['two inputs of two symbols', [spec('x', 'n', 2), spec('w', 'k', 1)], [spec('y', 'n', 2)], 'none'],
    ['one symbol in two dimensions', [spec('x', 'n', 'n')], [spec('y', 'n', 'n')], 'none'],
    ['an output that begins with a number', [spec('x', 'n', 2)], [spec('y', 2, 'n')], 'none'],
    ['an output that is a scalar', [spec('x', 'n', 2)], [spec('y')], 'none'],
    ['an input that begins with a number', [spec('x', 'n', 2), spec('w', 1)], [spec('y', 'n')], 'none'],
    ['a scalar input', [spec('x')], [spec('y')], 'none'],
    ['no inputs', [], [spec('y', 'n')], 'none'],
    ['a fixed first dimension', [spec('x', 8, 3), spec('w', 8)], [spec('y', 3)], 'fixed'],
    ['the samples of a sound', [spec('x', 160_000)], [spec('y', 160_000)], 'none'],
  ] as const)('of a model with %s are found (%#)', (_, inputs, outputs, kind) => {
    expect(declaredRows({ inputs, outputs }).kind).toBe(kind);
  });

  test('what is in the way is named', () => {
    const found = declaredRows({ inputs: [spec('x', 'n', 2)], outputs: [spec('y', 2, 'n')] });
    expect(found).toMatchObject({ reason: expect.stringContaining("output 'y' [2,n]") as string });
  });
});
