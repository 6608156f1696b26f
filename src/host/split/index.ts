/** Runs requests of many rows on several lanes at once. */
export { RowSplit, type RunPart } from './row-split.ts';
