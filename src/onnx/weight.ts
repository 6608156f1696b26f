/** Constant tensors of a graph: initializers, sparse ones, and the values of Constant nodes. */
import type { Tensor } from '../tensor/index.ts';
import { dataTypeOf } from './element-type.ts';
import { isExternal } from './external-data.ts';
import { tensorByteLength, tensorBytes, tensorElementCount } from './tensor-data.ts';
import { ElementType, type NodeProto, type SparseTensorProto, type TensorProto } from './types.ts';

export interface Weight {
  /** The value's name; in a nested graph after the node's name. */
  readonly name: string;
  readonly elementType: number;
  readonly dims: readonly number[];
  /** Stored elements; of a sparse tensor the non-zero ones. */
  readonly elementCount: number;
  readonly byteLength: number;
  /** `constant` is the value of a Constant node. */
  readonly origin: 'initializer' | 'constant';
  /** Undefined for a sparse tensor. */
  readonly tensor: TensorProto | undefined;
}

const notLearned = new Set<number>([
  ElementType.INT32,
  ElementType.INT64,
  ElementType.UINT32,
  ElementType.UINT64,
  ElementType.BOOL,
  ElementType.STRING,
]);

/** Whether it may hold parameters that training changes, rather than indices, masks or strings. */
export const isLearned = ({ elementType }: Weight): boolean => !notLearned.has(elementType);

/** Not a scalar, a shape or an index. */
export const isParameter = (weight: Weight): boolean => weight.elementCount > 1 && isLearned(weight);

export function denseWeight(name: string, tensor: TensorProto, origin: Weight['origin']): Weight {
  return {
    name,
    elementType: tensor.dataType,
    dims: tensor.dims.map(Number),
    elementCount: tensorElementCount(tensor),
    byteLength: tensorByteLength(tensor),
    origin,
    tensor,
  };
}

export function sparseWeight(name: string, sparse: SparseTensorProto, origin: Weight['origin']): Weight {
  const { values, indices, dims } = sparse;
  return {
    name,
    elementType: values?.dataType ?? ElementType.UNDEFINED,
    dims: dims.map(Number),
    elementCount: values === undefined ? 0 : tensorElementCount(values),
    byteLength:
      (values === undefined ? 0 : tensorByteLength(values)) + (indices === undefined ? 0 : tensorByteLength(indices)),
    origin,
    tensor: undefined,
  };
}

/** The tensor of a Constant node, from whichever attribute holds it; undefined if none does. */
export function constantWeight(node: NodeProto, name: string): Weight | undefined {
  for (const attribute of node.attribute) {
    const { t, sparseTensor, f, floats, i, ints, s, strings } = attribute;
    const tensor = (dims: bigint[], dataType: ElementType, data: Partial<TensorProto>): Weight =>
      denseWeight(name, { name, dims, dataType, ...data }, 'constant');
    if (attribute.name === 'value' && t !== undefined) return denseWeight(name, t, 'constant');
    if (attribute.name === 'sparse_value' && sparseTensor !== undefined) {
      return sparseWeight(name, sparseTensor, 'constant');
    }
    if (attribute.name === 'value_float' && f !== undefined) return tensor([], ElementType.FLOAT, { floatData: [f] });
    if (attribute.name === 'value_floats') {
      return tensor([BigInt(floats?.length ?? 0)], ElementType.FLOAT, { floatData: floats ?? [] });
    }
    if (attribute.name === 'value_int' && i !== undefined) return tensor([], ElementType.INT64, { int64Data: [i] });
    if (attribute.name === 'value_ints') {
      return tensor([BigInt(ints?.length ?? 0)], ElementType.INT64, { int64Data: ints ?? [] });
    }
    if (attribute.name === 'value_string' && s !== undefined)
      return tensor([], ElementType.STRING, { stringData: [s] });
    if (attribute.name === 'value_strings') {
      return tensor([BigInt(strings?.length ?? 0)], ElementType.STRING, { stringData: strings ?? [] });
    }
  }
  return undefined;
}

/**
 * The elements of an INT64 or INT32 constant; undefined for anything else, and for more elements: those are tables, not
 * arguments of an operator.
 */
export function wholeNumbers(weight: Weight | undefined, elementsMax = 65_536): readonly number[] | undefined {
  if (weight?.tensor === undefined || weight.elementCount > elementsMax) return undefined;
  const { tensor, elementType, elementCount } = weight;
  const wide = elementType === ElementType.INT64;
  if (!wide && elementType !== ElementType.INT32) return undefined;
  // Without a source the folder of the file is unknown.
  if (tensor.dataLocation === 1 && tensor.source === undefined) return undefined;
  const bytes = tensorBytes(tensor);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: elementCount }, (_, index) =>
    wide ? Number(view.getBigInt64(index * 8, true)) : view.getInt32(index * 4, true),
  );
}

/** A constant's elements; undefined for text, for more elements, and for those in another file. */
export function smallTensor(weight: Weight | undefined, elementsMax: number): Tensor | undefined {
  const datatype = dataTypeOf(weight?.elementType ?? 0);
  if (weight?.tensor === undefined || datatype === undefined || datatype === 'BYTES') return undefined;
  if (weight.elementCount > elementsMax || isExternal(weight.tensor)) return undefined;
  return { name: weight.name, datatype, shape: weight.dims, data: tensorBytes(weight.tensor) };
}
