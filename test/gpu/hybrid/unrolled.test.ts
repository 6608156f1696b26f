/** Functions in cells, from their files to the engine: the answers equal those of the original model. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { unrolledModel } from '../../../src/gpu/hybrid/prepare.ts';
import { ElementType, GraphBuilder, readModel, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { lstmExport } from '../../support/pytorch-exports.ts';
import { relativeError, runModel, runOnnxRuntime } from '../../support/run-program.ts';
import { wave } from '../../support/unrolling.ts';
import { noise } from './examples.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-unrolled-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const restorer = join(import.meta.dirname, '../../../functions/accent-restorer/model.onnx');
/** Words of these lengths, each after the symbol of its context; the rest is padding. */
const words = (lengths: readonly number[]): readonly Tensor[] => [
  tensorOf(
    'symbols',
    'INT32',
    [lengths.length, 26],
    Int32Array.from(
      lengths.flatMap((length, word) =>
        Array.from({ length: 26 }, (_, at) => {
          if (at === 0) return 27 + (word % 6);
          return at < length ? 1 + ((word * 5 + at * 3) % 26) : 0;
        }),
      ),
    ),
  ),
  tensorOf('lengths', 'INT32', [lengths.length], Int32Array.from(lengths)),
];

const [batch, steps, features, hidden] = [2, 6, 3, 8];

function lstm(graph: GraphBuilder, x: string, directions: number, input: number, states: readonly string[]): string {
  const weight = (name: string, shape: readonly number[]): string => graph.weight(name, shape, wave(shape, 2, 0.4));
  return graph.node(
    'LSTM',
    [
      x,
      weight('weight_ih', [directions, 4 * hidden, input]),
      weight('weight_hh', [directions, 4 * hidden, hidden]),
      weight('bias', [directions, 8 * hidden]),
      ...states,
    ],
    { hidden_size: hidden, ...(directions === 2 ? { direction: 'bidirectional' } : {}) },
    { name: 'lstm', outputs: 3 },
  )[0];
}

/** Three layers with the batch first before and after each: pairs of transposes that folding removes. */
function batchFirstLayers(): ModelProto {
  const graph = new GraphBuilder('batch-first');
  let x = graph.input('input', ElementType.FLOAT, ['batch', steps, features]);
  for (const layer of [0, 1, 2]) {
    x = graph.scope(`layer.${layer}`, () => {
      const timeFirst = graph.node('Transpose', [x], { perm: [1, 0, 2] });
      const y = lstm(graph, timeFirst, 1, layer === 0 ? features : hidden, []);
      const squeezed = graph.node('Squeeze', [y, graph.constant({ ints: [1] })]);
      return graph.node('Dropout', [graph.node('Transpose', [squeezed], { perm: [1, 0, 2] })]);
    });
  }
  const last = graph.node('Gather', [x, graph.constant({ ints: -1 })], { axis: 1 });
  graph.output(last, ElementType.FLOAT, ['batch', hidden], 'last');
  return graph.build();
}

/** Two layers of two directions with open sizes: reshapes and initial states are computed from the input's shape. */
function openSizes(): ModelProto {
  const graph = new GraphBuilder('open');
  const size = (value: string, axis: number): string => {
    const index = graph.constant({ ints: axis });
    const sizes = graph.node('Gather', [graph.node('Shape', [value]), index], { axis: 0 });
    return graph.node('Unsqueeze', [sizes, graph.constant({ ints: [0] })]);
  };
  const ints = (values: readonly number[]): string => graph.constant({ ints: values });
  const input = graph.input('input', ElementType.FLOAT, ['batch', 'time', features]);
  let x = graph.node('Transpose', [input], { perm: [1, 0, 2] });
  const shape = graph.node('Concat', [ints([4]), size(input, 0), ints([hidden])], { axis: 0 });
  const zeros = graph.node('Expand', [graph.constant({ floats: [0], shape: [1, 1, 1] }), shape]);
  for (const layer of [0, 1]) {
    x = graph.scope(`layer.${layer}`, () => {
      const state = graph.node('Slice', [zeros, ints([2 * layer]), ints([2 * layer + 2]), ints([0])]);
      const y = lstm(graph, x, 2, layer === 0 ? features : 2 * hidden, ['', state, state]);
      const turned = graph.node('Transpose', [y], { perm: [0, 2, 1, 3] });
      const sizes = graph.node('Concat', [size(turned, 0), size(turned, 1), ints([-1])], { axis: 0 });
      return graph.node('Reshape', [turned, sizes]);
    });
  }
  const output = graph.node('Transpose', [x], { perm: [1, 0, 2] });
  graph.output(output, ElementType.FLOAT, ['batch', 'time', 2 * hidden], 'output');
  return graph.build();
}

