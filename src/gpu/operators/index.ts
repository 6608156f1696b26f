/** All operators of the engine. */
import { attentionOperators } from './attention/index.ts';
import { denseOperators } from './dense/index.ts';
import { elementwiseOperators } from './elementwise/expressions.ts';
import { movementOperators } from './movement/index.ts';
import { normalizationOperators } from './normalization/index.ts';
import { poolingOperators } from './pooling/index.ts';
import { quantizedOperators } from './quantized/index.ts';
import { reductionOperators } from './reduction/index.ts';
import { signalOperators } from './signal/fourier.ts';
import type { Operator } from './types.ts';
import { viewOperators } from './views.ts';
import { visionOperators } from './vision/index.ts';

export type { Emitter, Operator, Value } from './types.ts';

/** Operators by kind. The self-test checks a group at a time. */
export const operatorGroups = {
  elementwise: elementwiseOperators,
  attention: attentionOperators,
  dense: denseOperators,
  movement: movementOperators,
  reduction: reductionOperators,
  normalization: normalizationOperators,
  pooling: poolingOperators,
  quantized: quantizedOperators,
  vision: visionOperators,
  signal: signalOperators,
} as const satisfies Record<string, readonly Operator[]>;

export type OperatorGroup = keyof typeof operatorGroups;

export const operators: readonly Operator[] = [...viewOperators, ...Object.values(operatorGroups).flat()];

/** All operators without those of `groups`. */
export function operatorsWithout(groups: readonly OperatorGroup[]): readonly Operator[] {
  const left = new Set<Operator>(groups.flatMap((group) => operatorGroups[group]));
  return left.size === 0 ? operators : operators.filter((operator) => !left.has(operator));
}
