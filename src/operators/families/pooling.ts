/** Pools: one number for each window, or for all pixels of a channel. */
import { ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as windows from '../shapes/window-rules.ts';
import type { Term, Write, Writer } from '../writing.ts';

const windowed: OperatorFacts = {
  ...ordinary,
  shapes: windows.pool,
  overrulesInference: true,
  rows: rows.alongFirst(0),
};
const global: OperatorFacts = {
  ...ordinary,
  shapes: windows.globalPool,
  rows: rows.alongFirst(0),
};

/** A reduction of all pixels. */
const reducing =
  (reduced: (writer: Writer, input: Term, axes: readonly number[]) => Term): Write =>
  (writer) => {
    const input = writer.required(0);
    writer.give(reduced(writer, input, Array.from(input.shape.keys()).slice(2)));
  };

const norm = reducing((writer, input, axes) => {
  const p = writer.attribute('p', 2);
  if (p === 1 || p === 2) return writer.reduced(`ReduceL${p}`, input, axes);
  const power = (x: Term, exponent: number): Term => writer.map('Pow', [x, writer.number(x.datatype, exponent)]);
  return power(writer.reduced('ReduceSum', power(writer.map('Abs', [input]), p), axes), 1 / p);
});
const mean = reducing((writer, input, axes) => writer.reduced('ReduceMean', input, axes));
const most = reducing((writer, input, axes) => writer.reduced('ReduceMax', input, axes));

export const pooling = {
  MaxPool: {
    ...windowed,
    rows: rows.withoutIndices(rows.alongFirst(0)),
    // The places of the maxima.
    jumps: ({ output }) => (output[1] ?? '') !== '',
    leaf: 'pool',
    narrow: 'pool',
  },
  AveragePool: { ...windowed, leaf: 'pool', narrow: 'pool' },
  LpPool: windowed,
  GlobalAveragePool: { ...global, leaf: 'pool', write: mean },
  GlobalMaxPool: { ...global, leaf: 'pool', write: most },
  GlobalLpPool: { ...global, write: norm },
} satisfies Record<string, OperatorFacts>;
