/** An entry of the cache of prepared weights: the names of its files, and its manifest. */
import type { ModelOpening } from '../../onnx/index.ts';
import type { WeightChunk } from './weights-chunks.ts';
import type { StreamedBytes } from '../../tools/index.ts';

/** The optimized graph; it names the chunks of its weights, to which the entry has links. */
export const preparedFile = 'model.onnx';
/** Written last: without it the entry is invalid. */
export const manifestFile = 'manifest.json';

/** Sharing less than this saves no memory worth mentioning beside a process. */
export const worthBytesMin = 4 * 1024 * 1024;

export interface Manifest {
  readonly model: StreamedBytes;
  readonly chunks: readonly WeightChunk[];
}

/** The task of the process that prepares an entry. */
export interface PrepareOrder {
  /** The folder of the entry. */
  readonly folder: string;
  /** The folder of the chunks of all entries, on the same disk. */
  readonly shared: string;
  readonly modelBytes: number;
  readonly modelPath: string;
  readonly opening: ModelOpening | undefined;
}

/** Its result. */
export type Prepared =
  /** `built`: the entry was missing or broken, and has been built again. */
  | { readonly state: 'ready'; readonly built: boolean }
  /** The weights are so few that sharing them is not worth the files. */
  | { readonly state: 'small' };

export interface WeightsApi {
  prepare(order: PrepareOrder): Prepared;
}
