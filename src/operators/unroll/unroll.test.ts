import fc from 'fast-check';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, test } from 'vitest';
import type { Values } from '../../../test/support/onnx.ts';
import {
  cellCountOf,
  cellsBehind,
  countOf,
  floats,
  unrolledAlike,
  wave,
  weightBytes,
} from '../../../test/support/unrolling.ts';
import {
  buildArchitecture,
  GraphBuilder,
  type AttributeValue,
  ElementType,
  type ModelProto,
} from '../../onnx/index.ts';
import { unrollRecurrent } from './index.ts';

const { FLOAT, INT32 } = ElementType;

const kinds = {
  LSTM: { gates: 4, states: 2, activations: ['Sigmoid', 'Tanh', 'Tanh'] },
  GRU: { gates: 3, states: 1, activations: ['Sigmoid', 'Tanh'] },
  RNN: { gates: 1, states: 1, activations: ['Tanh'] },
} as const;
type OpType = keyof typeof kinds;

interface NodeCase {
  readonly opType: OpType;
  readonly direction: 'forward' | 'reverse' | 'bidirectional';
  readonly batch: number;
  readonly sequence: number;
  readonly input: number;
  readonly hidden: number;
  readonly bias: boolean;
  readonly lengths: 'none' | 'constant' | 'input' | 'full';
  /** How many steps each item lacks. */
  readonly missing: readonly number[];
  readonly initial: 'none' | 'h' | 'inputs' | 'weights';
  readonly attributes: Readonly<Record<string, AttributeValue>>;
  readonly peepholes: boolean;
  readonly outputs: readonly boolean[];
}

const defaults: NodeCase = {
  opType: 'LSTM',
  direction: 'forward',
  batch: 2,
  sequence: 7,
  input: 3,
  hidden: 4,
  bias: true,
  lengths: 'none',
  missing: [],
  initial: 'none',
  attributes: {},
  peepholes: false,
  outputs: [true, true, true],
};

/** A graph around one recurrent node; all requested outputs are outputs of the graph. */
function oneNode(given: Partial<NodeCase>): { model: ModelProto; inputs: Values } {
  const of = { ...defaults, ...given };
  const { gates, states } = kinds[of.opType];
  const directions = of.direction === 'bidirectional' ? 2 : 1;
  const { batch, sequence, hidden } = of;
  const graph = new GraphBuilder('one-node');
  const inputs: Record<string, Tensor> = {};
  const input = (name: string, tensor: Tensor, type: ElementType): string => {
    inputs[name] = tensor;
    return graph.input(name, type, tensor.dims);
  };
  const weight = (name: string, shape: readonly number[], seed: number): string =>
    graph.weight(name, shape, wave(shape, seed, 0.6));
  const x = input('x', floats([sequence, batch, of.input], 1), FLOAT);
  const w = weight('W', [directions, gates * hidden, of.input], 2);
  const r = weight('R', [directions, gates * hidden, hidden], 3);
  const b = of.bias ? weight('B', [directions, 2 * gates * hidden], 4) : '';
  const steps = Int32Array.from({ length: batch }, (_, item) =>
    of.lengths === 'full' ? sequence : Math.max(0, sequence - (of.missing[item] ?? 0)),
  );
  const lengths =
    of.lengths === 'none'
      ? ''
      : of.lengths === 'input'
        ? input('lengths', new Tensor('int32', steps, [batch]), INT32)
        : graph.initializer({
            name: 'lengths',
            datatype: 'INT32',
            shape: [batch],
            data: new Uint8Array(steps.buffer),
          });
  const stateShape = [directions, batch, hidden];
  const initial = (name: string, seed: number): string => {
    if (of.initial === 'none' || (of.initial === 'h' && name === 'c0')) return '';
    return of.initial === 'weights' ? weight(name, stateShape, seed) : input(name, floats(stateShape, seed), FLOAT);
  };
  const h0 = initial('h0', 5);
  const c0 = of.opType === 'LSTM' ? initial('c0', 6) : '';
  const p = of.peepholes ? weight('P', [directions, 3 * hidden], 7) : '';
  const taken = [x, w, r, b, lengths, h0, c0, p];
  while (taken.at(-1) === '') taken.pop();
  const names = ['Y', 'Y_h', 'Y_c'].slice(0, 1 + states).map((name, place) => (of.outputs[place] ? name : ''));
  const made = graph.node(
    of.opType,
    taken,
    { hidden_size: hidden, direction: of.direction, ...of.attributes },
    { outputs: names },
  );
  for (const [place, name] of made.entries()) {
    if (name !== '') graph.output(name, FLOAT, place === 0 ? [sequence, ...stateShape] : stateShape);
  }
  return { model: graph.build(), inputs };
}

