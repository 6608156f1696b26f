/** All hand-written cases. */
import type { Case } from '../case.ts';
import { attentionCases } from './attention.ts';
import { denseCases } from './dense.ts';
import { elementwiseCases } from './elementwise.ts';
import { movementCases } from './movement.ts';
import { normalizationCases } from './normalization.ts';
import { poolingCases } from './pooling.ts';
import { quantizedCases } from './quantized.ts';
import { reductionCases } from './reduction.ts';
import { signalCases } from './signal.ts';
import { visionCases } from './vision.ts';

export const caseGroups: Readonly<Record<string, readonly Case[]>> = {
  elementwise: elementwiseCases,
  movement: movementCases,
  reduction: reductionCases,
  normalization: normalizationCases,
  pooling: poolingCases,
  dense: denseCases,
  attention: attentionCases,
  quantized: quantizedCases,
  vision: visionCases,
  signal: signalCases,
};
