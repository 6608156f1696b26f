/** Matrix products, convolutions, and recurrent networks. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import * as windows from '../shapes/window-rules.ts';
import { einsum } from './einsum.ts';
import { elementwise } from './elementwise.ts';
import { Unsupported, type Term, type Write, type Writer } from '../writing.ts';

const product: OperatorFacts = {
  ...ordinary,
  shapes: shapes.matMul,
  rows: rows.matrixProduct(0, 1),
  cost: 'product',
  layer: 'linear',
};
const general: OperatorFacts = { ...product, shapes: shapes.gemm, rows: rows.gemm };
const convolution: OperatorFacts = {
  ...ordinary,
  shapes: windows.conv,
  rows: rows.alongFirst(0),
  cost: 'convolution',
  layer: 'conv',
};

/** The activation that an attribute names, of x. `values`: its alpha and beta, or the limits of Clip. */
function activated(writer: Writer, x: Term, values: readonly number[]): Term {
  const name = writer.attribute<string>('activation', '');
  if (name === '') return x;
  if (name === 'Clip') return writer.map(name, [x, ...values.map((limit) => writer.number(x.datatype, limit))]);
  if (!Object.hasOwn(elementwise, name)) throw new Unsupported(`its activation '${name}' is not covered`);
  const named = ['alpha', 'beta'].flatMap((of, place) => {
    const float = values[place];
    return float === undefined ? [] : [[of, { float }] as const];
  });
  return writer.map(name, [x], x.datatype, Object.fromEntries(named));
}

const fusedConv: Write = (writer) => {
  const addend = writer.input(3);
  const sum = writer.made('Conv', [0, 1, 2].map(writer.input), writer.output, 'own');
  const whole = addend === undefined ? sum : writer.map('Add', [sum, addend]);
  writer.give(activated(writer, whole, writer.attribute<readonly number[]>('activation_params', [])));
};

const fusedGemm: Write = (writer) => {
  const { attribute } = writer;
  const product = writer.made('Gemm', [0, 1, 2].map(writer.input), writer.output, {
    transA: attribute('transA', 0),
    transB: attribute('transB', 0),
    alpha: { float: attribute('alpha', 1) },
    beta: { float: attribute('beta', 1) },
  });
  const values = ['alpha', 'beta', 'gamma'].map((name) => attribute(`activation_${name}`, Number.NaN));
  writer.give(
    activated(
      writer,
      product,
      values.filter((value) => !Number.isNaN(value)),
    ),
  );
};

const fusedMatmul: Write = (writer) => {
  const { attribute } = writer;
  const factor = (index: 0 | 1, name: 'A' | 'B'): Term => {
    const value = writer.required(index);
    const rank = value.shape.length;
    if (attribute(`transBatch${name}`, 0) !== 1 || rank <= 2) return value;
    // From [rows, batch..., depth] to [batch..., rows, depth].
    return writer.permuted(value, [...Array.from({ length: rank - 2 }, (_, axis) => axis + 1), 0, rank - 1]);
  };
  const [transA, transB] = [attribute('transA', 0), attribute('transB', 0)];
  const attributes = { transA, transB, alpha: { float: attribute('alpha', 1) } };
  writer.give(writer.made('turntable.Product', [factor(0, 'A'), factor(1, 'B')], writer.output, attributes));
};

export const dense = {
  MatMul: { ...product, narrow: 'product', matrices: 'plain' },
  ...each('com.microsoft.FusedMatMul com.microsoft.TransposeMatMul', { ...product, write: fusedMatmul }),
  Gemm: { ...general, narrow: 'product', matrices: 'general' },
  'com.microsoft.FusedGemm': { ...general, write: fusedGemm },
  Conv: { ...convolution, narrow: 'product' },
  'com.microsoft.FusedConv': { ...convolution, rows: rows.alongFirst(0, 3), write: fusedConv },
  ConvTranspose: { ...convolution, shapes: windows.convTranspose, overrulesInference: true },
  ...each('LSTM GRU RNN', {
    ...ordinary,
    shapes: shapes.recurrent,
    rows: rows.recurrent,
    cost: 'recurrence',
    layer: 'recurrent',
    narrow: 'recurrent',
  }),
  Einsum: einsum,
} satisfies Record<string, OperatorFacts>;
