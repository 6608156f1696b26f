/** Recurrent networks in the forms of several exporters, and nodes that cannot be unrolled. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Tensor } from 'onnxruntime-node';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runExactly } from '../../../test/support/onnx.ts';
import {
  cellCountOf,
  cellsBehind,
  countOf,
  expectSame,
  floats,
  shapesByRun,
  unrolledAlike,
  wave,
  weightBytes,
  wholeIn,
} from '../../../test/support/unrolling.ts';
import {
  GraphBuilder,
  Graph,
  type AttributeValue,
  readModel,
  ElementType,
  type ModelProto,
  writeModel,
} from '../../onnx/index.ts';
import { unrollRecurrent } from './index.ts';

const { FLOAT, INT32 } = ElementType;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-unroll-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const [batch, sequence, features, hidden] = [2, 6, 3, 4];

/** The matrices and biases of an LSTM under PyTorch's names. */
function weights(graph: GraphBuilder, name: string, directions: number, input: number): [string, string, string] {
  const weight = (part: string, shape: readonly number[]): string =>
    graph.weight(`${name}.${part}`, shape, wave(shape, part.length + name.length, 0.6));
  return [
    weight('weight_ih', [directions, 4 * hidden, input]),
    weight('weight_hh', [directions, 4 * hidden, hidden]),
    weight('bias', [directions, 8 * hidden]),
  ];
}

function lstm(
  graph: GraphBuilder,
  x: string,
  matrices: readonly string[],
  attributes: Readonly<Record<string, AttributeValue>> = {},
  more: readonly string[] = [],
): [y: string, h: string, c: string] {
  return graph.node(
    'LSTM',
    [x, ...matrices, ...more],
    { hidden_size: hidden, ...attributes },
    { name: 'lstm', outputs: 3 },
  );
}

/** Batch first at both ends, two layers of two directions; the initial states are one value, made from the batch. */
function pytorchBidirectional(): ModelProto {
  const graph = new GraphBuilder('main_graph');
  const input = graph.input('input', FLOAT, [batch, sequence, features]);
  let x = graph.node('Transpose', [input], { perm: [1, 0, 2] });
  const zeros = graph.node('Expand', [
    graph.constant({ floats: [0.1], shape: [1, 1, 1] }),
    graph.constant({ ints: [4, batch, hidden] }),
  ]);
  const states: string[] = [];
  for (const layer of [0, 1]) {
    x = graph.scope(`layer.${layer}`, () => {
      const own = graph.node('Slice', [
        zeros,
        graph.constant({ ints: [2 * layer] }),
        graph.constant({ ints: [2 * layer + 2] }),
        graph.constant({ ints: [0] }),
      ]);
      const matrices = weights(graph, 'lstm', 2, layer === 0 ? features : 2 * hidden);
      const [y, h] = lstm(graph, x, matrices, { direction: 'bidirectional' }, ['', own, own]);
      states.push(h);
      const beside = graph.node('Transpose', [y], { perm: [0, 2, 1, 3] });
      return graph.node('Reshape', [beside, graph.constant({ ints: [0, 0, -1] })]);
    });
  }
  graph.output(graph.node('Transpose', [x], { perm: [1, 0, 2] }), FLOAT, [batch, sequence, 2 * hidden], 'output');
  graph.output(graph.node('Concat', states, { axis: 0 }), FLOAT, [4, batch, hidden], 'h_n');
  return graph.build();
}

/** Two directions whose weights are large enough to be left in a file. */
function wide(): ModelProto {
  const graph = new GraphBuilder('wide');
  const x = graph.input('input', FLOAT, [4, 1, 64]);
  const weight = (name: string, shape: readonly number[]): string => graph.weight(name, shape, wave(shape, 3, 0.2));
  const [y] = graph.node(
    'GRU',
    [x, weight('w', [2, 192, 64]), weight('r', [2, 192, 64])],
    { hidden_size: 64, direction: 'bidirectional' },
    { outputs: 2 },
  );
  graph.output(y, FLOAT, [4, 2, 1, 64], 'y');
  return graph.build();
}
const wideShapes = new Map([['input', [4, 1, 64]]]);
const wideInputs = { input: floats([4, 1, 64], 2) };

const series = { input: floats([batch, sequence, features], 1) };

