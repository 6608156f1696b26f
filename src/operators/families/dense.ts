/** Matrix products, convolutions, and recurrent networks. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import { einsum } from '../row-rules/place-rules.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import * as windows from '../shapes/window-rules.ts';

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

export const dense = {
  MatMul: { ...product, narrow: 'product' },
  ...each('com.microsoft.FusedMatMul com.microsoft.TransposeMatMul', product),
  Gemm: { ...general, narrow: 'product' },
  'com.microsoft.FusedGemm': general,
  Conv: { ...convolution, narrow: 'product' },
  'com.microsoft.FusedConv': { ...convolution, rows: rows.alongFirst(0, 3) },
  ConvTranspose: { ...convolution, shapes: windows.convTranspose, overrulesInference: true },
  ...each('LSTM GRU RNN', {
    ...ordinary,
    shapes: shapes.recurrent,
    rows: rows.recurrent,
    cost: 'recurrence',
    layer: 'recurrent',
    narrow: 'recurrent',
  }),
  Einsum: { ...ordinary, shapes: 'run', rows: einsum, layer: 'linear' },
} satisfies Record<string, OperatorFacts>;
