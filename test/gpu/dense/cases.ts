/** Many nodes around matrix products in one model, so that one compilation and one run test them all. */
import { ElementType, GraphBuilder, type AttributeValue, type ModelProto } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';

/** A graph input or a weight of the model; undefined for an omitted operand. */
export type Operand =
  | { readonly from: 'input' | 'weight'; readonly shape: readonly number[]; readonly kind?: 'whole' | 'double' }
  | { readonly from: 'lengths'; readonly values: readonly number[] }
  | undefined;

export const input = (...shape: number[]): Operand => ({ from: 'input', shape });
export const weight = (...shape: number[]): Operand => ({ from: 'weight', shape });
export const doubles = (...shape: number[]): Operand => ({ from: 'input', shape, kind: 'double' });
export const whole = (...shape: number[]): Operand => ({ from: 'input', shape, kind: 'whole' });

export interface DenseCase {
  readonly name: string;
  readonly operator: string;
  readonly operands: readonly Operand[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  /** For each output whether it is used. */
  readonly outputs?: readonly boolean[];
  /** Nodes of one input and one output behind it, for fusion. */
  readonly followers?: readonly string[];
}

/** Pseudorandom numbers between -1 and 1, the same in each run. */
export function randomNumbers(seed: number): () => number {
  let state = (seed + 1) * 0x9e3779b1;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    const mixed = Math.imul(state ^ (state >>> 13), 0x297a2d39);
    return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 31 - 1;
  };
}

const count = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);

export interface DenseModel {
  readonly model: ModelProto;
  readonly inputs: readonly Tensor[];
  /** The case of each output of the model. */
  readonly cases: Readonly<Record<string, DenseCase>>;
}

/** One model with a node for each case. */
export function denseModel(cases: readonly DenseCase[]): DenseModel {
  const graph = new GraphBuilder('dense');
  const inputs: Tensor[] = [];
  const owners: Record<string, DenseCase> = {};
  for (const [index, each] of cases.entries()) {
    const random = randomNumbers(index);
    const names = each.operands.map((operand, place) => {
      if (operand === undefined) return '';
      const name = `case${index}_operand${place}`;
      if (operand.from === 'lengths') {
        inputs.push(tensorOf(name, 'INT32', [operand.values.length], Int32Array.from(operand.values)));
        return graph.input(name, ElementType.INT32, [operand.values.length]);
      }
      const { shape, kind } = operand;
      const values = Float64Array.from({ length: count(shape) }, random);
      if (operand.from === 'weight') return graph.weight(name, shape, Float32Array.from(values));
      if (kind === 'whole') {
        inputs.push(
          tensorOf(
            name,
            'INT32',
            [...shape],
            Int32Array.from(values, (value) => Math.round(value * 9)),
          ),
        );
        return graph.input(name, ElementType.INT32, shape);
      }
      if (kind === 'double') {
        inputs.push(tensorOf(name, 'FP64', [...shape], values));
        return graph.input(name, ElementType.DOUBLE, shape);
      }
      inputs.push(tensorOf(name, 'FP32', [...shape], Float32Array.from(values)));
      return graph.input(name, ElementType.FLOAT, shape);
    });
    const wanted = each.outputs ?? [true];
    const made = wanted.map((taken, place) => (taken ? `case${index}_output${place}` : ''));
    const outputs = graph.node(each.operator, names, each.attributes ?? {}, { name: `case${index}`, outputs: made });
    const first = each.operands[0]!;
    const kind = 'kind' in first ? first.kind : undefined;
    const type = kind === 'whole' ? ElementType.INT32 : kind === 'double' ? ElementType.DOUBLE : ElementType.FLOAT;
    for (const [place, output] of outputs.entries()) {
      if (wanted[place] !== true) continue;
      let last = output;
      for (const operator of each.followers ?? []) last = graph.node(operator, [last]);
      graph.output(last, type, [], last);
      owners[last] = each;
    }
  }
  const model = graph.build();
  // ONNX Runtime infers the shapes of the outputs.
  for (const { type } of model.graph.output) delete type?.tensorType?.shape;
  return { model, inputs, cases: owners };
}

const product = (name: string, a: Operand, b: Operand, followers: readonly string[] = []): DenseCase => ({
  name,
  operator: 'MatMul',
  operands: [a, b],
  followers,
});

const gemm = (name: string, operands: readonly Operand[], attributes: DenseCase['attributes'] = {}): DenseCase => ({
  name,
  operator: 'Gemm',
  operands,
  attributes,
});

