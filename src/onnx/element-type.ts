/** ONNX element types: their names, their width, and the datatypes of the Open Inference Protocol for them. */
import { elementBytes, type DataType } from '../tensor/index.ts';
import { ElementType } from './types.ts';

const names = new Map<number, string>(Object.entries(ElementType).map(([name, value]) => [value, name]));

const elementTypes: Readonly<Record<DataType, ElementType>> = {
  BOOL: ElementType.BOOL,
  UINT8: ElementType.UINT8,
  UINT16: ElementType.UINT16,
  UINT32: ElementType.UINT32,
  UINT64: ElementType.UINT64,
  INT8: ElementType.INT8,
  INT16: ElementType.INT16,
  INT32: ElementType.INT32,
  INT64: ElementType.INT64,
  FP16: ElementType.FLOAT16,
  BF16: ElementType.BFLOAT16,
  FP32: ElementType.FLOAT,
  FP64: ElementType.DOUBLE,
  BYTES: ElementType.STRING,
};

const dataTypes = new Map<number, DataType>(
  Object.entries(elementTypes).map(([datatype, elementType]) => [elementType, datatype as DataType]),
);

/** The ONNX element type of a protocol datatype. */
export const elementTypeOf = (datatype: DataType): ElementType => elementTypes[datatype];

/**
 * The protocol datatype of an ONNX element type; undefined for complex numbers, 8-bit floats and types below 8 bits.
 */
export const dataTypeOf = (elementType: number): DataType | undefined => dataTypes.get(elementType);

/** 'FLOAT', or 'type 99' for a type that this version does not know. */
export const elementTypeName = (elementType: number): string => names.get(elementType) ?? `type ${elementType}`;

/** Bits of one element, for types without a protocol datatype. */
const otherBits = new Map<number, number>([
  [ElementType.COMPLEX64, 64],
  [ElementType.COMPLEX128, 128],
  [ElementType.FLOAT8E4M3FN, 8],
  [ElementType.FLOAT8E4M3FNUZ, 8],
  [ElementType.FLOAT8E5M2, 8],
  [ElementType.FLOAT8E5M2FNUZ, 8],
  [ElementType.FLOAT8E8M0, 8],
  [ElementType.UINT4, 4],
  [ElementType.INT4, 4],
  [ElementType.FLOAT4E2M1, 4],
  [ElementType.UINT2, 2],
  [ElementType.INT2, 2],
]);

/** Bits of one element; undefined for STRING and unknown types. */
export function elementBits(elementType: number): number | undefined {
  const datatype = dataTypeOf(elementType);
  if (datatype === undefined) return otherBits.get(elementType);
  return datatype === 'BYTES' ? undefined : 8 * elementBytes[datatype];
}