describe("PyTorch's two directions", () => {
  test('pass their chunks to the next layer: its first cell waits for the first one forward and all of those backward', async () => {
    const unrolled = await unrolledAlike(pytorchBidirectional(), series, 2);
    expect(cellCountOf(unrolled)).toBe(12);
    const chunks = ['step0-1', 'step2-3', 'step4-5'];
    expect(cellsBehind(unrolled, '/layer.1/lstm/forward/step0-1')).toEqual([
      '/layer.0/lstm/forward/step0-1',
      ...chunks.map((chunk) => `/layer.0/lstm/reverse/${chunk}`),
      '/layer.1/lstm/forward/step0-1',
    ]);
    expect(cellsBehind(unrolled, '/layer.1/lstm/reverse/step4-5')).toEqual([
      ...chunks.map((chunk) => `/layer.0/lstm/forward/${chunk}`),
      '/layer.0/lstm/reverse/step4-5',
      '/layer.1/lstm/reverse/step4-5',
    ]);
  });

  test('in cells of one step are side by side with one node between layers, and none per step', async () => {
    const unrolled = await unrolledAlike(pytorchBidirectional(), series, 1);
    const behindFirst = unrolled.graph.node.filter(({ name }) => name.startsWith('/layer.0/Reshape'));
    expect(behindFirst.map(({ opType }) => opType)).toEqual(Array.from({ length: sequence }, () => 'Concat'));
    // One at each end of the network, and one of the whole after its last layer.
    expect(countOf(unrolled, 'Transpose')).toBe(3);
  });

  test.each([1, 2, 3, 4, 5])('give the same answer in cells of %i steps', async (steps) => {
    const unrolled = await unrolledAlike(pytorchBidirectional(), series, steps);
    expect(cellCountOf(unrolled)).toBe(4 * Math.ceil(sequence / steps));
  });

  test('may be used as more items instead of more features', async () => {
    const graph = new GraphBuilder('items');
    const x = graph.input('input', FLOAT, [sequence, batch, features]);
    const [y] = graph.scope('first', () =>
      lstm(graph, x, weights(graph, 'lstm', 2, features), { direction: 'bidirectional' }),
    );
    const beside = graph.node('Transpose', [y], { perm: [0, 2, 1, 3] });
    const items = graph.node('Reshape', [beside, graph.constant({ ints: [0, -1, hidden] })]);
    const [z] = graph.scope('second', () => lstm(graph, items, weights(graph, 'lstm', 1, hidden)));
    graph.output(z, FLOAT, [sequence, 1, 2 * batch, hidden], 'z');
    const unrolled = await unrolledAlike(graph.build(), { input: floats([sequence, batch, features], 1) }, 1);
    expect(cellsBehind(unrolled, '/second/lstm/step0-0')).toHaveLength(1 + sequence + 1);
  });

  test('read the two halves of each weight, and nothing twice', async () => {
    const model = pytorchBidirectional();
    const unrolled = await unrolledAlike(model, series, 3);
    expect(weightBytes(unrolled)).toBe(weightBytes(model));
    const names = unrolled.graph.initializer.map(({ name }) => name);
    expect(names).toContain('layer.0.lstm.weight_hh/forward');
    expect(names).not.toContain('layer.0.lstm.weight_hh');
  });

  test('leave weights in their files, each half by its offset', async () => {
    const path = join(folder, 'beside.onnx');
    await writeModel(wide(), path, { externalData: 'always' });
    const model = unrollRecurrent(await readModel(path), { steps: 1, shapes: wideShapes });
    const { initializer } = model.graph;
    expect(initializer).toHaveLength(4);
    expect(initializer.every(({ rawData, dataLocation }) => rawData === undefined && dataLocation === 1)).toBe(true);
    const kept = join(folder, 'cells.onnx');
    await writeModel(model, kept, { externalData: 'keep' });
    const again = await readModel(kept);
    expectSame(await runExactly(again, wideInputs), await runExactly(wide(), wideInputs));
  });

  test('of a model with lazy weights are cut when they are read', async () => {
    const path = join(folder, 'inside.onnx');
    await writeModel(wide(), path);
    const unread = await readModel(path);
    const model = unrollRecurrent(unread, { steps: 1, shapes: wideShapes });
    expect(model.graph.initializer.every(({ source }) => source !== undefined)).toBe(true);
    expectSame(await runExactly(model, wideInputs), await runExactly(wide(), wideInputs));
  });
});

