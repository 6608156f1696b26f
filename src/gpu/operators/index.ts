/** Every operator that the engine has. */
import { attentionOperators } from './attention/head-product.ts';
import { denseOperators } from './dense/index.ts';
import { elementwiseOperators } from './elementwise/expressions.ts';
import { movementOperators } from './movement/index.ts';
import { normalizationOperators } from './normalization/index.ts';
import { poolingOperators } from './pooling/index.ts';
import { reductionOperators } from './reduction/index.ts';
import type { Operator } from './types.ts';
import { viewOperators } from './views.ts';

export type { Emitter, Operator, Value } from './types.ts';

export const operators: readonly Operator[] = [
  ...viewOperators,
  ...elementwiseOperators,
  ...attentionOperators,
  ...denseOperators,
  ...movementOperators,
  ...reductionOperators,
  ...normalizationOperators,
  ...poolingOperators,
];
