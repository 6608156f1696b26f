/** Requests of the compiler to its folding process, and the answers. */
import type { DataType } from '../../tensor/index.ts';

export interface RunRequest {
  readonly op: 'run';
  readonly modelPath: string;
  /** Filled with zeros. `type`: ONNX Runtime's name, 'float32'. */
  readonly inputs: readonly { readonly name: string; readonly type: string; readonly shape: readonly number[] }[];
  /** A file for the outputs' bytes, one after the other; without it only shapes are returned. */
  readonly outputPath?: string;
}

export interface ReferenceInput {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** Runs the model with the CPU pools' optimisations. */
export interface ReferenceRequest {
  readonly op: 'reference';
  readonly modelPath: string;
  /** A file with the inputs' bytes, one after the other. */
  readonly inputPath: string;
  readonly inputs: readonly ReferenceInput[];
  /** A file for the outputs' bytes. */
  readonly outputPath: string;
}

export type FoldRequest =
  /** The type and shape of every output of a graph, without a run. */
  | { readonly op: 'types'; readonly modelPath: string }
  /** Folds constants and shape arithmetic, and saves the graph. */
  | { readonly op: 'optimize'; readonly modelPath: string; readonly optimizedPath: string }
  | RunRequest
  | ReferenceRequest;

export interface FoldedOutput {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

export interface InferredOutput {
  readonly name: string;
  /** ONNX Runtime's name: 'float32'. */
  readonly type: string;
  /** Null: a size that is known only after a run. */
  readonly shape: readonly (number | null)[];
}
