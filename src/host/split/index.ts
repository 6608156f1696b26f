/** Requests of many rows on several lanes at once. */
export { RowSplit } from './row-split.ts';
