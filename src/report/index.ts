/**
 * Reports of replays as JSON, and as tables and sentences: the same for the terminal and the page. Runs in browsers, so
 * nothing here imports from Node.
 * @module
 */
export * from './capacity.ts';
export * from './compare.ts';
export * from './csv.ts';
export * from './sweep.ts';
export * from './tables.ts';
export type * from './types.ts';
export { verdictOf, type Judged, type HopelessFunction, type LeastTimes } from './verdict.ts';
