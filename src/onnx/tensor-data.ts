/** The element bytes of a TensorProto, in whatever form it stores them. */
import { elementBits, elementTypeName } from './element-type.ts';
import { OnnxError } from './error.ts';
import { dataLocationExternal, isExternal, readExternal } from './external-data.ts';
import {
  ElementType,
  type AttributeProto,
  type GraphProto,
  type ModelProto,
  type NodeProto,
  type SparseTensorProto,
  type TensorProto,
} from './types.ts';

/** Number of elements: the product of the dimensions, 1 for a scalar. @throws OnnxError `bad-tensor` */
export function tensorElementCount(tensor: TensorProto): number {
  let count = 1n;
  for (const dim of tensor.dims) {
    if (dim < 0n) throw new OnnxError('bad-tensor', `tensor '${tensor.name}' has the negative dimension ${dim}`);
    count *= dim;
  }
  if (count > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw new OnnxError('bad-tensor', `tensor '${tensor.name}' has more elements than can be counted`);
  }
  return Number(count);
}

/**
 * Bytes of a tensor's elements; types of 4 bits are packed two to a byte. For STRING the bytes of its text.
 * @throws OnnxError `bad-tensor` for a type without a width
 */
export function tensorByteLength(tensor: TensorProto): number {
  if (tensor.dataType === ElementType.STRING) {
    return (tensor.stringData ?? []).reduce((sum, text) => sum + text.byteLength, 0);
  }
  const bits = elementBits(tensor.dataType);
  if (bits === undefined) {
    throw new OnnxError(
      'bad-tensor',
      `tensor '${tensor.name}' has the unknown element type ${elementTypeName(tensor.dataType)}`,
    );
  }
  return Math.ceil((tensorElementCount(tensor) * bits) / 8);
}

function bytesOf(view: ArrayBufferView): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

/** The values of the typed field for this element type, as raw bytes; undefined if that field is absent. */
function typedBytes(tensor: TensorProto): Uint8Array | undefined {
  const { floatData, int32Data, int64Data, doubleData, uint64Data } = tensor;
  switch (tensor.dataType as ElementType) {
    case ElementType.FLOAT:
    case ElementType.COMPLEX64:
      return floatData && bytesOf(Float32Array.from(floatData));
    case ElementType.DOUBLE:
    case ElementType.COMPLEX128:
      return doubleData && bytesOf(Float64Array.from(doubleData));
    case ElementType.INT64:
      return int64Data && bytesOf(BigInt64Array.from(int64Data));
    case ElementType.UINT64:
      return uint64Data && bytesOf(BigUint64Array.from(uint64Data));
    case ElementType.UINT32:
      return uint64Data && bytesOf(Uint32Array.from(uint64Data, Number));
    case ElementType.INT32:
      return int32Data && bytesOf(Int32Array.from(int32Data));
    case ElementType.INT16:
    case ElementType.UINT16:
    case ElementType.FLOAT16:
    case ElementType.BFLOAT16:
      return int32Data && bytesOf(Uint16Array.from(int32Data));
    case ElementType.UNDEFINED:
    case ElementType.STRING:
      return undefined;
    default:
      // 8 bits wide, or 4: then each entry already holds a packed pair.
      return int32Data && Uint8Array.from(int32Data);
  }
}

/**
 * The raw little-endian bytes of a tensor's elements, from `rawData`, a typed field, a file beside the model, or a
 * `source`. `modelDir` is needed only for external tensors without a source.
 * @throws OnnxError `bad-tensor` if the dimensions take another number of bytes, `external-data` as {@link
 * readExternal}, `unsupported` for STRING, whose elements have no fixed width (they are in `stringData`)
 */
export function tensorBytes(tensor: TensorProto, modelDir?: string): Uint8Array {
  if (tensor.dataType === ElementType.STRING) {
    throw new OnnxError('unsupported', `tensor '${tensor.name}' holds strings, which have no raw bytes`);
  }
  const expectedBytes = tensorByteLength(tensor);
  let bytes: Uint8Array | undefined;
  if (tensor.source !== undefined) bytes = tensor.source();
  else if (isExternal(tensor)) {
    if (modelDir === undefined) {
      throw new OnnxError('external-data', `tensor '${tensor.name}' is external, and the model's folder is not known`);
    }
    return readExternal(tensor, expectedBytes, modelDir);
  } else bytes = tensor.rawData ?? typedBytes(tensor) ?? new Uint8Array(0);
  checkDataLength(tensor, bytes.byteLength);
  return bytes;
}