/**
 * Lengths that come with each call, for the first of two layers: an item that has ended gives the second zeros,
 * whatever state it keeps.
 */
function withLengths(): ModelProto {
  const graph = new GraphBuilder('lengths');
  let x = graph.input('input', ElementType.FLOAT, [steps, 3, features]);
  const lengths = graph.input('lengths', ElementType.INT32, [3]);
  for (const layer of [0, 1]) {
    x = graph.scope(`layer.${layer}`, () => {
      const initial = graph.weight('initial', [1, 3, hidden], wave([1, 3, hidden], layer));
      const given = layer === 0 ? lengths : '';
      const y = lstm(graph, x, 1, layer === 0 ? features : hidden, [given, initial, initial]);
      return graph.node('Squeeze', [y, graph.constant({ ints: [1] })]);
    });
  }
  graph.output(x, ElementType.FLOAT, [steps, 3, hidden], 'output');
  return graph.build();
}

interface Case {
  readonly name: string;
  /** A model, or the path of one. */
  readonly model: () => ModelProto | string;
  readonly inputs: readonly Tensor[];
  /** Of the longest node. */
  readonly cells: number;
  readonly cellsInAll: number;
}

const cases: readonly Case[] = [
  { name: 'the accent restorer', model: () => restorer, inputs: words([26, 9, 2, 14]), cells: 4, cellsInAll: 8 },
  { name: 'one word, a letter a cell', model: () => restorer, inputs: words([7]), cells: 26, cellsInAll: 52 },
  {
    name: 'layers with the batch first',
    model: batchFirstLayers,
    inputs: [noise('input', [batch, steps, features], 1)],
    cells: 3,
    cellsInAll: 9,
  },
  {
    name: 'two directions of open sizes',
    model: openSizes,
    inputs: [noise('input', [batch, steps, features], 2)],
    cells: 3,
    cellsInAll: 12,
  },
  {
    name: 'lengths for one layer of two',
    model: withLengths,
    inputs: [noise('input', [steps, 3, features], 4), tensorOf('lengths', 'INT32', [3], Int32Array.of(2, 6, 1))],
    cells: 6,
    cellsInAll: 12,
  },
  {
    name: 'an export of two directions',
    model: lstmExport,
    inputs: [noise('input', [batch, steps, 8], 3)],
    cells: 6,
    cellsInAll: 12,
  },
];

describe.skipIf(emulatorMissing)('on the engine', () => {
  test.each(cases)('$name gives the same answer in cells', async ({ name, model, inputs, cells, cellsInAll }) => {
    const cacheFolder = join(folder, 'cache');
    const given = model();
    const path = typeof given === 'string' ? given : join(folder, `${name.replaceAll(' ', '-')}.onnx`);
    if (typeof given !== 'string') await writeModel(given, path);
    const shapes = shapesOf(inputs);
    const unrolled = await unrolledModel(path, shapes, cells, cacheFolder);
    const { graph } = await readModel(unrolled);
    expect(graph.node.filter(({ opType }) => opType === 'LSTM' || opType === 'GRU')).toHaveLength(cellsInAll);
    const expected = await runOnnxRuntime(path, inputs);
    const onCpu = await runOnnxRuntime(unrolled, inputs);
    const onGpu = await withEmulatedCuda({}, (cuda) => runModel(cuda, unrolled, inputs, { cacheFolder }));
    for (const found of [onCpu, onGpu]) {
      expect(found.map((output) => output.name)).toEqual(expected.map((output) => output.name));
      for (const [index, output] of found.entries()) expect(relativeError(output, expected[index]!)).toBeLessThan(1e-5);
    }
  });
});
