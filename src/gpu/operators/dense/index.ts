/** Matrix products, convolutions, and recurrent networks. */
import type { Operator } from '../types.ts';
import { convolutionOperators } from './convolution.ts';
import { einsum } from './einsum.ts';
import { fusedOperators } from './fused.ts';
import { matmulOperators } from './matmul.ts';
import { recurrentOperators } from './recurrent.ts';

export const denseOperators: readonly Operator[] = [
  ...matmulOperators,
  ...convolutionOperators,
  ...recurrentOperators,
  einsum,
  ...fusedOperators,
];
