/** What the compiler of programs and its folding process say to each other. */

export interface RunRequest {
  readonly op: 'run';
  readonly modelPath: string;
  /** Filled with zeros. `type` as ONNX Runtime names it: 'float32'. */
  readonly inputs: readonly { readonly name: string; readonly type: string; readonly shape: readonly number[] }[];
  /** The outputs' bytes go there, one after the other; undefined: only their shapes are wanted. */
  readonly outputPath?: string;
}

export type FoldRequest =
  /** Folds what follows from constants and fixed shapes, and saves the graph. */
  { readonly op: 'optimize'; readonly modelPath: string; readonly optimizedPath: string } | RunRequest;

export interface FoldedOutput {
  readonly name: string;
  readonly type: string;
  readonly shape: readonly number[];
  readonly bytes: number;
}

export type FoldReply =
  { readonly ok: true; readonly outputs: readonly FoldedOutput[] } | { readonly ok: false; readonly message: string };
