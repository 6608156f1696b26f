/** Every operator that the engine has. */
import { attentionOperators } from './attention/head-product.ts';
import { elementwiseOperators } from './elementwise/expressions.ts';
import type { Operator } from './types.ts';
import { viewOperators } from './views.ts';

export type { Emitter, Operator, Value } from './types.ts';

export const operators: readonly Operator[] = [...viewOperators, ...elementwiseOperators, ...attentionOperators];
