/** What the compiler of programs and its folding process say to each other. */
import type { DataType } from '../../tensor/index.ts';

export interface RunRequest {
  readonly op: 'run';
  readonly modelPath: string;
  /** Filled with zeros. `type` as ONNX Runtime names it: 'float32'. */
  readonly inputs: readonly { readonly name: string; readonly type: string; readonly shape: readonly number[] }[];
  /** The outputs' bytes go there, one after the other; undefined: only their shapes are wanted. */
  readonly outputPath?: string;
}

export interface ReferenceInput {
  readonly name: string;
  readonly datatype: DataType;
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** A run of the model as the CPU pools run it. */
export interface ReferenceRequest {
  readonly op: 'reference';
  readonly modelPath: string;
  /** The inputs' bytes stand there, one after the other. */
  readonly inputPath: string;
  readonly inputs: readonly ReferenceInput[];
  /** Takes the outputs' bytes. */
  readonly outputPath: string;
}

export type FoldRequest =
  /** The type and shape of every output of a graph, without a run. */
  | { readonly op: 'types'; readonly modelPath: string }
  /** Folds what follows from constants and fixed shapes, and saves the graph. */
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
  /** As ONNX Runtime names it: 'float32'. */
  readonly type: string;
  /** Null: a size that only a run tells. */
  readonly shape: readonly (number | null)[];
}
