/** Operators that move elements without computing with them. */
import type { Operator } from '../types.ts';
import { fillingOperators } from './filling.ts';
import { gatheringOperators } from './gathering.ts';
import { joiningOperators } from './joining.ts';
import { pad } from './padding.ts';
import { resizeOperators } from './resize.ts';
import { scatteringOperators } from './scattering.ts';
import { sequenceOperators } from './sequences.ts';
import { stridedOperators } from './strided.ts';
import { transpose } from './transpose.ts';

export const movementOperators: readonly Operator[] = [
  transpose,
  ...stridedOperators,
  ...joiningOperators,
  ...gatheringOperators,
  ...scatteringOperators,
  pad,
  ...resizeOperators,
  ...sequenceOperators,
  ...fillingOperators,
];