export const productCases: readonly DenseCase[] = [
  product('matrices', input(5, 7), input(7, 3)),
  product('a weight for every row of a batch', input(2, 5, 8), weight(8, 6)),
  product('a batch of both', input(3, 4, 5), input(3, 5, 6)),
  product('one matrix against a batch', input(4, 5), input(3, 5, 6)),
  product('batches that broadcast both ways', input(2, 1, 4, 5), input(3, 5, 6)),
  product('batches that broadcast both ways, twice', input(2, 1, 2, 4, 5), input(1, 3, 1, 5, 2)),
  product('a vector and a matrix', input(7), input(7, 3)),
  product('a matrix and a vector', input(5, 7), input(7)),
  product('two vectors', input(7), input(7)),
  product('a vector against a batch', input(5), input(2, 5, 3)),
  product('a batch against a vector', input(2, 3, 5), input(5)),
  product('no rows', input(0, 4), input(4, 3)),
  product('nothing to sum', input(2, 0), input(0, 3)),
  product('a product larger than a tile', input(70, 35), weight(35, 66)),
  product('64-bit floats', doubles(3, 4, 5), doubles(5, 6)),
  product('whole numbers', whole(2, 3, 4), whole(4, 5)),
  product('with a Relu behind it', input(4, 8), weight(8, 8), ['Relu']),
  gemm('a bias for each column', [input(4, 6), weight(6, 5), weight(5)]),
  gemm('both transposed', [input(6, 4), weight(5, 6), weight(5)], { transA: 1, transB: 1 }),
  gemm('a factor for each part', [input(4, 6), weight(6, 5), weight(5)], { alpha: { float: 0.5 }, beta: { float: 2 } }),
  gemm('C as a column', [input(4, 6), weight(6, 5), input(4, 1)]),
  gemm('C as a matrix', [input(4, 6), weight(6, 5), input(4, 5)], { beta: { float: -1.5 } }),
  gemm('C as a scalar', [input(4, 6), weight(6, 5), input(1)]),
  gemm('C of no effect', [input(4, 6), weight(6, 5), input(5)], { beta: { float: 0 } }),
  gemm('no C', [input(4, 6), weight(5, 6)], { transB: 1 }),
  gemm('64-bit floats with C', [doubles(3, 4), doubles(4, 5), doubles(3, 5)], { alpha: { float: -2 } }),
];

const convolution = (
  name: string,
  operands: readonly Operand[],
  attributes: DenseCase['attributes'] = {},
  followers: readonly string[] = [],
): DenseCase => ({ name, operator: 'Conv', operands, attributes, followers });

const transposed = (
  name: string,
  operands: readonly Operand[],
  attributes: DenseCase['attributes'] = {},
): DenseCase => ({
  name,
  operator: 'ConvTranspose',
  operands,
  attributes,
});

export const convolutionCases: readonly DenseCase[] = [
  convolution('a window of 3 by 3 with margins', [input(2, 3, 8, 7), weight(4, 3, 3, 3), weight(4)], {
    pads: [1, 1, 1, 1],
  }),
  convolution('no bias, steps, and a Relu', [input(1, 8, 9, 9), weight(6, 8, 3, 3)], { strides: [2, 2] }, ['Relu']),
  convolution('one place', [input(2, 6, 5, 5), weight(4, 6, 1, 1), weight(4)], {}, ['Relu']),
  convolution('one place with steps', [input(1, 6, 5, 5), weight(4, 6, 1, 1)], { strides: [2, 2] }),
  convolution('one place with margins', [input(1, 6, 4, 4), weight(4, 6, 1, 1)], { pads: [1, 0, 1, 2] }),
  convolution('dilations and uneven margins', [input(1, 5, 10, 11), weight(3, 5, 3, 2), weight(3)], {
    dilations: [2, 3],
    pads: [2, 1, 0, 3],
  }),
  convolution('groups', [input(2, 8, 6, 6), weight(4, 4, 3, 3), weight(4)], { group: 2, pads: [1, 1, 1, 1] }),
  convolution('depthwise', [input(2, 6, 7, 7), weight(6, 1, 3, 3), weight(6)], {
    group: 6,
    pads: [1, 1, 1, 1],
    strides: [2, 1],
  }),
  convolution('depthwise with two filters each', [input(1, 4, 5, 5), weight(8, 1, 3, 3)], { group: 4 }, ['Relu']),
  convolution('one dimension', [input(2, 4, 12), weight(5, 4, 4), weight(5)], { strides: [3], pads: [2, 1] }),
  convolution('three dimensions', [input(1, 5, 4, 5, 6), weight(3, 5, 2, 3, 2), weight(3)], {
    pads: [0, 1, 1, 1, 1, 0],
  }),
  convolution('margins chosen for the same size, more at the end', [input(1, 4, 6, 7), weight(3, 4, 4, 2)], {
    auto_pad: 'SAME_UPPER',
    strides: [2, 1],
  }),
  convolution('margins chosen for the same size, more at the beginning', [input(1, 4, 6, 7), weight(3, 4, 4, 2)], {
    auto_pad: 'SAME_LOWER',
  }),
  convolution('no margins by name', [input(1, 4, 6, 7), weight(3, 4, 3, 3)], { auto_pad: 'VALID' }),
  transposed('transposed', [input(1, 3, 4, 5), weight(3, 2, 3, 3), weight(2)], { strides: [2, 2] }),
  transposed('transposed with groups, margins and dilations', [input(2, 4, 5, 4), weight(4, 3, 3, 2), weight(6)], {
    group: 2,
    strides: [2, 3],
    pads: [1, 0, 2, 1],
    dilations: [2, 1],
    output_padding: [1, 1],
  }),
  transposed('transposed to a size', [input(1, 3, 4, 4), weight(3, 2, 3, 3)], {
    strides: [2, 2],
    output_shape: [8, 9],
    auto_pad: 'SAME_UPPER',
  }),
  transposed('transposed along one dimension', [input(1, 3, 6), weight(3, 2, 4)], { strides: [2], pads: [1, 1] }),
];

