/** Softmax and the normalisations. */
import type { Operator } from '../types.ts';
import { channelNormalizationOperators } from './channels.ts';
import { rowNormalizationOperators } from './layer-normalization.ts';
import { scalingOperators } from './scaling.ts';
import { softmaxOperators } from './softmax.ts';

export const normalizationOperators: readonly Operator[] = [
  ...softmaxOperators,
  ...rowNormalizationOperators,
  ...channelNormalizationOperators,
  ...scalingOperators,
];
