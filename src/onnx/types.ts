/**
 * ONNX's own messages as plain objects, named as onnx.proto names them, in camel case. Every 64-bit integer is a
 * bigint: attributes such as Slice's "to the end" are 2^63-1 and must survive a read and a write.
 */

/** onnx.proto, TensorProto.DataType. */
export const ElementType = {
  UNDEFINED: 0,
  FLOAT: 1,
  UINT8: 2,
  INT8: 3,
  UINT16: 4,
  INT16: 5,
  INT32: 6,
  INT64: 7,
  STRING: 8,
  BOOL: 9,
  FLOAT16: 10,
  DOUBLE: 11,
  UINT32: 12,
  UINT64: 13,
  COMPLEX64: 14,
  COMPLEX128: 15,
  BFLOAT16: 16,
  FLOAT8E4M3FN: 17,
  FLOAT8E4M3FNUZ: 18,
  FLOAT8E5M2: 19,
  FLOAT8E5M2FNUZ: 20,
  UINT4: 21,
  INT4: 22,
  FLOAT4E2M1: 23,
} as const;
export type ElementType = (typeof ElementType)[keyof typeof ElementType];

/** onnx.proto, AttributeProto.AttributeType. */
export const AttributeType = {
  UNDEFINED: 0,
  FLOAT: 1,
  INT: 2,
  STRING: 3,
  TENSOR: 4,
  GRAPH: 5,
  FLOATS: 6,
  INTS: 7,
  STRINGS: 8,
  TENSORS: 9,
  GRAPHS: 10,
  SPARSE_TENSOR: 11,
  SPARSE_TENSORS: 12,
  TYPE_PROTO: 13,
  TYPE_PROTOS: 14,
} as const;
export type AttributeType = (typeof AttributeType)[keyof typeof AttributeType];

export interface StringStringEntry {
  key: string;
  value: string;
}

export interface OperatorSetId {
  /** '' is ai.onnx. */
  domain: string;
  version: bigint;
}

export interface TensorProto {
  dims: bigint[];
  dataType: number;
  name: string;
  /** Little-endian element bytes; absent when the elements stand in a typed field or in an external file. */
  rawData?: Uint8Array;
  floatData?: number[];
  int32Data?: number[];
  stringData?: Uint8Array[];
  int64Data?: bigint[];
  doubleData?: number[];
  uint64Data?: bigint[];
  /** `location` (relative to the model's folder), `offset`, `length`: present when dataLocation is EXTERNAL (1). */
  externalData?: StringStringEntry[];
  dataLocation?: number;
  docString?: string;
  /**
   * Not in onnx.proto: makes the element bytes when a writer asks for them, so that a model larger than memory can be
   * written. Must return the same bytes each time; `byteLength` is dims x element size.
   */
  source?: () => Uint8Array;
}

export interface Dimension {
  /** A fixed size, */
  dimValue?: bigint;
  /** or a name for one that varies; neither means unknown. */
  dimParam?: string;
}

export interface TypeProto {
  tensorType?: { elemType: number; shape?: { dim: Dimension[] } };
  /** Sequences, maps, optionals and sparse tensors are kept as read, and refused where a tensor is needed. */
  other?: unknown;
}

export interface ValueInfoProto {
  name: string;
  type?: TypeProto;
  docString?: string;
}

export interface AttributeProto {
  name: string;
  type: number;
  f?: number;
  i?: bigint;
  s?: Uint8Array;
  t?: TensorProto;
  g?: GraphProto;
  floats?: number[];
  ints?: bigint[];
  strings?: Uint8Array[];
  tensors?: TensorProto[];
  graphs?: GraphProto[];
}

export interface NodeProto {
  /** Names of values; '' is an optional input that is left out. */
  input: string[];
  output: string[];
  name: string;
  opType: string;
  domain: string;
  attribute: AttributeProto[];
  docString?: string;
}

export interface GraphProto {
  name: string;
  node: NodeProto[];
  initializer: TensorProto[];
  input: ValueInfoProto[];
  output: ValueInfoProto[];
  valueInfo: ValueInfoProto[];
  docString?: string;
}

export interface ModelProto {
  irVersion: bigint;
  opsetImport: OperatorSetId[];
  producerName: string;
  producerVersion: string;
  domain: string;
  modelVersion: bigint;
  docString: string;
  graph: GraphProto;
  metadataProps: StringStringEntry[];
}