const recurrence = (
  operator: 'LSTM' | 'GRU' | 'RNN',
  name: string,
  [steps, batch, size, hidden, directions]: readonly [number, number, number, number, number],
  rest: readonly Operand[] = [],
  more: Omit<Partial<DenseCase>, 'name' | 'operator' | 'operands'> = {},
): DenseCase => {
  const gates = { LSTM: 4, GRU: 3, RNN: 1 }[operator];
  return {
    ...more,
    name: `${operator}: ${name}`,
    operator,
    operands: [
      input(steps, batch, size),
      weight(directions, gates * hidden, size),
      weight(directions, gates * hidden, hidden),
      ...rest,
    ],
    attributes: { hidden_size: hidden, ...more.attributes },
  };
};

const everything = [true, true, true];
const both = { direction: 'bidirectional' };

export const recurrenceCases: readonly DenseCase[] = [
  recurrence('LSTM', 'no bias', [4, 2, 3, 5, 1]),
  recurrence(
    'LSTM',
    'every input and output',
    [5, 2, 6, 4, 1],
    [weight(1, 32), undefined, input(1, 2, 4), input(1, 2, 4)],
    {
      outputs: everything,
    },
  ),
  recurrence('LSTM', 'both directions', [4, 3, 3, 4, 2], [weight(2, 32), undefined, input(2, 3, 4), input(2, 3, 4)], {
    outputs: everything,
    attributes: both,
  }),
  recurrence('LSTM', 'backwards, the last state alone', [4, 2, 3, 5, 1], [weight(1, 40)], {
    outputs: [false, true],
    attributes: { direction: 'reverse' },
  }),
  recurrence(
    'LSTM',
    'sequences of different lengths, both directions',
    [5, 3, 3, 4, 2],
    [weight(2, 32), { from: 'lengths', values: [5, 2, 3] }],
    { outputs: everything, attributes: both },
  ),
  recurrence(
    'LSTM',
    'an empty sequence between others, from a first state, both directions',
    [5, 3, 3, 4, 2],
    [weight(2, 32), { from: 'lengths', values: [2, 0, 3] }, input(2, 3, 4), input(2, 3, 4)],
    { outputs: everything, attributes: both },
  ),
  recurrence('LSTM', 'peepholes', [3, 2, 3, 4, 1], [weight(1, 32), undefined, undefined, undefined, weight(1, 12)], {
    outputs: everything,
  }),
  recurrence('LSTM', 'other activations', [3, 2, 3, 4, 1], [weight(1, 32)], {
    attributes: { activations: ['Sigmoid', 'Relu', 'Softsign'] },
  }),
  recurrence('GRU', 'the reset before the product', [4, 2, 3, 5, 1], [weight(1, 30)], { outputs: [true, true] }),
  recurrence('GRU', 'the reset after the product', [4, 2, 3, 5, 1], [weight(1, 30), undefined, input(1, 2, 5)], {
    outputs: [true, true],
    attributes: { linear_before_reset: 1 },
  }),
  recurrence('GRU', 'both directions', [4, 3, 6, 4, 2], [weight(2, 24), undefined, input(2, 3, 4)], {
    outputs: [true, true],
    attributes: { ...both, linear_before_reset: 1 },
  }),
  recurrence(
    'GRU',
    'sequences of different lengths, the reset before the product',
    [4, 3, 3, 4, 2],
    [weight(2, 24), { from: 'lengths', values: [1, 4, 2] }],
    { outputs: [true, true], attributes: both },
  ),
  recurrence(
    'GRU',
    'an empty sequence between others, from a first state',
    [4, 3, 3, 4, 1],
    [weight(1, 24), { from: 'lengths', values: [1, 0, 2] }, input(1, 3, 4)],
    { outputs: [true, true] },
  ),
  recurrence(
    'GRU',
    'an empty sequence first, from a first state, both directions and the reset after the product',
    [4, 3, 3, 4, 2],
    [weight(2, 24), { from: 'lengths', values: [0, 4, 2] }, input(2, 3, 4)],
    { outputs: [true, true], attributes: { ...both, linear_before_reset: 1 } },
  ),
  recurrence(
    'RNN',
    'sequences of different lengths and an empty one, from a first state, both directions',
    [4, 3, 3, 5, 2],
    [weight(2, 10), { from: 'lengths', values: [4, 2, 0] }, input(2, 3, 5)],
    { outputs: [true, true], attributes: { ...both, activations: ['Tanh', 'Tanh'] } },
  ),
  recurrence('RNN', 'plain', [4, 2, 3, 5, 1], [weight(1, 10), undefined, input(1, 2, 5)], { outputs: [true, true] }),
  recurrence('RNN', 'both directions, with Relu', [3, 2, 3, 4, 2], [weight(2, 8)], {
    attributes: { ...both, activations: ['Relu', 'Relu'] },
  }),
];
