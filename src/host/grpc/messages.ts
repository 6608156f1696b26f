/** The messages of inference.proto that calls decode and encode, as the proto loader represents them. */

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

export interface InferTensorContents {
  readonly bool_contents: readonly boolean[];
  readonly int_contents: readonly number[];
  readonly int64_contents: readonly string[];
  readonly uint_contents: readonly number[];
  readonly uint64_contents: readonly string[];
  readonly fp32_contents: readonly number[];
  readonly fp64_contents: readonly number[];
  readonly bytes_contents: readonly Buffer[];
}

export interface InferInputTensor {
  readonly name?: string;
  readonly datatype?: string;
  readonly shape: readonly Int64[];
  readonly parameters?: Parameters;
  readonly contents?: InferTensorContents | null;
}

export interface ModelInferRequest {
  readonly model_name?: string;
  readonly model_version?: string;
  readonly id?: string;
  readonly parameters?: Parameters;
  readonly inputs: readonly InferInputTensor[];
  readonly outputs: readonly { readonly name?: string; readonly parameters?: Parameters }[];
  readonly raw_input_contents: readonly Buffer[];
}

export interface ModelInferResponse {
  readonly model_name: string;
  readonly model_version: string;
  readonly id?: string;
  readonly parameters?: Parameters;
  readonly outputs: readonly { readonly name: string; readonly datatype: string; readonly shape: readonly number[] }[];
  readonly raw_output_contents: readonly Uint8Array[];
}
