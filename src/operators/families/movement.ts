/** Operators that move elements without computing with them, or fill tensors. */
import { each, ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import * as places from '../row-rules/place-rules.ts';
import * as rows from '../row-rules/rules.ts';
import * as moved from '../shapes/movement-rules.ts';
import * as shapes from '../shapes/rules.ts';

const unfollowed = { ...ordinary, rows: 'unknown' } as const;
/** Inputs behind the first are sizes, axes or counts. */
const sized = { weights: 'first', arguments: sizedFrom(1) } as const;
const counting = { arithmetic: 'elements' } as const;
const free = { leaf: 'free' } as const;

export const movement = {
  Transpose: {
    ...ordinary,
    shapes: moved.transpose,
    rows: rows.transpose,
    keeps: 'elements',
  },
  Slice: {
    ...ordinary,
    ...sized,
    ...counting,
    ...free,
    shapes: moved.slice,
    overrulesInference: true,
    rows: rows.slice,
  },
  Expand: { ...ordinary, ...sized, ...free, shapes: moved.expand, rows: rows.expand, chunks: 'whole' },
  Tile: { ...unfollowed, ...sized, shapes: moved.tile },
  ...each('DepthToSpace SpaceToDepth', { ...ordinary, shapes: 'run', rows: rows.alongFirst(0) }),
  Concat: {
    ...ordinary,
    ...counting,
    shapes: moved.concat,
    rows: rows.concat,
    narrow: 'join',
  },
  Split: {
    ...ordinary,
    ...free,
    arguments: sizedFrom(1),
    shapes: moved.split,
    rows: rows.split,
  },
  Gather: {
    ...ordinary,
    ...counting,
    shapes: moved.gather,
    rows: places.gather,
    cost: 'lookup',
    layer: 'embedding',
    // Of a computed value with constant indices it picks elements; it is no lookup.
    weights: 'first',
    narrow: 'lookup',
  },
  GatherElements: {
    ...ordinary,
    shapes: shapes.likeIndices,
    rows: places.gatherElements,
    cost: 'lookup',
    narrow: 'lookup',
  },
  GatherND: { ...ordinary, shapes: 'run', rows: places.gatherNd, narrow: 'lookup' },
  ...each('TensorScatter Scatter ScatterElements ScatterND ReverseSequence EyeLike Trilu', {
    ...unfollowed,
    shapes: shapes.sameAsFirst,
  }),
  Pad: { ...ordinary, weights: 'first', arguments: sizedFrom(1, 2), shapes: moved.pad, rows: rows.pad },
  Resize: { ...ordinary, ...sized, shapes: shapes.resize, rows: rows.resize, chunks: 'whole', mixesPrecisions: true },
  Upsample: { ...unfollowed, ...sized, shapes: 'run', mixesPrecisions: true },
  MaxUnpool: { ...unfollowed, arguments: sizedFrom(2), shapes: 'run' },
  Col2Im: { ...unfollowed, arguments: sizedFrom(1), shapes: 'run' },
  BitCast: { ...unfollowed, shapes: 'run' },
  Range: { ...unfollowed, ...free, weights: 'first', arguments: sizedFrom(0), shapes: shapes.range },
  ConstantOfShape: {
    ...ordinary,
    ...free,
    arguments: sizedFrom(0),
    shapes: shapes.constantOfShape,
    rows: rows.constantOfShape,
  },
  OneHot: { ...ordinary, weights: 'first', arguments: sizedFrom(1, 2), shapes: 'run', rows: places.oneHot },
} satisfies Record<string, OperatorFacts>;
