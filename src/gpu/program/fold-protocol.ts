/** Requests of the compiler to its folding process, and the answers. */
import type { Tensor } from '../../tensor/index.ts';

/** A tensor whose bytes are elsewhere. */
export interface TensorHead extends Omit<Tensor, 'data'> {
  readonly bytes: number;
}

export interface RunRequest {
  readonly op: 'run';
  readonly modelPath: string;
  readonly inputs: readonly TensorHead[];
  /** A file with the inputs' bytes, one after the other; without it they are zeros. */
  readonly inputPath?: string;
  /** A file for the outputs' bytes, one after the other; without it only shapes are returned. */
  readonly outputPath?: string;
  /** In its served form and with ONNX Runtime's default optimisations, as the CPU pools run models, or with none. */
  readonly asPools: boolean;
}

export type FoldRequest =
  /** The type and shape of every output of a graph, without a run. */
  | { readonly op: 'types'; readonly modelPath: string }
  /** Folds constants and shape arithmetic, and saves the graph. */
  | { readonly op: 'optimize'; readonly modelPath: string; readonly optimizedPath: string }
  | RunRequest;

export interface InferredOutput extends Pick<Tensor, 'name' | 'datatype'> {
  /** Null: a size that is known only after a run. */
  readonly shape: readonly (number | null)[];
}