/** Keras's form: batch first before and after each layer. */
function kerasStack(): ModelProto {
  const graph = new GraphBuilder('keras');
  let x = graph.input('input', FLOAT, ['batch', sequence, features]);
  for (const layer of [0, 1, 2]) {
    x = graph.scope(`lstm_${layer}`, () => {
      const timeFirst = graph.node('Transpose', [x], { perm: [1, 0, 2] });
      const [y] = lstm(graph, timeFirst, weights(graph, 'cell', 1, layer === 0 ? features : hidden));
      const squeezed = graph.node('Squeeze', [y, graph.constant({ ints: [1] })]);
      return graph.node('Transpose', [squeezed], { perm: [1, 0, 2] });
    });
  }
  const last = graph.node('Gather', [x, graph.constant({ ints: -1 })], { axis: 1 });
  const logits = graph.node('Gemm', [last, graph.weight('dense', [hidden, 5], wave([hidden, 5], 9))]);
  graph.output(logits, FLOAT, ['batch', 5], 'logits');
  return graph.build();
}

describe('a network', () => {
  test.each([1, 2, 4])('that returns only its last step joins nothing, in cells of %i steps', async (steps) => {
    const unrolled = await unrolledAlike(kerasStack(), series, steps);
    expect(countOf(unrolled, 'Concat')).toBe(0);
    // Only the last cell of the last layer has a result besides its states; with one step the state is the result.
    const lastLayer = unrolled.graph.node.filter(({ name }) => name.startsWith('/lstm_2/lstm/'));
    expect(lastLayer.filter(({ output }) => output[0] !== '')).toHaveLength(steps === 1 ? 0 : 1);
  });

  test.each([11, 18, 21])('of opset %i cuts and squeezes in the form of that opset', async (opset) => {
    const graph = new GraphBuilder('opset', { opset });
    let x = graph.input('input', FLOAT, [sequence, batch, features]);
    for (const layer of [0, 1]) {
      x = graph.scope(`layer.${layer}`, () => {
        const [y] = lstm(graph, x, weights(graph, 'lstm', 1, layer === 0 ? features : hidden));
        const squeezed =
          opset < 13
            ? graph.node('Squeeze', [y], { axes: [1] })
            : graph.node('Squeeze', [y, graph.constant({ ints: [1] })]);
        const share = graph.node('Softmax', [squeezed], { axis: 2 });
        const mean =
          opset < 18
            ? graph.node('ReduceMean', [squeezed], { axes: [2] })
            : graph.node('ReduceMean', [squeezed, graph.constant({ ints: [2] })]);
        return graph.node('Sub', [share, mean]);
      });
    }
    graph.output(x, FLOAT, [sequence, batch, hidden], 'output');
    const unrolled = await unrolledAlike(graph.build(), { input: floats([sequence, batch, features], 1) }, 2);
    expect(cellsBehind(unrolled, '/layer.1/lstm/step0-1')).toHaveLength(2);
  });

  test('with an open batch keeps it open', async () => {
    const model = await unrolledAlike(kerasStack(), series, 2);
    expect(cellCountOf(model)).toBe(9);
    const more = { input: floats([5, sequence, features], 3) };
    expectSame(await runExactly(model, more), await runExactly(kerasStack(), more));
  });

  test('with the last step as a slice joins nothing either', async () => {
    const graph = new GraphBuilder('slice');
    const x = graph.input('input', FLOAT, [sequence, batch, features]);
    const [y] = lstm(graph, x, weights(graph, 'lstm', 1, features));
    const at = (value: number): string => graph.constant({ ints: [value] });
    const last = graph.node('Slice', [y, at(-1), at(2 ** 31 - 1), at(0), at(1)]);
    graph.output(last, FLOAT, [1, 1, batch, hidden], 'last');
    const unrolled = await unrolledAlike(graph.build(), { input: floats([sequence, batch, features], 1) }, 4);
    expect(countOf(unrolled, 'Concat')).toBe(0);
  });

  test('with steps taken from two chunks at once is joined', async () => {
    const graph = new GraphBuilder('middle');
    const x = graph.input('input', FLOAT, [sequence, batch, features]);
    const [y] = lstm(graph, x, weights(graph, 'lstm', 1, features));
    const at = (value: number): string => graph.constant({ ints: [value] });
    graph.output(graph.node('Slice', [y, at(1), at(3), at(0)]), FLOAT, [2, 1, batch, hidden], 'middle');
    const unrolled = await unrolledAlike(graph.build(), { input: floats([sequence, batch, features], 1) }, 2);
    expect(countOf(unrolled, 'Concat')).toBe(1);
  });

  test('with steps also taken as a whole is processed as a whole', async () => {
    const model = kerasStack();
    const output = [...model.graph.output, { name: '/lstm_2/Transpose_1_output_0' }].map(({ name }) => ({
      name,
      type: { tensorType: { elemType: FLOAT } },
    }));
    const unrolled = await unrolledAlike({ ...model, graph: { ...model.graph, output } }, series, 3);
    const behind = unrolled.graph.node.filter(({ name }) => name.startsWith('/lstm_2/Transpose_1'));
    expect(behind.map(({ name }) => name)).toEqual(['/lstm_2/Transpose_1']);
  });

  test('with its input added to its result cuts that input once', async () => {
    const graph = new GraphBuilder('residual');
    const x = graph.input('input', FLOAT, [sequence, batch, hidden]);
    let at = x;
    for (const layer of [0, 1, 2]) {
      at = graph.scope(`layer.${layer}`, () => {
        const [y] = lstm(graph, at, weights(graph, 'lstm', 1, hidden));
        const squeezed = graph.node('Squeeze', [y, graph.constant({ ints: [1] })]);
        return graph.node('Add', [squeezed, at]);
      });
    }
    graph.output(at, FLOAT, [sequence, batch, hidden], 'output');
    const unrolled = await unrolledAlike(graph.build(), { input: floats([sequence, batch, hidden], 1) }, 2);
    expect(countOf(unrolled, 'Split')).toBe(1);
    expect(cellsBehind(unrolled, '/layer.2/lstm/step0-1')).toHaveLength(3);
  });

  test('gives a branch that takes a sequence the joined one, under its own name', async () => {
    const graph = new GraphBuilder('branch');
    const x = graph.input('input', FLOAT, [sequence, batch, features]);
    const [y] = lstm(graph, x, weights(graph, 'lstm', 1, features));
    const body = (name: string, opType: string) => {
      const inner = new GraphBuilder(name, { captures: [y] });
      inner.output(inner.node(opType, [y], {}, { name }), FLOAT, [sequence, 1, batch, hidden], `${name}_y`);
      return { graph: inner.buildGraph() };
    };
    const yes = graph.node('Greater', [graph.node('ReduceSum', [x], { keepdims: 0 }), graph.constant({ floats: 0 })]);
    const chosen = graph.node('If', [yes], { then_branch: body('a', 'Neg'), else_branch: body('b', 'Tanh') });
    graph.output(chosen, FLOAT, [sequence, 1, batch, hidden], 'output');
    const unrolled = await unrolledAlike(graph.build(), { input: floats([sequence, batch, features], 1) }, 2);
    expect(cellCountOf(unrolled)).toBe(3);
  });

  test('with weights as inputs of the graph cuts them there, for both directions', async () => {
    const graph = new GraphBuilder('given');
    const shapes = { input: [sequence, batch, features], w: [2, 16, features], r: [2, 16, hidden] };
    const [x, w, r] = Object.entries(shapes).map(([name, shape]) => graph.input(name, FLOAT, shape));
    const [y] = lstm(graph, x!, [w!, r!], { direction: 'bidirectional' });
    graph.output(y, FLOAT, [sequence, 2, batch, hidden], 'y');
    const given = Object.fromEntries(Object.entries(shapes).map(([name, shape], seed) => [name, floats(shape, seed)]));
    const unrolled = await unrolledAlike(graph.build(), given, 2);
    expect(countOf(unrolled, 'Split')).toBe(3);
  });

  test('of IR version 3, which lists weights among the inputs, drops those of removed weights', async () => {
    const model = pytorchBidirectional();
    const { graph } = model;
    const listed = graph.initializer.map(({ name, dims, dataType }) => ({
      name,
      type: { tensorType: { elemType: dataType, shape: { dim: dims.map((dimValue) => ({ dimValue })) } } },
    }));
    const old: ModelProto = { ...model, irVersion: 3n, graph: { ...graph, input: [...graph.input, ...listed] } };
    const unrolled = unrollRecurrent(old, { steps: 2, shapes: await shapesByRun(model, series) });
    expect(unrolled.graph.input.map(({ name }) => name)).toEqual(['input']);
  });

  test("keeps the file's value info of remaining values, and drops the rest", async () => {
    const model = kerasStack();
    const shapes = await shapesByRun(model, series);
    const valueInfo = [...shapes].map(([name, dims]) => ({
      name,
      type: { tensorType: { elemType: FLOAT, shape: { dim: dims.map((size) => ({ dimValue: BigInt(size) })) } } },
    }));
    const unrolled = unrollRecurrent({ ...model, graph: { ...model.graph, valueInfo } }, { steps: 2, shapes });
    const graph = new Graph(unrolled);
    expect(unrolled.graph.valueInfo.length).toBeGreaterThan(0);
    for (const { name } of unrolled.graph.valueInfo) {
      expect(
        graph.inputs.includes(name) || graph.weight(name) !== undefined || graph.producer(name) !== undefined,
      ).toBe(true);
    }
  });
});

