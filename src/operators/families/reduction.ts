/** Reductions along axes, and what sorts or adds up along one. */
import { always, each, ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import { ElementType } from '../../onnx/index.ts';
import { is, like } from '../result-types.ts';
import * as rows from '../row-rules/rules.ts';
import { intOf, intsAt } from '../row-rules/step.ts';
import * as shapes from '../shapes/rules.ts';

const reducing: OperatorFacts = {
  ...ordinary,
  arguments: sizedFrom(1),
  shapes: shapes.reduce,
  rows: rows.reducing(rows.reducedAxes),
};
/** The axis is an input, which the kernel needs as a constant. */
const running = {
  ...ordinary,
  arguments: { from: 1, decide: 'kernel' },
  shapes: shapes.sameAsFirst,
  rows: rows.alongAxis((step) => intsAt(step, 1)?.[0] ?? 0, rows.never),
} as const;

export const reduction = {
  ...each('ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2', reducing),
  ...each('ReduceSumSquare ReduceLogSum ReduceLogSumExp', reducing),
  ...each('ArgMax ArgMin', {
    ...ordinary,
    types: [is(ElementType.INT64)],
    shapes: shapes.argReduce,
    rows: rows.reducing((step) => [intOf(step, 'axis', 0)]),
    jumps: always,
  }),
  TopK: {
    ...ordinary,
    weights: 'first',
    arguments: sizedFrom(1),
    types: [like(0), is(ElementType.INT64)],
    shapes: shapes.topK,
    rows: rows.alongAxis(rows.axisAttribute(-1), rows.never),
    jumps: always,
  },
  ...each('CumSum CumProd', running),
  Det: { ...ordinary, shapes: 'run', rows: 'unknown' },
} satisfies Record<string, OperatorFacts>;
