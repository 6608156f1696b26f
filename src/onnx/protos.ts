/** Makes nodes, attributes and tensors in the form of a file. */
import { byteCount, type Tensor } from '../tensor/index.ts';
import { elementTypeOf } from './element-type.ts';
import { AttributeType, type AttributeProto, type GraphProto, type NodeProto, type TensorProto } from './types.ts';

/**
 * An attribute of a node. A plain number is an INT and must be an integer: ONNX distinguishes 1 from 1.0, JavaScript
 * does not. Write a FLOAT as `{ float: 1 }`.
 */
export type AttributeValue =
  | number
  | bigint
  | string
  | readonly number[]
  | readonly bigint[]
  | readonly string[]
  | { readonly float: number }
  | { readonly floats: readonly number[] }
  | { readonly tensor: TensorProto }
  | { readonly graph: GraphProto };

/** Something that would make an invalid model: an unknown input, a name used twice, a fraction as an INT. */
export class GraphBuilderError extends Error {
  readonly code = 'bad-graph';
  override readonly name = 'GraphBuilderError';
}

/** @param input names of values; '' leaves an optional one out */
export function nodeProto(
  opType: string,
  input: readonly string[],
  output: readonly string[],
  attributes: Readonly<Record<string, AttributeValue>> = {},
  { name = '', domain = '' }: { readonly name?: string; readonly domain?: string } = {},
): NodeProto {
  const attribute = Object.entries(attributes).map(([key, value]) => attributeProto(key, value, name));
  return { name, opType, domain, input: [...input], output: [...output], attribute };
}

/** @param node its name, for an error */
export function attributeProto(name: string, value: AttributeValue, node = ''): AttributeProto {
  if (typeof value === 'number' || typeof value === 'bigint') {
    return { name, type: AttributeType.INT, i: integer(node, name, value) };
  }
  if (typeof value === 'string') return { name, type: AttributeType.STRING, s: Buffer.from(value, 'utf8') };
  if (isList(value)) {
    if (value.length > 0 && value.every((item) => typeof item === 'string')) {
      return { name, type: AttributeType.STRINGS, strings: value.map((item) => Buffer.from(item, 'utf8')) };
    }
    return {
      name,
      type: AttributeType.INTS,
      ints: (value as readonly (number | bigint)[]).map((item) => integer(node, name, item)),
    };
  }
  if ('float' in value) return { name, type: AttributeType.FLOAT, f: value.float };
  if ('floats' in value) return { name, type: AttributeType.FLOATS, floats: [...value.floats] };
  if ('tensor' in value) return { name, type: AttributeType.TENSOR, t: value.tensor };
  return { name, type: AttributeType.GRAPH, g: value.graph };
}

function isList(value: AttributeValue): value is readonly number[] | readonly bigint[] | readonly string[] {
  return Array.isArray(value);
}

function integer(node: string, name: string, value: number | bigint): bigint {
  if (typeof value === 'number' && !Number.isSafeInteger(value)) {
    throw new GraphBuilderError(
      `attribute '${name}' of node '${node}' is ${value}, which is not an integer; a FLOAT is written { float: ${value} }`,
    );
  }
  return BigInt(value);
}

/** The number of elements of a weight. */
export function checkedCount(name: string, shape: readonly number[]): number {
  let count = 1;
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 0) {
      throw new GraphBuilderError(`weight '${name}' has the size ${size} in its shape [${shape.join(',')}]`);
    }
    count *= size;
  }
  return count;
}

/** @throws GraphBuilderError for text, and for bytes that do not fit the shape */
export function tensorProto(name: string, { datatype, shape, data }: Tensor): TensorProto {
  if (datatype === 'BYTES')
    throw new GraphBuilderError(`tensor '${name}' is BYTES, which a graph cannot hold as raw data`);
  const count = checkedCount(name, shape);
  if (data.byteLength !== byteCount(datatype, shape)) {
    throw new GraphBuilderError(
      `tensor '${name}' has ${data.byteLength} bytes, but ${count} elements of ${datatype} take ${byteCount(datatype, shape)}`,
    );
  }
  return { name, dims: shape.map(BigInt), dataType: elementTypeOf(datatype), rawData: data };
}
