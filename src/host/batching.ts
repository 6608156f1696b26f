import { batchDimension } from '../cpu/index.ts';
import type { FunctionVersion } from './types.ts';

/**
 * Most rows of a run that calls share: `batching.max`, by which the operator says that rows are independent of each other. 1 where
 * the inputs have no open first dimension in common: a model whose first dimension is fixed says how large its batch is.
 */
export const rowsJoinedMax = ({ settings, metadata }: FunctionVersion): number =>
  batchDimension(metadata?.inputs ?? []).kind === 'open' ? settings.batching.batchMax : 1;
