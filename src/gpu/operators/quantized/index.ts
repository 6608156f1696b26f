/**
 * Operators on quantised tensors: 8-bit products and convolutions, weights of few bits, and conversions from and to
 * floats.
 */
import type { Operator } from '../types.ts';
import { blockwiseOperators } from './blockwise.ts';
import { quantizedConvolutionOperators } from './convolutions.ts';
import { dynamicQuantizeLinear } from './dynamic.ts';
import { quantizedElementwiseOperators } from './elementwise.ts';
import { linearOperators } from './linear.ts';
import { quantizedProductOperators } from './products.ts';

export const quantizedOperators: readonly Operator[] = [
  ...linearOperators,
  dynamicQuantizeLinear,
  ...quantizedProductOperators,
  ...quantizedConvolutionOperators,
  ...quantizedElementwiseOperators,
  ...blockwiseOperators,
];
