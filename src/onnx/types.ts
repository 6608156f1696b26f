/**
 * ONNX's own messages as plain objects, named as onnx.proto names them, in camel case. Every 64-bit integer is a
 * bigint: attributes such as Slice's "to the end" are 2^63-1 and must survive a read and a write.
 */

import type { UnknownField } from '@bufbuild/protobuf';

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
  FLOAT8E8M0: 24,
  UINT2: 25,
  INT2: 26,
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

/** What every message may carry besides its own fields. */
export interface Message {
  /** Fields that the schema does not know, kept as they stood in the file, so that writing gives them back. */
  unknownFields?: readonly UnknownField[];
}

export interface StringStringEntry extends Message {
  key: string;
  value: string;
}

export interface OperatorSetId extends Message {
  /** '' is ai.onnx. */
  domain: string;
  version: bigint;
}

export interface TensorProto extends Message {
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
  /** 0 = in the model, 1 = external. */
  dataLocation?: number;
  docString?: string;
  /** Part of a larger tensor; no runtime reads it. */
  segment?: Segment;
  metadataProps?: StringStringEntry[];
  /**
   * Not in onnx.proto: makes the element bytes when a writer asks for them, so that a model larger than memory can be
   * written. Must return the same bytes each time; `byteLength` is dims x element size.
   */
  source?: () => Uint8Array;
}

export interface Segment extends Message {
  begin: bigint;
  end: bigint;
}

export interface SparseTensorProto extends Message {
  /** The non-zero elements; the name of the sparse tensor is theirs. */
  values?: TensorProto;
  /** Their places: linear, or one row of coordinates each. */
  indices?: TensorProto;
  dims: bigint[];
}

export interface Dimension extends Message {
  /** A fixed size, */
  dimValue?: bigint;
  /** or a name for one that varies; neither means unknown. */
  dimParam?: string;
  denotation?: string;
}

export interface TensorShapeProto extends Message {
  dim: Dimension[];
}

export interface TensorTypeProto extends Message {
  /** {@link ElementType}; a number, since a newer file may hold one that this list lacks. */
  elemType: number;
  /** Absent when not even the rank is known. */
  shape?: TensorShapeProto;
}

/** One of the kinds is present; a host serves tensors only. */
export interface TypeProto extends Message {
  tensorType?: TensorTypeProto;
  sequenceType?: Message & { elemType?: TypeProto };
  mapType?: Message & { keyType: number; valueType?: TypeProto };
  optionalType?: Message & { elemType?: TypeProto };
  sparseTensorType?: TensorTypeProto;
  opaqueType?: Message & { domain: string; name: string };
  denotation?: string;
}

export interface ValueInfoProto extends Message {
  name: string;
  type?: TypeProto;
  docString?: string;
  metadataProps?: StringStringEntry[];
}

export interface AttributeProto extends Message {
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
  sparseTensor?: SparseTensorProto;
  sparseTensors?: SparseTensorProto[];
  tp?: TypeProto;
  typeProtos?: TypeProto[];
  /** In a function's body: the attribute of the calling node that gives the value. */
  refAttrName?: string;
  docString?: string;
}

export interface NodeProto extends Message {
  /** Names of values; '' is an optional input that is left out. */
  input: string[];
  output: string[];
  name: string;
  opType: string;
  domain: string;
  attribute: AttributeProto[];
  docString?: string;
  /** Tells functions of one name and domain apart. */
  overload?: string;
  metadataProps?: StringStringEntry[];
  deviceConfigurations?: NodeDeviceConfigurationProto[];
}

export interface IntIntListEntry extends Message {
  key: bigint;
  value: bigint[];
}

export interface SimpleShardedDim extends Message {
  dimValue?: bigint;
  dimParam?: string;
  numShards: bigint;
}

export interface ShardingSpecProto extends Message {
  tensorName: string;
  device: bigint[];
  indexToDeviceGroupMap: IntIntListEntry[];
  shardedDim: (Message & { axis: bigint; simpleSharding: SimpleShardedDim[] })[];
}

export interface NodeDeviceConfigurationProto extends Message {
  configurationId: string;
  shardingSpec: ShardingSpecProto[];
  pipelineStage?: number;
}

export interface TensorAnnotation extends Message {
  tensorName: string;
  quantParameterTensorNames: StringStringEntry[];
}

export interface GraphProto extends Message {
  name: string;
  node: NodeProto[];
  initializer: TensorProto[];
  input: ValueInfoProto[];
  output: ValueInfoProto[];
  valueInfo: ValueInfoProto[];
  docString?: string;
  sparseInitializer?: SparseTensorProto[];
  quantizationAnnotation?: TensorAnnotation[];
  metadataProps?: StringStringEntry[];
}

/** An operator defined by nodes; called by a node of its name and domain. */
export interface FunctionProto extends Message {
  name: string;
  domain: string;
  overload?: string;
  input: string[];
  output: string[];
  /** Names of attributes without a default, */
  attribute: string[];
  /** and those with one. */
  attributeProto?: AttributeProto[];
  node: NodeProto[];
  opsetImport: OperatorSetId[];
  valueInfo?: ValueInfoProto[];
  docString?: string;
  metadataProps?: StringStringEntry[];
}

export interface TrainingInfoProto extends Message {
  initialization?: GraphProto;
  algorithm?: GraphProto;
  initializationBinding: StringStringEntry[];
  updateBinding: StringStringEntry[];
}

export interface DeviceConfigurationProto extends Message {
  name: string;
  numDevices: number;
  device: string[];
}

export interface ModelProto extends Message {
  irVersion: bigint;
  opsetImport: OperatorSetId[];
  producerName: string;
  producerVersion: string;
  domain: string;
  modelVersion: bigint;
  docString: string;
  graph: GraphProto;
  metadataProps: StringStringEntry[];
  functions?: FunctionProto[];
  trainingInfo?: TrainingInfoProto[];
  configuration?: DeviceConfigurationProto[];
}
