/** Tensors of a client: a datatype, a shape and a typed array. No import, so that it runs in browsers. */

/** The array that holds the elements of each datatype; FP16 and BF16 as their bits. */
export const arrayOf = {
  BOOL: Uint8Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  UINT64: BigUint64Array,
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  FP16: Uint16Array,
  BF16: Uint16Array,
  FP32: Float32Array,
  FP64: Float64Array,
} as const;

/** The datatypes of the Open Inference Protocol v2, plus BF16, which its gRPC form and Triton have. */
export type Datatype = keyof ArrayOf;

/** BYTES are strings or byte arrays, one per element. */
export type ArrayOf = { [D in keyof typeof arrayOf]: (typeof arrayOf)[D]['prototype'] } & {
  BYTES: readonly (string | Uint8Array)[];
};

export type ClientTensor = {
  readonly [D in Datatype]: {
    readonly name: string;
    readonly datatype: D;
    readonly shape: readonly number[];
    readonly data: ArrayOf[D];
  };
}[Datatype];

/** Checks what the types cannot: that the array has as many elements as the shape. @throws RangeError */
export function tensor<D extends Datatype>(
  name: string,
  datatype: D,
  shape: readonly number[],
  data: ArrayOf[D],
): ClientTensor {
  const count = shape.reduce((product, size) => product * size, 1);
  if (data.length !== count) {
    throw new RangeError(
      `tensor '${name}' has ${data.length} elements, but its shape [${shape.join(',')}] takes ${count}`,
    );
  }
  return { name, datatype, shape, data } as unknown as ClientTensor;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true });

/**
 * The elements' bytes in row-major order, little-endian; each BYTES element follows its length in 4 bytes.
 * @throws RangeError if a string has a lone surrogate, which UTF-8 cannot express
 */
export function bytesOf({ name, datatype, data }: ClientTensor): Uint8Array {
  if (datatype !== 'BYTES') return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const elements = data.map((element, index) => {
    if (typeof element !== 'string') return element;
    if (!/\p{Surrogate}/u.test(element)) return encoder.encode(element);
    throw new RangeError(`tensor '${name}': element ${index} has half of a surrogate pair, which is no text`);
  });
  const bytes = new Uint8Array(elements.reduce((sum, { byteLength }) => sum + 4 + byteLength, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const element of elements) {
    view.setUint32(at, element.byteLength, true);
    bytes.set(element, at + 4);
    at += 4 + element.byteLength;
  }
  return bytes;
}

/** The reverse of {@link bytesOf}. BYTES elements become strings if they are UTF-8, else stay bytes. */
export function tensorFrom(
  name: string,
  datatype: Datatype,
  shape: readonly number[],
  bytes: Uint8Array,
): ClientTensor {
  if (datatype === 'BYTES') return { name, datatype, shape, data: elementsOf(bytes) };
  // A copy: a view would need aligned bytes.
  return tensor(name, datatype, shape, new arrayOf[datatype](bytes.slice().buffer) as never);
}

function elementsOf(bytes: Uint8Array): (string | Uint8Array)[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const elements: (string | Uint8Array)[] = [];
  for (let at = 0; at < bytes.byteLength;) {
    const length = view.getUint32(at, true);
    const element = bytes.slice(at + 4, at + 4 + length);
    at += 4 + length;
    try {
      elements.push(decoder.decode(element));
    } catch {
      elements.push(element);
    }
  }
  return elements;
}