/** One layer in each layout, with the same weights; ONNX Runtime runs only layout 0. */
function oneLayer(layout: 0 | 1, direction: string): ModelProto {
  const graph = new GraphBuilder('layout');
  const directions = direction === 'bidirectional' ? 2 : 1;
  const input = graph.input('input', FLOAT, [batch, sequence, features]);
  const h0 = graph.input('h0', FLOAT, [batch, directions, hidden]);
  const swap = (value: string, perm: readonly number[]): string =>
    layout === 1 ? value : graph.node('Transpose', [value], { perm });
  const x = swap(input, [1, 0, 2]);
  const first = swap(h0, [1, 0, 2]);
  const attributes = { direction, ...(layout === 1 ? { layout } : {}) };
  const [y, h, c] = lstm(graph, x, weights(graph, 'lstm', directions, features), attributes, ['', first, first]);
  graph.output(swap(y, [2, 0, 1, 3]), FLOAT, [batch, sequence, directions, hidden], 'y');
  graph.output(swap(h, [1, 0, 2]), FLOAT, [batch, directions, hidden], 'h');
  graph.output(swap(c, [1, 0, 2]), FLOAT, [batch, directions, hidden], 'c');
  return graph.build();
}

describe('batch first (layout 1)', () => {
  test.each(['forward', 'reverse', 'bidirectional'])(
    '%s becomes cells that every runtime supports',
    async (direction) => {
      const given = { ...series, h0: floats([batch, direction === 'bidirectional' ? 2 : 1, hidden], 4) };
      const expected = await runExactly(oneLayer(0, direction), given);
      const shapes = new Map(Object.entries({ ...expected, ...given }).map(([name, { dims }]) => [name, dims]));
      const layer = oneLayer(1, direction);
      const unrolled = unrollRecurrent(layer, { steps: 4, shapes });
      expect(wholeIn(unrolled, layer)).toEqual([]);
      expectSame(await runExactly(unrolled, given), expected);
    },
  );

  test('of two layers passes chunks on', async () => {
    const build = (layout: 0 | 1): ModelProto => {
      const graph = new GraphBuilder('layers');
      const input = graph.input('input', FLOAT, [batch, sequence, features]);
      let x = layout === 1 ? input : graph.node('Transpose', [input], { perm: [1, 0, 2] });
      for (const layer of [0, 1]) {
        x = graph.scope(`layer.${layer}`, () => {
          const matrices = weights(graph, 'lstm', 1, layer === 0 ? features : hidden);
          const [y] = lstm(graph, x, matrices, layout === 1 ? { layout } : {});
          return graph.node('Squeeze', [y, graph.constant({ ints: [1 + layout] })]);
        });
      }
      const output = layout === 1 ? x : graph.node('Transpose', [x], { perm: [1, 0, 2] });
      graph.output(output, FLOAT, [batch, sequence, hidden], 'output');
      return graph.build();
    };
    const shapes = new Map([
      ['input', [batch, sequence, features]],
      ['/layer.0/lstm_output_0', [batch, sequence, 1, hidden]],
      ['/layer.0/Squeeze_output_0', [batch, sequence, hidden]],
    ]);
    const unrolled = unrollRecurrent(build(1), { steps: 2, shapes });
    expectSame(await runExactly(unrolled, series), await runExactly(build(0), series));
    expect(cellsBehind(unrolled, '/layer.1/lstm/step0-1')).toEqual(['/layer.0/lstm/step0-1', '/layer.1/lstm/step0-1']);
  });
});

