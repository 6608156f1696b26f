/** Operators on images: sampling by a grid, pooling of regions, and deformable convolutions. */
import { each, ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';

const unfollowed: OperatorFacts = { ...ordinary, shapes: 'run', rows: 'unknown' };

export const vision = {
  ...each('GridSample com.microsoft.GridSample', { ...unfollowed, rows: rows.alongFirst(0, 1) }),
  AffineGrid: { ...unfollowed, arguments: sizedFrom(1) },
  ...each('RoiAlign MaxRoiPool', unfollowed),
  DeformConv: { ...unfollowed, layer: 'conv' },
} satisfies Record<string, OperatorFacts>;
