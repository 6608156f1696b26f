/** Operators whose result is their first input with another shape or type. */
import * as chunks from '../chunks/rules.ts';
import { ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import { ElementType } from '../../onnx/index.ts';
import { is, like, named, unknown } from '../result-types.ts';
import * as rows from '../row-rules/rules.ts';
import * as moved from '../shapes/movement-rules.ts';
import * as shapes from '../shapes/rules.ts';
import { elements } from '../../tensor/index.ts';
import { Unsupported, type Write } from '../writing.ts';

const view = { ...ordinary, keeps: 'bytes', leaf: 'free', arithmetic: 'elements' } as const;
const reshaping = { ...view, weights: 'first', arguments: sizedFrom(1), rows: rows.reshape } as const;

/** At inference nothing is dropped. If the mask is used, it is all true. */
const dropout: Write = (writer) => {
  const training = writer.constant(2);
  if (writer.input(2) !== undefined && (training === undefined || elements(training)[0] !== 0))
    throw new Unsupported('it is in training mode');
  writer.give(writer.required(0));
  const mask = writer.result(1);
  if (mask !== undefined) writer.give(writer.repeated(writer.number('BOOL', 1), mask.shape), 1);
};

export const views = {
  Identity: { ...view, shapes: shapes.same, rows: rows.broadcast, numbers: (x) => x },
  Reshape: { ...reshaping, shapes: moved.reshape, chunks: chunks.reshape },
  Unsqueeze: { ...reshaping, shapes: moved.unsqueeze },
  Squeeze: { ...reshaping, shapes: moved.squeeze, rows: rows.squeeze, chunks: chunks.squeeze },
  Flatten: { ...view, shapes: moved.flatten, rows: rows.reshape },
  // What is known of its elements is of another type.
  BitCast: { ...ordinary, types: [named('to', unknown)], shapes: 'run', rows: 'unknown' },
  // It is no view, since it may also give a mask.
  Dropout: {
    ...ordinary,
    leaf: 'free',
    types: [like(0), is(ElementType.BOOL)],
    shapes: shapes.sameAsFirst,
    rows: rows.dropout,
    write: dropout,
  },
} satisfies Record<string, OperatorFacts>;