function staysWhole(options: {
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  readonly lengths?: readonly number[] | 'input';
  readonly opset?: number;
  readonly directions?: number;
  readonly shapes?: ReadonlyMap<string, readonly number[]>;
}): boolean {
  const graph = new GraphBuilder('whole', { opset: options.opset ?? 17 });
  const x = graph.input('x', FLOAT, [sequence, batch, features]);
  const { lengths } = options;
  const steps =
    lengths === 'input'
      ? graph.input('lengths', INT32, [batch])
      : lengths === undefined
        ? ''
        : graph.initializer({
            name: 'lengths',
            datatype: 'INT32',
            shape: [batch],
            data: new Uint8Array(Int32Array.from(lengths).buffer),
          });
  const matrices = weights(graph, 'lstm', options.directions ?? 1, features);
  const [y] = lstm(graph, x, matrices, options.attributes, [steps]);
  graph.output(y, FLOAT, [sequence, 1, batch, hidden], 'y');
  const model = graph.build();
  const shapes = options.shapes ?? new Map([['x', [sequence, batch, features]]]);
  return unrollRecurrent(model, { steps: 2, shapes }) === model;
}

describe('a node stays whole', () => {
  test('not without a reason', () => {
    expect(staysWhole({})).toBe(false);
  });

  test('if the length of its sequence is unknown', () => {
    expect(staysWhole({ shapes: new Map() })).toBe(true);
  });

  test('if its direction is invalid', () => {
    expect(staysWhole({ attributes: { direction: 'sideways' } })).toBe(true);
  });

  test('if its weights are for other directions than it has', () => {
    expect(staysWhole({ directions: 2 })).toBe(true);
  });

  test('if one list of activations is given for two directions', () => {
    const attributes = { direction: 'bidirectional', activations: ['Sigmoid', 'Tanh', 'Tanh'] };
    expect(staysWhole({ attributes, directions: 2 })).toBe(true);
  });

  test('if a length is greater than the number of steps', () => {
    expect(staysWhole({ lengths: [sequence, sequence + 1] })).toBe(true);
  });

  test('if lengths come with each call, and the opset cannot compute with them', () => {
    expect(staysWhole({ lengths: 'input', opset: 11 })).toBe(true);
  });

  test('if items end before others, and the opset cannot choose between their states', () => {
    const lengths = Array.from({ length: batch }, (_, item) => sequence - item);
    expect(staysWhole({ lengths, opset: 8 })).toBe(true);
  });
});