describe('one recurrent node', () => {
  const attributesOf = (opType: OpType, directions: number) => {
    const { activations } = kinds[opType];
    const lists = fc
      .record({
        names: fc.array(fc.constantFrom('Relu', 'Sigmoid', 'Tanh', 'Softsign', 'HardSigmoid', 'LeakyRelu', 'Elu'), {
          minLength: directions * activations.length,
          maxLength: directions * activations.length,
        }),
        alphas: fc.array(fc.constantFrom(0.1, 0.2, 0.3), { maxLength: 6 }),
        betas: fc.array(fc.constantFrom(0.4, 0.5, 0.6), { maxLength: 3 }),
      })
      .map(({ names, alphas, betas }) => {
        const attributes: Record<string, AttributeValue> = { activations: names };
        if (alphas.length > 0) attributes['activation_alpha'] = { floats: alphas };
        if (betas.length > 0) attributes['activation_beta'] = { floats: betas };
        return attributes;
      });
    const own: Readonly<Record<OpType, fc.Arbitrary<Record<string, AttributeValue>>>> = {
      LSTM: fc.constantFrom<Record<string, AttributeValue>>({}, { input_forget: 1 }),
      GRU: fc.constantFrom<Record<string, AttributeValue>>({}, { linear_before_reset: 1 }),
      RNN: fc.constant({}),
    };
    const clip = fc.constantFrom<Record<string, AttributeValue>>({}, { clip: { float: 0.5 } });
    return fc
      .tuple(own[opType], clip, fc.oneof(fc.constant({}), lists))
      .map((parts): Readonly<Record<string, AttributeValue>> => Object.assign({}, ...parts));
  };
  const cases = fc
    .tuple(
      fc.constantFrom<OpType>('LSTM', 'GRU', 'RNN'),
      fc.constantFrom<NodeCase['direction']>('forward', 'reverse', 'bidirectional'),
    )
    .chain(([opType, direction]) =>
      fc.record({
        opType: fc.constant(opType),
        direction: fc.constant(direction),
        batch: fc.integer({ min: 1, max: 3 }),
        sequence: fc.integer({ min: 2, max: 9 }),
        bias: fc.boolean(),
        lengths: fc.constantFrom<NodeCase['lengths']>('none', 'none', 'constant', 'input', 'full'),
        missing: fc.array(fc.nat(9), { minLength: 3, maxLength: 3 }),
        initial: fc.constantFrom<NodeCase['initial']>('none', 'h', 'inputs', 'weights'),
        attributes: attributesOf(opType, direction === 'bidirectional' ? 2 : 1),
        peepholes: opType === 'LSTM' ? fc.boolean() : fc.constant(false),
        outputs: fc
          .array(fc.boolean(), { minLength: 3, maxLength: 3 })
          .filter((used) => used.slice(0, 1 + kinds[opType].states).some(Boolean)),
      }),
    );

  test('gives the same results in cells, for any settings', async () => {
    await fc.assert(
      fc.asyncProperty(cases, fc.integer({ min: 1, max: 5 }), async (given, steps) => {
        const { model, inputs } = oneNode(given);
        const unrolled = await unrolledAlike(model, inputs, steps);
        const cells = unrolled === model ? 0 : cellCountOf(unrolled);
        const chains = given.direction === 'bidirectional' ? 2 : 1;
        const expected = given.sequence > steps ? chains * Math.ceil(given.sequence / steps) : 0;
        // A direction's last cells are left out if only its first ones are needed; none is ever added.
        expect(cells).toBeLessThanOrEqual(expected);
        expect(cells > 0).toBe(expected > 0);
      }),
      { numRuns: 60 },
    );
  });
});

describe('a stack', () => {
  const sizes = { layers: 3, input: 3, hidden: 4, sequence: 6, batch: 2 };
  const inputs: Values = { input: floats([2, 6, 3], 1) };

  test.each(['lstm', 'gru'])('of %s layers adds no weight, and its cells start as early as possible', async (name) => {
    const { model } = buildArchitecture(name, sizes);
    const unrolled = await unrolledAlike(model, inputs, 2);
    expect(cellCountOf(unrolled)).toBe(9);
    expect(weightBytes(unrolled)).toBe(weightBytes(model));
    const opType = name.toUpperCase();
    const cell = (layer: number, steps: string): string => `/layer.${layer}/${opType}/${steps}`;
    expect(cellsBehind(unrolled, cell(1, 'step0-1'))).toEqual([cell(0, 'step0-1'), cell(1, 'step0-1')]);
    expect(cellsBehind(unrolled, cell(2, 'step2-3'))).toEqual(
      [0, 1, 2].flatMap((layer) => [cell(layer, 'step0-1'), cell(layer, 'step2-3')]),
    );
  });

  test('in cells of one step is the graph that Chrion divides: nothing is between cells', async () => {
    const unrolled = await unrolledAlike(buildArchitecture('lstm', sizes).model, inputs, 1);
    expect(cellCountOf(unrolled)).toBe(18);
    // The network's own, after its last layer.
    expect(countOf(unrolled, 'Squeeze')).toBe(1);
    expect(countOf(unrolled, 'Split')).toBe(1);
  });

  test('a stack whose sequences are no longer than a cell is returned as it is', () => {
    const { model } = buildArchitecture('lstm', sizes);
    const shapes = new Map([['/Transpose_output_0', [6, 2, 3]]]);
    expect(unrollRecurrent(model, { steps: 6, shapes })).toBe(model);
  });
});
