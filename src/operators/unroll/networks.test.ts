import fc from 'fast-check';
import { Tensor } from 'onnxruntime-node';
import { expect, test } from 'vitest';
import type { Values } from '../../../test/support/onnx.ts';
import { floats, unrolledAlike, wave, weightBytes, wholeIn } from '../../../test/support/unrolling.ts';
import { GraphBuilder, ElementType, type ModelProto } from '../../onnx/index.ts';

const { FLOAT, INT32 } = ElementType;
const gates = { LSTM: 4, GRU: 3, RNN: 1 } as const;

interface LayerCase {
  readonly opType: keyof typeof gates;
  readonly direction: 'forward' | 'reverse' | 'bidirectional';
  readonly hidden: number;
  readonly hasLengths: boolean;
  readonly initial: boolean;
  /** The batch is first between this layer and the next. */
  readonly turned: boolean;
  readonly behind: readonly ('dropout' | 'tanh' | 'norm' | 'residual' | 'scale' | 'dense')[];
}

interface NetworkCase {
  readonly batch: number;
  readonly sequence: number;
  readonly lengths: readonly number[];
  readonly layers: readonly LayerCase[];
  readonly ends: readonly ('whole' | 'last' | 'first' | 'state' | 'sum')[];
}

const features = 4;

function build({ batch, sequence, lengths, layers, ends }: NetworkCase): { model: ModelProto; inputs: Values } {
  const graph = new GraphBuilder('network');
  let seed = 1;
  const weight = (name: string, shape: readonly number[]): string =>
    graph.weight(name, shape, wave(shape, seed++, 0.5));
  const ints = (values: readonly number[]): string => graph.constant({ ints: values });
  const input = graph.input('x', FLOAT, [sequence, batch, features]);
  const steps = Int32Array.from({ length: batch }, (_, item) => lengths[item]! % (sequence + 1));
  const inputs: Record<string, Tensor> = { x: floats([sequence, batch, features], 1) };
  let given = '';
  if (layers.some(({ hasLengths }) => hasLengths)) {
    given = graph.input('lengths', INT32, [batch]);
    inputs['lengths'] = new Tensor('int32', steps, [batch]);
  }
  /** [sequence, batch, width] between layers. */
  let x = input;
  let width = features;
  let state = '';
  let stateShape: readonly number[] = [];
  for (const [index, layer] of layers.entries()) {
    const { opType, direction, hidden } = layer;
    const directions = direction === 'bidirectional' ? 2 : 1;
    const rows = gates[opType] * hidden;
    graph.scope(`layer.${index}`, () => {
      const before = x;
      const [y, last] = graph.node(
        opType,
        [
          x,
          weight('w', [directions, rows, width]),
          weight('r', [directions, rows, hidden]),
          weight('b', [directions, 2 * rows]),
          layer.hasLengths ? given : '',
          ...(layer.initial ? [weight('h', [directions, batch, hidden])] : []),
        ],
        { hidden_size: hidden, direction },
        { outputs: 2 },
      );
      [state, stateShape] = [last, [directions, batch, hidden]];
      const beforeWidth = width;
      width = directions * hidden;
      x =
        directions === 1
          ? graph.node('Squeeze', [y, ints([1])])
          : graph.node('Reshape', [graph.node('Transpose', [y], { perm: [0, 2, 1, 3] }), ints([0, 0, -1])]);
      if (layer.turned) x = graph.node('Transpose', [x], { perm: [1, 0, 2] });
      for (const each of layer.behind) {
        if (each === 'dropout') x = graph.node('Dropout', [x]);
        if (each === 'tanh') x = graph.node('Tanh', [x]);
        if (each === 'scale') x = graph.node('Mul', [x, weight(`scale${seed}`, [width])]);
        if (each === 'dense') x = graph.node('MatMul', [x, weight(`dense${seed}`, [width, width])]);
        if (each === 'norm') {
          x = graph.node('LayerNormalization', [x, weight(`n${seed}`, [width]), weight(`m${seed}`, [width])]);
        }
      }
      if (layer.turned) x = graph.node('Transpose', [x], { perm: [1, 0, 2] });
      if (layer.behind.includes('residual') && width === beforeWidth) x = graph.node('Add', [x, before]);
    });
  }
  const one = graph.constant({ ints: -1 });
  for (const end of ends) {
    if (end === 'whole') graph.output(x, FLOAT, [sequence, batch, width], 'whole');
    if (end === 'last') graph.output(graph.node('Gather', [x, one]), FLOAT, [batch, width], 'last');
    if (end === 'first') {
      const first = graph.node('Slice', [x, ints([0]), ints([1]), ints([0])]);
      graph.output(first, FLOAT, [1, batch, width], 'first');
    }
    if (end === 'state') graph.output(state, FLOAT, stateShape, 'state');
    if (end === 'sum') {
      const sum = graph.node('ReduceSum', [x, ints([0])], { keepdims: 0 });
      graph.output(sum, FLOAT, [batch, width], 'sum');
    }
  }
  return { model: graph.build(), inputs };
}

const layers = fc.record<LayerCase>({
  opType: fc.constantFrom('LSTM', 'GRU', 'RNN'),
  direction: fc.constantFrom('forward', 'reverse', 'bidirectional', 'bidirectional'),
  hidden: fc.constantFrom(2, 4),
  hasLengths: fc.constantFrom(false, false, true),
  initial: fc.constantFrom(false, true),
  turned: fc.boolean(),
  behind: fc.uniqueArray(fc.constantFrom('dropout', 'tanh', 'norm', 'residual', 'scale', 'dense'), { maxLength: 3 }),
});

const networks = fc.record<NetworkCase>({
  batch: fc.integer({ min: 1, max: 3 }),
  sequence: fc.integer({ min: 2, max: 7 }),
  lengths: fc.array(fc.nat(7), { minLength: 3, maxLength: 3 }),
  layers: fc.array(layers, { minLength: 1, maxLength: 4 }),
  ends: fc.uniqueArray(fc.constantFrom('whole', 'last', 'first', 'state', 'sum'), { minLength: 1, maxLength: 3 }),
});

test('a network of any such layers gives the same answer in cells, with no more weights', async () => {
  await fc.assert(
    fc.asyncProperty(networks, fc.integer({ min: 1, max: 4 }), async (network, steps) => {
      const { model, inputs } = build(network);
      const unrolled = await unrolledAlike(model, inputs, steps);
      expect(network.sequence > steps ? wholeIn(unrolled, model) : []).toEqual([]);
      // A zero for broadcasting may be added.
      expect(weightBytes(unrolled)).toBeLessThanOrEqual(weightBytes(model) + 4);
    }),
    { numRuns: 60 },
  );
});
