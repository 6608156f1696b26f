/** What may be done with the rows of calls: joining them into one run, padding them, and splitting them again. */
export { rowsOf, type Rows, type RowsOf } from './compare-graphs.ts';
export { cut, repeated } from './layout.ts';
export { differingAxis, type RowCounts } from '../operators/index.ts';
export { declaredRows } from './declared.ts';
export { rowsByGraph, type RowsByGraph } from './by-graph.ts';
export { rowsByRuns, type RowsByRuns } from './by-runs.ts';
export { rowDifference } from './differ.ts';
export { thresholdsOf } from './vary.ts';
