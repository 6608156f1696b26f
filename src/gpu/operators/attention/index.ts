/** Attention operators, and the parts that fusion makes. */
import type { Operator } from '../types.ts';
import { attention } from './attention.ts';
import { headProduct } from './head-product.ts';
import { microsoftAttentionOperators } from './microsoft.ts';
import { rotaryOperators } from './rotary.ts';
import { wholeAttention } from './whole.ts';

export const attentionOperators: readonly Operator[] = [
  headProduct,
  wholeAttention,
  attention,
  ...rotaryOperators,
  ...microsoftAttentionOperators,
];
