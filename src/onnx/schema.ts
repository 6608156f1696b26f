/**
 * The ONNX schema (onnx.proto with its ML types, IR version 11): what messages are read and written by, and what
 * `types.ts` derives the plain types from.
 *
 * As in onnx.proto, a field set to its default differs from an absent one, and text that is not UTF-8 does not stop a
 * read. Enumerations are int32 (the same bytes), so that values newer than this list are kept; oneofs are plain optional
 * fields. Messages that no code here reads (devices, sharding, segments) are left out: their fields stay as bytes.
 */

/** protobuf's wire types. */
export const wireOf = { varint: 0, fixed64: 1, sized: 2, fixed32: 5 } as const;

/** How the bytes of a field look on the wire. */
export type WireKind = keyof typeof wireOf;

const scalars = {
  float: 'fixed32',
  double: 'fixed64',
  int32: 'varint',
  int64: 'varint',
  uint64: 'varint',
  string: 'sized',
  bytes: 'sized',
} as const satisfies Readonly<Record<string, WireKind>>;

export type Scalar = keyof typeof scalars;

/**
 * How the plain types represent a field:
 * - `always`: always present; an absent field reads as the default, and the default is not written
 * - `maybe`: optional; written exactly when present
 * - `list`: an array, empty if the file has none
 * - `maybe-list`, `packed`: an array, left out if empty; packed ones are one run of bytes in the file
 */
export type Presence = 'always' | 'maybe' | 'list' | 'maybe-list' | 'packed';

type FieldRow = readonly [number: number, name: string, type: string, presence: Presence];

const metadata = <Number extends number>(number: Number) =>
  [number, 'metadata_props', 'StringStringEntryProto', 'maybe-list'] as const;

