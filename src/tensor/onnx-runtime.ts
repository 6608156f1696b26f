import type { DataType } from './datatype.ts';

/** ONNX Runtime's JavaScript names of element types; it cannot be given the others. */
export const onnxRuntimeTypes = {
  BOOL: 'bool',
  UINT8: 'uint8',
  UINT16: 'uint16',
  UINT32: 'uint32',
  UINT64: 'uint64',
  INT8: 'int8',
  INT16: 'int16',
  INT32: 'int32',
  INT64: 'int64',
  FP16: 'float16',
  FP32: 'float32',
  FP64: 'float64',
  BYTES: 'string',
} as const satisfies Partial<Record<DataType, string>>;

export type OnnxRuntimeType = (typeof onnxRuntimeTypes)[keyof typeof onnxRuntimeTypes];

const byType = new Map<string, DataType>(
  Object.entries(onnxRuntimeTypes).map(([datatype, type]) => [type, datatype as DataType]),
);

/** Undefined for a datatype that ONNX Runtime's binding lacks. */
export function onnxRuntimeType(datatype: DataType): OnnxRuntimeType | undefined {
  return datatype === 'BF16' ? undefined : onnxRuntimeTypes[datatype];
}

export const dataTypeOfOnnxRuntime = (type: string): DataType | undefined => byType.get(type);
