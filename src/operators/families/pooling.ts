/** Pooling operators: one number for each window, or one for all pixels of a channel. */
import { ordinary, type OperatorFacts } from '../facts.ts';
import { ElementType } from '../../onnx/index.ts';
import { is, like } from '../result-types.ts';
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

/** Writes a global pool as a reduction over all pixels of a channel. */
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
const maximum = reducing((writer, input, axes) => writer.reduced('ReduceMax', input, axes));

/** From [items, ...sizes, channels] to [items, channels, ...sizes]. */
const channelsFirst = (shape: readonly number[]): number[] => [shape[0]!, shape.at(-1)!, ...shape.slice(1, -1)];
const channelsLast = ([items, channels, ...sizes]: readonly number[]): number[] => [items!, ...sizes, channels!];

const withChannelsLast: Write = (writer) => {
  const x = writer.required(0);
  const axes = Array.from(x.shape.keys());
  const shape = channelsFirst(writer.output.shape);
  const pooled = writer.made('MaxPool', [writer.permuted(x, channelsFirst(axes))], { ...writer.output, shape }, 'own');
  writer.give(writer.permuted(pooled, channelsLast(axes)));
};

export const pooling = {
  MaxPool: {
    ...windowed,
    types: [like(0), is(ElementType.INT64)],
    rows: rows.withoutIndices(rows.alongFirst(0)),
    // Its second output holds the positions of the maxima: where two values are nearly equal, an error moves them.
    jumps: ({ output }) => (output[1] ?? '') !== '',
    leaf: 'pool',
    narrow: 'pool',
  },
  AveragePool: { ...windowed, leaf: 'pool', narrow: 'pool' },
  LpPool: windowed,
  'com.microsoft.NhwcMaxPool': {
    ...windowed,
    shapes(input) {
      const [x] = input.inputs;
      const pooled = x && windows.pool({ ...input, inputs: [{ dims: channelsFirst(x.dims) }] });
      return pooled?.map((result) => result && { dims: channelsLast(result.dims) });
    },
    write: withChannelsLast,
  },
  GlobalAveragePool: { ...global, leaf: 'pool', write: mean },
  GlobalMaxPool: { ...global, leaf: 'pool', write: maximum },
  GlobalLpPool: { ...global, write: norm },
} satisfies Record<string, OperatorFacts>;
