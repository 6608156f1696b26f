import { arrayOf, type Datatype } from '../client/index.ts';

export { arrayOf };
export type DataType = Datatype;

type Numeric = keyof typeof arrayOf;

export const dataTypes: readonly DataType[] = [...(Object.keys(arrayOf) as Numeric[]), 'BYTES'];

/** Bytes of one element; 0 for BYTES, whose elements each carry their own 4-byte length. */
export const elementBytes = Object.fromEntries(
  dataTypes.map((datatype) => [datatype, datatype === 'BYTES' ? 0 : arrayOf[datatype].BYTES_PER_ELEMENT]),
) as Readonly<Record<DataType, number>>;

export function isDataType(text: unknown): text is DataType {
  return typeof text === 'string' && Object.hasOwn(elementBytes, text);
}