export const messages = {
  ModelProto: [
    [1, 'ir_version', 'int64', 'always'],
    [2, 'producer_name', 'string', 'always'],
    [3, 'producer_version', 'string', 'always'],
    [4, 'domain', 'string', 'always'],
    [5, 'model_version', 'int64', 'always'],
    [6, 'doc_string', 'string', 'always'],
    [7, 'graph', 'GraphProto', 'maybe'],
    [8, 'opset_import', 'OperatorSetIdProto', 'list'],
    [14, 'metadata_props', 'StringStringEntryProto', 'list'],
    [20, 'training_info', 'TrainingInfoProto', 'maybe-list'],
    [25, 'functions', 'FunctionProto', 'maybe-list'],
  ],
  GraphProto: [
    [1, 'node', 'NodeProto', 'list'],
    [2, 'name', 'string', 'always'],
    [5, 'initializer', 'TensorProto', 'list'],
    [10, 'doc_string', 'string', 'maybe'],
    [11, 'input', 'ValueInfoProto', 'list'],
    [12, 'output', 'ValueInfoProto', 'list'],
    [13, 'value_info', 'ValueInfoProto', 'list'],
    [14, 'quantization_annotation', 'TensorAnnotation', 'maybe-list'],
    [15, 'sparse_initializer', 'SparseTensorProto', 'maybe-list'],
    metadata(16),
  ],
  NodeProto: [
    // names of values; '' is an optional input that is left out
    [1, 'input', 'string', 'list'],
    [2, 'output', 'string', 'list'],
    [3, 'name', 'string', 'always'],
    [4, 'op_type', 'string', 'always'],
    [5, 'attribute', 'AttributeProto', 'list'],
    [6, 'doc_string', 'string', 'maybe'],
    [7, 'domain', 'string', 'always'],
    // distinguishes functions of one name and domain
    [8, 'overload', 'string', 'maybe'],
    metadata(9),
  ],
  AttributeProto: [
    [1, 'name', 'string', 'always'],
    [2, 'f', 'float', 'maybe'],
    [3, 'i', 'int64', 'maybe'],
    [4, 's', 'bytes', 'maybe'],
    [5, 't', 'TensorProto', 'maybe'],
    [6, 'g', 'GraphProto', 'maybe'],
    [7, 'floats', 'float', 'maybe-list'],
    [8, 'ints', 'int64', 'maybe-list'],
    [9, 'strings', 'bytes', 'maybe-list'],
    [10, 'tensors', 'TensorProto', 'maybe-list'],
    [11, 'graphs', 'GraphProto', 'maybe-list'],
    [13, 'doc_string', 'string', 'maybe'],
    [14, 'tp', 'TypeProto', 'maybe'],
    [15, 'type_protos', 'TypeProto', 'maybe-list'],
    [20, 'type', 'int32', 'always'],
    // in a function's body: the attribute of the calling node that gives the value
    [21, 'ref_attr_name', 'string', 'maybe'],
    [22, 'sparse_tensor', 'SparseTensorProto', 'maybe'],
    [23, 'sparse_tensors', 'SparseTensorProto', 'maybe-list'],
  ],
  TensorProto: [
    [1, 'dims', 'int64', 'list'],
    [2, 'data_type', 'int32', 'always'],
    [4, 'float_data', 'float', 'packed'],
    [5, 'int32_data', 'int32', 'packed'],
    [6, 'string_data', 'bytes', 'maybe-list'],
    [7, 'int64_data', 'int64', 'packed'],
    [8, 'name', 'string', 'always'],
    // little-endian element bytes; absent if the elements are in a typed field or in an external file
    [9, 'raw_data', 'bytes', 'maybe'],
    [10, 'double_data', 'double', 'packed'],
    [11, 'uint64_data', 'uint64', 'packed'],
    [12, 'doc_string', 'string', 'maybe'],
    // `location` (relative to the model's folder), `offset`, `length`: present if data_location is EXTERNAL (1)
    [13, 'external_data', 'StringStringEntryProto', 'maybe-list'],
    [14, 'data_location', 'int32', 'maybe'],
    metadata(16),
  ],
  SparseTensorProto: [
    // the non-zero elements, with the name of the sparse tensor; their places: linear, or a row of coordinates for each
    [1, 'values', 'TensorProto', 'maybe'],
    [2, 'indices', 'TensorProto', 'maybe'],
    [3, 'dims', 'int64', 'list'],
  ],
  ValueInfoProto: [
    [1, 'name', 'string', 'always'],
    [2, 'type', 'TypeProto', 'maybe'],
    [3, 'doc_string', 'string', 'maybe'],
    metadata(4),
  ],
  // one of the kinds is present; a host serves tensors only
  TypeProto: [
    [1, 'tensor_type', 'TensorTypeProto', 'maybe'],
    [4, 'sequence_type', 'SequenceTypeProto', 'maybe'],
    [5, 'map_type', 'MapTypeProto', 'maybe'],
    [6, 'denotation', 'string', 'maybe'],
    [7, 'opaque_type', 'OpaqueTypeProto', 'maybe'],
    [8, 'sparse_tensor_type', 'TensorTypeProto', 'maybe'],
    [9, 'optional_type', 'SequenceTypeProto', 'maybe'],
  ],
  // TypeProto.Tensor and TypeProto.SparseTensor, which have the same fields
  TensorTypeProto: [
    // a number, since a newer file may hold one that ElementType lacks; without a shape not even the rank is known
    [1, 'elem_type', 'int32', 'always'],
    [2, 'shape', 'TensorShapeProto', 'maybe'],
  ],
  // TypeProto.Sequence and TypeProto.Optional, likewise
  SequenceTypeProto: [[1, 'elem_type', 'TypeProto', 'maybe']],
  MapTypeProto: [
    [1, 'key_type', 'int32', 'always'],
    [2, 'value_type', 'TypeProto', 'maybe'],
  ],
  OpaqueTypeProto: [
    [1, 'domain', 'string', 'always'],
    [2, 'name', 'string', 'always'],
  ],
  TensorShapeProto: [[1, 'dim', 'Dimension', 'list']],
  Dimension: [
    // a fixed size, or a name for a varying one; neither means unknown
    [1, 'dim_value', 'int64', 'maybe'],
    [2, 'dim_param', 'string', 'maybe'],
    [3, 'denotation', 'string', 'maybe'],
  ],
  OperatorSetIdProto: [
    // '' is ai.onnx
    [1, 'domain', 'string', 'always'],
    [2, 'version', 'int64', 'always'],
  ],
  StringStringEntryProto: [
    [1, 'key', 'string', 'always'],
    [2, 'value', 'string', 'always'],
  ],
  FunctionProto: [
    [1, 'name', 'string', 'always'],
    [4, 'input', 'string', 'list'],
    [5, 'output', 'string', 'list'],
    // names of attributes without a default; those with one are in attribute_proto
    [6, 'attribute', 'string', 'list'],
    [7, 'node', 'NodeProto', 'list'],
    [8, 'doc_string', 'string', 'maybe'],
    [9, 'opset_import', 'OperatorSetIdProto', 'list'],
    [10, 'domain', 'string', 'always'],
    [11, 'attribute_proto', 'AttributeProto', 'maybe-list'],
    [12, 'value_info', 'ValueInfoProto', 'maybe-list'],
    [13, 'overload', 'string', 'maybe'],
    metadata(14),
  ],
  TrainingInfoProto: [
    [1, 'initialization', 'GraphProto', 'maybe'],
    [2, 'algorithm', 'GraphProto', 'maybe'],
    [3, 'initialization_binding', 'StringStringEntryProto', 'list'],
    [4, 'update_binding', 'StringStringEntryProto', 'list'],
  ],
  TensorAnnotation: [
    [1, 'tensor_name', 'string', 'always'],
    [2, 'quant_parameter_tensor_names', 'StringStringEntryProto', 'list'],
  ],
} as const satisfies Readonly<Record<string, readonly FieldRow[]>>;

