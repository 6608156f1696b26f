/** On quantized tensors: 8-bit products and convolutions, weights of few bits, and conversions from and to floats. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import * as windows from '../shapes/window-rules.ts';

const byRun = { ...ordinary, shapes: 'run' } as const;
const unfollowed: OperatorFacts = { ...byRun, rows: 'unknown' };
const converting: OperatorFacts = {
  ...byRun,
  shapes: shapes.sameAsFirst,
  rows: rows.quantization,
  keeps: 'elements',
  mixesPrecisions: true,
};
const product: OperatorFacts = { ...byRun, rows: rows.matrixProduct(0, 1), layer: 'linear' };
const windowed: OperatorFacts = { ...byRun, rows: rows.alongFirst(0) };

export const quantized = {
  ...each('DequantizeLinear com.microsoft.DequantizeLinear', converting),
  ...each('QuantizeLinear com.microsoft.QuantizeLinear', { ...converting, weights: 'first' }),
  DynamicQuantizeLinear: { ...byRun, rows: rows.dynamicQuantization },
  MatMulInteger: { ...product, shapes: shapes.matMul },
  'com.microsoft.MatMulInteger16': { ...product, shapes: shapes.matMul },
  ...each('com.microsoft.MatMulIntegerToFloat com.microsoft.MatMulNBits', product),
  'com.microsoft.DynamicQuantizeMatMul': { ...product, rows: rows.quantizedProduct },
  QLinearMatMul: { ...product, rows: rows.matrixProduct(0, 3) },
  'com.microsoft.QGemm': { ...product, rows: 'unknown' },
  ConvInteger: { ...windowed, shapes: windows.conv, layer: 'conv' },
  ...each('QLinearConv com.microsoft.QLinearConv', { ...windowed, layer: 'conv' }),
  ...each('com.microsoft.QLinearAdd com.microsoft.QLinearMul', { ...byRun, rows: rows.broadcast }),
  ...each('com.microsoft.QLinearSigmoid com.microsoft.QLinearLeakyRelu', { ...byRun, rows: rows.broadcast }),
  ...each('com.microsoft.QLinearWhere com.microsoft.QLinearSoftmax com.microsoft.QLinearConcat', unfollowed),
  'com.microsoft.QLinearAveragePool': windowed,
  'com.microsoft.QLinearGlobalAveragePool': { ...windowed, shapes: windows.globalPool },
  'com.microsoft.GatherBlockQuantized': { ...unfollowed, layer: 'embedding' },
} satisfies Record<string, OperatorFacts>;