describe('lengths', () => {
  test('that are full have no part in the cells', async () => {
    const graph = new GraphBuilder('full');
    const x = graph.input('x', FLOAT, [sequence, batch, features]);
    const lengths = graph.constant({
      tensor: {
        datatype: 'INT32',
        shape: [batch],
        data: new Uint8Array(Int32Array.of(sequence, sequence).buffer),
      },
    });
    const [y] = lstm(graph, x, weights(graph, 'lstm', 1, features), {}, [lengths]);
    graph.output(y, FLOAT, [sequence, 1, batch, hidden], 'y');
    const unrolled = await unrolledAlike(graph.build(), { x: floats([sequence, batch, features], 1) }, 2);
    expect(countOf(unrolled, 'Where')).toBe(0);
  });

  test('that come with each call are computed once for all layers, and are right for any call', async () => {
    const graph = new GraphBuilder('lengths');
    let x = graph.input('x', FLOAT, [sequence, 3, features]);
    const lengths = graph.input('lengths', INT32, [3]);
    for (const layer of [0, 1]) {
      x = graph.scope(`layer.${layer}`, () => {
        const matrices = weights(graph, 'lstm', 1, layer === 0 ? features : hidden);
        const [y] = lstm(graph, x, matrices, { direction: layer === 0 ? 'forward' : 'reverse' }, [lengths]);
        return graph.node('Squeeze', [y, graph.constant({ ints: [1] })]);
      });
    }
    graph.output(x, FLOAT, [sequence, 3, hidden], 'output');
    const model = graph.build();
    const given = (steps: readonly number[]) => ({
      x: floats([sequence, 3, features], 1),
      lengths: new Tensor('int32', Int32Array.from(steps), [3]),
    });
    const unrolled = await unrolledAlike(model, given([6, 4, 1]), 2);
    expect(countOf(unrolled, 'Greater')).toBe(1);
    for (const steps of [
      [6, 6, 6],
      [1, 2, 3],
      [5, 0, 6],
    ]) {
      expectSame(await runExactly(unrolled, given(steps)), await runExactly(model, given(steps)));
    }
  });
});

test('a cell of no steps is refused', () => {
  expect(() => unrollRecurrent(pytorchBidirectional(), { steps: 0, shapes: new Map() })).toThrow(
    'a cell cannot have 0 steps',
  );
});
