/** Pools: one number for each window, or for all pixels of a channel. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as windows from '../shapes/window-rules.ts';

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
  ...each('GlobalAveragePool GlobalMaxPool', { ...global, leaf: 'pool' }),
  GlobalLpPool: global,
} satisfies Record<string, OperatorFacts>;
