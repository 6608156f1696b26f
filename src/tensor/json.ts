/** The JSON form of tensor data: a flat or nested array of numbers, booleans or strings, row-major. */
import type { DataType } from './datatype.ts';
import { TensorError } from './error.ts';
import { arrayOf, bytesElements, elementCount, elements, packBytes, type Tensor } from './tensor.ts';

const integerRange: Partial<Record<DataType, readonly [min: number | bigint, max: number | bigint]>> = {
  UINT8: [0, 255],
  UINT16: [0, 65_535],
  UINT32: [0, 4_294_967_295],
  INT8: [-128, 127],
  INT16: [-32_768, 32_767],
  INT32: [-2_147_483_648, 2_147_483_647],
  UINT64: [0n, 2n ** 64n - 1n],
  INT64: [-(2n ** 63n), 2n ** 63n - 1n],
};

/**
 * Reads `data` (flat, or nested to the shape's own rank) into a tensor.
 *
 * @throws TensorError naming the tensor when an element is not of the datatype (text such as "NaN" among numbers
 *   and numbers beyond its range included), when a nested array does not have the shape, or when the element count is wrong.
 */
export function tensorFromJson(name: string, datatype: DataType, shape: readonly number[], data: unknown): Tensor {
  if (datatype === 'FP16' || datatype === 'BF16') {
    throw new TensorError(`tensor '${name}' is ${datatype}, which travels only as binary tensor data`);
  }
  if (!Array.isArray(data)) throw new TensorError(`tensor '${name}': 'data' is not an array`);
  const count = elementCount(shape);
  const flat = Array.isArray(data[0]) ? flatten(name, data, shape) : (data as unknown[]);
  if (flat.length !== count) {
    throw new TensorError(
      `tensor '${name}' has ${flat.length} elements of data, but its shape [${shape.join(',')}] takes ${count}`,
    );
  }
  return { name, datatype, shape, data: packJson(name, datatype, flat) };
}

function packJson(name: string, datatype: Exclude<DataType, 'FP16' | 'BF16'>, flat: unknown[]): Uint8Array {
  if (datatype === 'BYTES') {
    flat.forEach((element, index) => {
      if (typeof element !== 'string') throw wrongElement(name, datatype, index, element);
    });
    return packBytes(flat as string[]);
  }
  const values = new arrayOf[datatype](flat.length);
  if (datatype === 'BOOL') {
    for (let index = 0; index < flat.length; index++) {
      const element = flat[index];
      if (element !== true && element !== false && element !== 0 && element !== 1) {
        throw wrongElement(name, datatype, index, element);
      }
      (values as Uint8Array)[index] = element ? 1 : 0;
    }
  } else if (datatype === 'FP32' || datatype === 'FP64') {
    for (let index = 0; index < flat.length; index++) {
      const element = flat[index];
      if (typeof element !== 'number') throw wrongElement(name, datatype, index, element);
      (values as Float64Array)[index] = element;
      // 1e400 is Infinity when it is parsed, 1e39 when it becomes an FP32.
      if (!Number.isFinite(values[index])) throw wrongElement(name, datatype, index, element);
    }
  } else {
    const range = integerRange[datatype];
    if (range === undefined)
      throw new TensorError(`tensor '${name}' has the datatype ${datatype}, which has no JSON form`);
    const [min, max] = range;
    const wide = datatype === 'INT64' || datatype === 'UINT64';
    for (let index = 0; index < flat.length; index++) {
      const element = flat[index];
      if (typeof element !== 'number' || !Number.isInteger(element)) throw wrongElement(name, datatype, index, element);
      if (element < min || element > max) throw wrongElement(name, datatype, index, element);
      // It may have been another number before it was parsed.
      if (!Number.isSafeInteger(element)) throw inexact(name, index, element);
      if (wide) (values as BigInt64Array)[index] = BigInt(element);
      else (values as Int32Array)[index] = element;
    }
  }
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

function wrongElement(name: string, datatype: DataType, index: number, element: unknown): TensorError {
  const shown = showElement(element);
  return new TensorError(`tensor '${name}': element ${index} is ${shown}, which is not a value of ${datatype}`);
}

function inexact(name: string, index: number, element: number): TensorError {
  return new TensorError(
    `tensor '${name}': element ${index} is ${element}, beyond the 2^53 that JSON numbers hold exactly; send it as binary data`,
  );
}

/** What stands in the place of an element, without following a sender's nesting. */
function showElement(element: unknown): string {
  if (Array.isArray(element)) return 'an array';
  if (typeof element === 'object' && element !== null) return 'an object';
  return typeof element === 'string' ? JSON.stringify(element.slice(0, 40)) : String(element);
}

/** Flattens by the shape's own rank, so that the depth of the recursion is the shape's and never the sender's. */
function flatten(name: string, data: unknown[], shape: readonly number[]): unknown[] {
  const flat: unknown[] = [];
  const descend = (part: unknown, depth: number): void => {
    const size = shape[depth];
    if (size === undefined) {
      if (Array.isArray(part)) {
        throw new TensorError(`tensor '${name}': 'data' is nested deeper than its shape [${shape.join(',')}]`);
      }
      flat.push(part);
      return;
    }
    if (!Array.isArray(part) || part.length !== size) {
      throw new TensorError(`tensor '${name}': 'data' does not have the shape [${shape.join(',')}]`);
    }
    for (const inner of part) descend(inner, depth + 1);
  };
  descend(data, 0);
  return flat;
}

/**
 * The shape of a nested array, by its first elements ({@link tensorFromJson} finds the ragged ones). A bare number is
 * `[]`. Deeper than `rankMax` is refused.
 */
export function shapeOfNested(data: unknown, rankMax = 16): number[] {
  const shape: number[] = [];
  let part = data;
  while (Array.isArray(part)) {
    if (shape.length === rankMax) throw new TensorError(`nested deeper than ${rankMax} dimensions`);
    shape.push(part.length);
    part = (part as unknown[])[0];
  }
  return shape;
}

/**
 * The elements as JSON values, flat. JSON has no NaN and no infinities: they become the strings "NaN", "Infinity" and
 * "-Infinity", as protobuf's JSON mapping writes them (numpy reads them back); 64-bit integers beyond 2^53 lose
 * precision unless read in binary form.
 */
export function valuesToJson(tensor: Tensor): (number | string | boolean)[] {
  switch (tensor.datatype) {
    case 'BYTES':
      return Array.from(bytesElements(tensor), (element) =>
        Buffer.from(element.buffer, element.byteOffset, element.byteLength).toString('utf8'),
      );
    case 'BOOL':
      return Array.from(tensor.data, (element) => element !== 0);
    case 'INT64':
    case 'UINT64':
      return Array.from(elements(tensor) as BigInt64Array, Number);
    case 'FP32':
    case 'FP64':
      return Array.from(elements(tensor) as Float64Array, (value) => (Number.isFinite(value) ? value : String(value)));
    case 'FP16':
    case 'BF16':
      throw new TensorError(`tensor '${tensor.name}' is ${tensor.datatype}, which travels only as binary tensor data`);
    default:
      return Array.from(elements(tensor) as Int32Array);
  }
}

/** {@link valuesToJson}, nested to the tensor's shape. */
export function nestedToJson(tensor: Tensor): unknown {
  const flat = valuesToJson(tensor);
  let at = 0;
  const build = (depth: number): unknown => {
    const size = tensor.shape[depth];
    if (size === undefined) return flat[at++];
    return Array.from({ length: size }, () => build(depth + 1));
  };
  return build(0);
}
