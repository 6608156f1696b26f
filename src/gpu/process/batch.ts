/** Several requests as one run, joined along the first dimension, and its outputs taken apart again. */
import type { Tensor } from '../../tensor/index.ts';
import { GpuError } from '../types.ts';

/** @throws GpuError 'invalid' when the requests do not have the same inputs but for their first dimension */
export function joinRequests(requests: readonly (readonly Tensor[])[]): readonly Tensor[] {
  const [first, ...others] = requests;
  if (first === undefined) throw new GpuError('invalid', 'a run needs at least one request');
  if (others.length === 0) return first;
  return first.map((tensor) => {
    const parts = requests.map((request) => request.find(({ name }) => name === tensor.name));
    const isAlike = parts.every(
      (part) =>
        part !== undefined &&
        part.datatype === tensor.datatype &&
        part.shape.length === tensor.shape.length &&
        part.shape.length > 0 &&
        part.shape.every((size, axis) => axis === 0 || size === tensor.shape[axis]),
    );
    if (!isAlike)
      throw new GpuError('invalid', `requests cannot share a run: input '${tensor.name}' differs among them`);
    const rows = parts.reduce((sum, part) => sum + part!.shape[0]!, 0);
    const { name, datatype, shape } = tensor;
    const data = Buffer.concat(parts.map((part) => part!.data));
    return { name, datatype, shape: [rows, ...shape.slice(1)], data };
  });
}

/** Rows that a request has in every one of its inputs; undefined where they differ. */
export function rowsOf(request: readonly Tensor[]): number | undefined {
  const rows = request[0]?.shape[0];
  return request.every(({ shape }) => shape[0] === rows) ? rows : undefined;
}

/** @throws GpuError 'invalid' when an output does not have one row for each row of the inputs */
export function splitOutputs(outputs: readonly Tensor[], rows: readonly number[]): Tensor[][] {
  if (rows.length === 1) return [[...outputs]];
  const sum = rows.reduce((total, count) => total + count, 0);
  const wrong = outputs.find(({ shape }) => shape[0] !== sum);
  if (wrong !== undefined) {
    throw new GpuError('invalid', `requests cannot share a run: output '${wrong.name}' has no row for each of them`);
  }
  let from = 0;
  return rows.map((count) => {
    const start = from;
    from += count;
    return outputs.map((tensor) => {
      const rowBytes = tensor.data.byteLength / sum;
      const data = tensor.data.subarray(start * rowBytes, (start + count) * rowBytes);
      const { name, datatype, shape } = tensor;
      return { name, datatype, shape: [count, ...shape.slice(1)], data };
    });
  });
}
