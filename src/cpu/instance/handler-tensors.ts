/** Converts between handlers' tensors and bodies and the project's. */
import { isUtf8 } from 'node:buffer';
import {
  arrayOf,
  bytesElements,
  elementCount,
  elements,
  isDataType,
  packBytes,
  TensorError,
  type DataType,
  type Tensor,
} from '../../tensor/index.ts';
import type { HandlerTensor } from './handler.ts';

export function toTensor(made: HandlerTensor): Tensor {
  const { name, datatype, shape, data } = made;
  if (typeof name !== 'string') throw new TensorError('the handler gave a tensor without a name');
  if (!isDataType(datatype)) throw new TensorError(`tensor '${name}' has the unknown datatype '${String(datatype)}'`);
  if (!Array.isArray(shape) || shape.some((size) => !Number.isInteger(size) || size < 0)) {
    throw new TensorError(`tensor '${name}' has no valid shape`);
  }
  const count = elementCount(shape);
  if (data?.length !== count) {
    throw new TensorError(
      `tensor '${name}' has ${String(data?.length)} elements, but its shape [${shape.join(',')}] takes ${count}`,
    );
  }
  if (datatype === 'BYTES') return { name, datatype, shape, data: packBytes(data as readonly (string | Uint8Array)[]) };
  const typed = typedOf(name, datatype, data as ArrayLike<Plain>);
  return { name, datatype, shape, data: new Uint8Array(typed.buffer, typed.byteOffset, typed.byteLength) };
}

type Plain = number | bigint | boolean;

/** Numbers in their datatype; none is truncated or wrapped to fit. */
function typedOf(name: string, datatype: Exclude<DataType, 'BYTES'>, data: ArrayLike<Plain>): ArrayBufferView {
  const Array_ = arrayOf[datatype];
  if (data instanceof Array_) return data;
  const wide = datatype === 'INT64' || datatype === 'UINT64';
  const rounds = datatype === 'FP32' || datatype === 'FP64';
  const typed = new Array_(data.length);
  for (let index = 0; index < data.length; index++) {
    const given = data[index]!;
    const value = toNumber(given, wide);
    if (value !== undefined) typed[index] = value;
    if (value === undefined || (!rounds && typed[index] !== value)) {
      throw new TensorError(
        `tensor '${name}': element ${index} is ${String(given)}, which is not a value of ${datatype}`,
      );
    }
  }
  return typed;
}

function toNumber(given: Plain, wide: boolean): number | bigint | undefined {
  if (typeof given !== 'number' && typeof given !== 'bigint' && typeof given !== 'boolean') return undefined;
  if (!wide) return Number(given);
  return typeof given === 'number' && !Number.isInteger(given) ? undefined : BigInt(given);
}

export function toHandlerTensor(tensor: Tensor): HandlerTensor {
  const { name, datatype, shape } = tensor;
  if (datatype === 'BYTES') {
    const data = Array.from(bytesElements(tensor), textOrBytes);
    return { name, datatype, shape, data };
  }
  return { name, datatype, shape, data: elements(tensor) };
}

/** A handler's value as a body: text, bytes, or anything else as JSON. Undefined for what JSON cannot express. */
export function toBody(value: unknown): { readonly body: Uint8Array; readonly type: string } | undefined {
  if (typeof value === 'string') return { body: Buffer.from(value, 'utf8'), type: 'text/plain; charset=utf-8' };
  if (ArrayBuffer.isView(value)) {
    const body = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    return { body, type: 'application/octet-stream' };
  }
  const json = JSON.stringify(value);
  return json === undefined ? undefined : { body: Buffer.from(json, 'utf8'), type: 'application/json' };
}

/** A string if the bytes are UTF-8: replacing invalid bytes would change the value. */
function textOrBytes(element: Uint8Array): string | Uint8Array {
  return isUtf8(element)
    ? Buffer.from(element.buffer, element.byteOffset, element.byteLength).toString('utf8')
    : element;
}
