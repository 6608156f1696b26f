/** Operators whose result is their first input with another shape. */
import * as chunks from '../chunks/rules.ts';
import { ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as moved from '../shapes/movement-rules.ts';
import * as shapes from '../shapes/rules.ts';

const view = { ...ordinary, keeps: 'bytes', leaf: 'free', arithmetic: 'elements' } as const;
const reshaping = { ...view, weights: 'first', arguments: sizedFrom(1), rows: rows.reshape } as const;

export const views = {
  Identity: { ...view, shapes: shapes.same, rows: rows.broadcast, numbers: (x) => x },
  Reshape: { ...reshaping, shapes: moved.reshape, chunks: chunks.reshape },
  Unsqueeze: { ...reshaping, shapes: moved.unsqueeze },
  Squeeze: { ...reshaping, shapes: moved.squeeze, rows: rows.squeeze, chunks: chunks.squeeze },
  Flatten: { ...view, shapes: moved.flatten, rows: rows.reshape },
  // At inference nothing is dropped. It is no view, since it may also give a mask.
  Dropout: {
    ...ordinary,
    leaf: 'free',
    shapes: shapes.sameAsFirst,
    rows: rows.dropout,
  },
} satisfies Record<string, OperatorFacts>;