// Numbers of the fields on the way to the bytes of weights: of a model, of its graph, and of a tensor.
export const graphField = 7;
export const initializerField = 5;
export const rawDataField = 9;

/** Name of a message that is read or written by itself. */
export type MessageName = 'ModelProto' | 'GraphProto' | 'FunctionProto' | 'TensorProto';

export interface FieldSchema {
  readonly number: number;
  /** As in onnx.proto. */
  readonly protoName: string;
  /** In camel case, as in the plain types. */
  readonly name: string;
  readonly wire: WireKind;
  readonly presence: Presence;
  readonly repeated: boolean;
  /** For `always`: the value of an absent field. */
  readonly zero: '' | 0 | 0n | undefined;
  /** One of these is there: the type of its elements, or the message that they are. */
  readonly type: Scalar | undefined;
  readonly message: MessageSchema | undefined;
}

export interface MessageSchema {
  readonly name: string;
  readonly fields: readonly FieldSchema[];
  readonly byNumber: ReadonlyMap<number, FieldSchema>;
}

const compiled = new Map<string, MessageSchema>();

function compile(name: string): MessageSchema {
  const known = compiled.get(name);
  if (known !== undefined) return known;
  const fields: FieldSchema[] = [];
  const byNumber = new Map<number, FieldSchema>();
  const schema: MessageSchema = { name, fields, byNumber };
  compiled.set(name, schema); // before its fields: messages contain each other
  for (const [number, protoName, of, presence] of messages[name as keyof typeof messages]) {
    const type = Object.hasOwn(scalars, of) ? (of as Scalar) : undefined;
    const zero = type === 'string' ? '' : type === 'int64' || type === 'uint64' ? 0n : 0;
    const field: FieldSchema = {
      number,
      protoName,
      name: protoName.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase()),
      wire: type === undefined ? 'sized' : scalars[type],
      presence,
      repeated: presence !== 'always' && presence !== 'maybe',
      zero: presence === 'always' ? zero : undefined,
      type,
      message: type === undefined ? compile(of) : undefined,
    };
    fields.push(field);
    byNumber.set(number, field);
  }
  return schema;
}

/** The schema of a message by its name in onnx.proto. */
export const schemaOf = (name: MessageName): MessageSchema => compile(name);