const dataFields = [
  'source',
  'rawData',
  'floatData',
  'int32Data',
  'int64Data',
  'doubleData',
  'uint64Data',
  'stringData',
  'externalData',
  'dataLocation',
] as const satisfies readonly (keyof TensorProto)[];

/** A copy of a tensor without its elements. */
export function withoutData(tensor: TensorProto): TensorProto {
  const copy = { ...tensor };
  for (const field of dataFields) delete copy[field];
  return copy;
}

/** A copy whose elements are `length` bytes of a file beside the model, from `offset` on. */
export const asExternal = (tensor: TensorProto, location: string, offset: number, length: number): TensorProto => ({
  ...withoutData(tensor),
  dataLocation: dataLocationExternal,
  externalData: Object.entries({ location, offset, length }).map(([key, value]) => ({ key, value: String(value) })),
});

/** @throws OnnxError `bad-tensor` unless the tensor's dimensions take `found` bytes */
export function checkDataLength(tensor: TensorProto, found: number): void {
  const expected = tensorByteLength(tensor);
  if (found === expected) return;
  throw new OnnxError(
    'bad-tensor',
    `tensor '${tensor.name}' has ${found} bytes of data, but ${elementTypeName(tensor.dataType)} of dimensions [${tensor.dims.join(',')}] takes ${expected}`,
  );
}

/** @throws OnnxError `bad-tensor` unless the model holds as many bytes as the tensor's dimensions take */
export function checkTensorData(tensor: TensorProto): void {
  if (tensor.dataType === ElementType.STRING) {
    const count = tensorElementCount(tensor);
    const found = tensor.stringData?.length ?? 0;
    if (found !== count) {
      throw new OnnxError(
        'bad-tensor',
        `tensor '${tensor.name}' has ${found} strings, but its dimensions [${tensor.dims.join(',')}] take ${count}`,
      );
    }
    return;
  }
  if (tensor.source !== undefined || isExternal(tensor)) {
    tensorByteLength(tensor); // throws for a type or dimensions that have no size
    return;
  }
  checkDataLength(tensor, tensor.rawData?.byteLength ?? typedBytes(tensor)?.byteLength ?? 0);
}

function* tensorsOfSparse(sparse: readonly (SparseTensorProto | undefined)[]): Generator<TensorProto> {
  for (const each of sparse) {
    if (each?.values !== undefined) yield each.values;
    if (each?.indices !== undefined) yield each.indices;
  }
}

function* tensorsOfAttributes(attributes: readonly AttributeProto[]): Generator<TensorProto> {
  for (const { t, tensors = [], g, graphs = [], sparseTensor, sparseTensors = [] } of attributes) {
    if (t !== undefined) yield t;
    yield* tensors;
    yield* tensorsOfSparse([sparseTensor, ...sparseTensors]);
    if (g !== undefined) yield* tensorsOfGraph(g);
    for (const graph of graphs) yield* tensorsOfGraph(graph);
  }
}

function* tensorsOfNodes(nodes: readonly NodeProto[]): Generator<TensorProto> {
  for (const { attribute } of nodes) yield* tensorsOfAttributes(attribute);
}

/** Every tensor of a graph: initializers, sparse ones, attributes of its nodes, and those of nested graphs. */
export function* tensorsOfGraph(graph: GraphProto): Generator<TensorProto> {
  yield* graph.initializer;
  yield* tensorsOfSparse(graph.sparseInitializer ?? []);
  yield* tensorsOfNodes(graph.node);
}

/** Every tensor of a model, functions and training graphs included. */
export function* tensorsOfModel(model: ModelProto): Generator<TensorProto> {
  yield* tensorsOfGraph(model.graph);
  for (const { node, attributeProto = [] } of model.functions ?? []) {
    yield* tensorsOfNodes(node);
    yield* tensorsOfAttributes(attributeProto);
  }
  for (const { initialization, algorithm } of model.trainingInfo ?? []) {
    if (initialization !== undefined) yield* tensorsOfGraph(initialization);
    if (algorithm !== undefined) yield* tensorsOfGraph(algorithm);
  }
}
