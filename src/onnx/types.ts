/**
 * ONNX's messages as plain objects, with the names of onnx.proto in camel case. Every 64-bit integer is a bigint:
 * attributes such as Slice's "to the end" are 2^63-1 and must survive a read and a write. The fields come from the
 * schema.
 */

import type { messages } from './schema.ts';

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

/** A field that the schema does not know, as it stands in the file behind its tag. */
export interface UnknownField {
  readonly no: number;
  readonly wireType: number;
  readonly data: Uint8Array;
}

/** What every message may have besides its own fields. */
export interface Message {
  /** Fields that the schema does not know, kept unchanged so that they are written again. */
  unknownFields?: readonly UnknownField[];
}

type Messages = typeof messages;

type CamelCase<Text extends string> = Text extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Text;

interface Scalars {
  float: number;
  double: number;
  int32: number;
  int64: bigint;
  uint64: bigint;
  string: string;
  bytes: Uint8Array;
}

type Value<Type> = Type extends keyof Scalars
  ? Scalars[Type]
  : Type extends 'TensorProto'
    ? TensorProto
    : Type extends keyof Messages
      ? Fields<Type>
      : never;

type Required = 'always' | 'list';

/** The fields of a message, from its rows in the schema. */
type Fields<Name extends keyof Messages> = Message & {
  [Row in Messages[Name][number] as Row[3] extends Required ? CamelCase<Row[1]> : never]: Row[3] extends 'list'
    ? Value<Row[2]>[]
    : Value<Row[2]>;
} & {
  [Row in Messages[Name][number] as Row[3] extends Required ? never : CamelCase<Row[1]>]?: Row[3] extends 'maybe'
    ? Value<Row[2]>
    : Value<Row[2]>[];
};

export type StringStringEntry = Fields<'StringStringEntryProto'>;
export type SparseTensorProto = Fields<'SparseTensorProto'>;
export type Dimension = Fields<'Dimension'>;
export type TensorTypeProto = Fields<'TensorTypeProto'>;
export type TypeProto = Fields<'TypeProto'>;
export type ValueInfoProto = Fields<'ValueInfoProto'>;
export type AttributeProto = Fields<'AttributeProto'>;
export type NodeProto = Fields<'NodeProto'>;
export type GraphProto = Fields<'GraphProto'>;
/** An operator defined by nodes; called by a node with its name and domain. */
export type FunctionProto = Fields<'FunctionProto'>;

export interface TensorProto extends Fields<'TensorProto'> {
  /**
   * Not in onnx.proto: makes the element bytes on demand, so that a model larger than memory can be written. It must
   * return the same bytes each time; `byteLength` is dims x element size.
   */
  source?: () => Uint8Array;
}

export interface ModelProto extends Fields<'ModelProto'> {
  /** A file may lack it; the reader refuses that. */
  graph: GraphProto;
}

export interface PlainOf {
  /** A file may lack the graph; the reader refuses that. */
  ModelProto: Omit<ModelProto, 'graph'> & { graph?: GraphProto };
  GraphProto: GraphProto;
  FunctionProto: FunctionProto;
  TensorProto: TensorProto;
}
