/** The messages of inference.proto that calls decode and encode. */

/** 64-bit integers are strings, so that none is rounded. */
export type Int64 = string | number;

export interface InferParameter {
  readonly parameter_choice?: 'bool_param' | 'int64_param' | 'string_param' | 'double_param' | 'uint64_param';
  readonly bool_param?: boolean;
  readonly int64_param?: Int64;
  readonly string_param?: string;
  readonly double_param?: number;
  readonly uint64_param?: Int64;
}

export type Parameters = Readonly<Record<string, InferParameter>>;

export type ContentsField =
  | 'bool_contents'
  | 'int_contents'
  | 'int64_contents'
  | 'uint_contents'
  | 'uint64_contents'
  | 'fp32_contents'
  | 'fp64_contents'
  | 'bytes_contents';

/** Typed contents as they came; see infer-wire.ts. */
export interface InferTensorContents {
  /** Elements in each list; absent: none. */
  readonly counts: Readonly<Partial<Record<ContentsField, number>>>;
  /** Bytes of the texts in `bytes_contents`, without their lengths. */
  readonly textBytes: number;
  readonly messages: readonly Uint8Array[];
}

export interface InferInputTensor {
  readonly name?: string;
  readonly datatype?: string;
  readonly shape: readonly Int64[];
  readonly parameters?: Parameters;
  readonly contents?: InferTensorContents;
}

export interface ModelInferRequest {
  readonly model_name?: string;
  readonly model_version?: string;
  readonly id?: string;
  readonly parameters?: Parameters;
  readonly inputs: readonly InferInputTensor[];
  readonly outputs: readonly { readonly name?: string; readonly parameters?: Parameters }[];
  readonly raw_input_contents: readonly Uint8Array[];
  /** The message as it came, of which raw contents are parts. */
  readonly wire: Uint8Array;
  /** Inputs, outputs, parameters and dimensions. */
  readonly entries: number;
}

export interface ModelInferResponse {
  readonly model_name: string;
  readonly model_version: string;
  readonly id?: string;
  readonly parameters?: Parameters;
  readonly outputs: readonly { readonly name: string; readonly datatype: string; readonly shape: readonly number[] }[];
  readonly raw_output_contents: readonly Uint8Array[];
}
