/**
 * Converts between protobuf messages and the plain types, driven by the schema: one walk each way for every message.
 */
import type { Message as ProtobufMessage } from '@bufbuild/protobuf';
import { OnnxError } from './error.ts';
import { isExternal } from './external-data.ts';
import { protobuf } from './protobuf.ts';
import { schemaOf, type MessageName, type MessageSchema } from './schema.ts';
import { tensorBytes, withoutData } from './tensor-data.ts';
import type { FunctionProto, GraphProto, Message, ModelProto, TensorProto } from './types.ts';
import { depthMax, verifyWire } from './wire.ts';

interface PlainOf {
  /** A file may lack the graph; the reader refuses that. */
  ModelProto: Omit<ModelProto, 'graph'> & { graph?: GraphProto };
  GraphProto: GraphProto;
  FunctionProto: FunctionProto;
  TensorProto: TensorProto;
}

type Fields = Record<string, unknown>;

function toPlain(schema: MessageSchema, message: ProtobufMessage): Fields {
  const from = message as unknown as Fields;
  const plain: Fields = {};
  for (const { name, presence, repeated, zero, message: child } of schema.fields) {
    if (repeated) {
      const list = from[name] as unknown[];
      if (list.length === 0 && presence !== 'list') continue;
      plain[name] = child === undefined ? list : list.map((item) => toPlain(child, item as ProtobufMessage));
    } else if (Object.hasOwn(from, name)) {
      const value = from[name];
      plain[name] = child === undefined ? value : toPlain(child, value as ProtobufMessage);
    } else if (presence === 'always') {
      plain[name] = zero;
    }
  }
  if (message.$unknown !== undefined && message.$unknown.length > 0) plain['unknownFields'] = message.$unknown;
  return plain;
}

function toMessage(schema: MessageSchema, given: Fields, keepExternal: boolean): ProtobufMessage {
  let plain = given;
  if (schema.name === 'TensorProto') {
    const tensor = given as unknown as TensorProto;
    if (tensor.source !== undefined && !(keepExternal && isExternal(tensor))) {
      plain = { ...withoutData(tensor), rawData: tensorBytes(tensor) };
    }
  }
  const message = protobuf().core.create(schema.descriptor);
  const into = message as unknown as Fields;
  for (const { name, repeated, zero, message: child } of schema.fields) {
    const value = plain[name];
    if (value === undefined || value === zero) continue;
    if (child === undefined) into[name] = value;
    else if (repeated) into[name] = (value as Fields[]).map((item) => toMessage(child, item, keepExternal));
    else into[name] = toMessage(child, value as Fields, keepExternal);
  }
  const { unknownFields } = plain as Message;
  if (unknownFields !== undefined) message.$unknown = [...unknownFields];
  return message;
}

/**
 * Reads one message. Byte fields (`rawData` among them) are views on `bytes`, not copies.
 * @throws OnnxError if the bytes are not such a message
 */
export function decode<Name extends MessageName>(name: Name, bytes: Uint8Array): PlainOf[Name] {
  const schema = schemaOf(name);
  verifyWire(schema, bytes);
  let message: ProtobufMessage;
  try {
    message = protobuf().core.fromBinary(schema.descriptor, bytes, { recursionLimit: depthMax });
  } catch (error) {
    throw new OnnxError('not-onnx', `the ${name} cannot be decoded: ${(error as Error).message}`, { cause: error });
  }
  return toPlain(schema, message) as unknown as PlainOf[Name];
}

/**
 * Writes one message. Tensors with a source are written with their bytes, unless `keepExternal` is set and they are in
 * a file.
 * @throws OnnxError naming a field whose value does not fit its type
 */
export function encode<Name extends MessageName>(name: Name, plain: PlainOf[Name], keepExternal = false): Uint8Array {
  const schema = schemaOf(name);
  try {
    return protobuf().core.toBinary(schema.descriptor, toMessage(schema, plain as unknown as Fields, keepExternal));
  } catch (error) {
    if (error instanceof OnnxError) throw error;
    throw new OnnxError('bad-model', `the ${name} cannot be encoded: ${(error as Error).message}`, { cause: error });
  }
}
