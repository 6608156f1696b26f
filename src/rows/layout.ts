/** Rows of a call in a run with more rows: its last row repeated, and its own rows cut out again. */
import type { RowCounts } from '../operators/index.ts';

/** Repeats the last row of each of `outer` groups, from `few` rows to `many`. */
export function repeated(bytes: Uint8Array, outer: number, { few, many }: RowCounts): Buffer {
  const rowBytes = bytes.byteLength / (outer * few);
  const padded = Buffer.allocUnsafe(outer * many * rowBytes);
  for (let group = 0; group < outer; group++) {
    const start = group * few * rowBytes;
    const own = bytes.subarray(start, start + few * rowBytes);
    const target = group * many * rowBytes;
    padded.set(own, target);
    for (let row = few; row < many; row++) padded.set(own.subarray(own.byteLength - rowBytes), target + row * rowBytes);
  }
  return padded;
}

/** The first `few` rows of each group. */
export function cut(bytes: Uint8Array, outer: number, { few, many }: RowCounts): Uint8Array {
  const rowBytes = bytes.byteLength / (outer * many);
  if (outer === 1) return bytes.subarray(0, few * rowBytes);
  const firstRows = Buffer.allocUnsafe(outer * few * rowBytes);
  for (let group = 0; group < outer; group++) {
    const start = group * many * rowBytes;
    firstRows.set(bytes.subarray(start, start + few * rowBytes), group * few * rowBytes);
  }
  return firstRows;
}
