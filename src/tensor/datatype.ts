/** The datatypes of the Open Inference Protocol v2, plus BF16, which its gRPC form and Triton know. */
export const dataTypes = [
  'BOOL',
  'UINT8',
  'UINT16',
  'UINT32',
  'UINT64',
  'INT8',
  'INT16',
  'INT32',
  'INT64',
  'FP16',
  'BF16',
  'FP32',
  'FP64',
  'BYTES',
] as const;

export type DataType = (typeof dataTypes)[number];

/** Bytes of one element; 0 for BYTES, whose elements each carry their own 4-byte length. */
export const elementBytes: Readonly<Record<DataType, number>> = {
  BOOL: 1,
  UINT8: 1,
  UINT16: 2,
  UINT32: 4,
  UINT64: 8,
  INT8: 1,
  INT16: 2,
  INT32: 4,
  INT64: 8,
  FP16: 2,
  BF16: 2,
  FP32: 4,
  FP64: 8,
  BYTES: 0,
};

export function isDataType(text: unknown): text is DataType {
  return typeof text === 'string' && Object.hasOwn(elementBytes, text);
}
