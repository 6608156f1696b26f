/** Joins requests along dimension 0 and splits answers, like the pools. */
import type { HandlerTensor } from '../../src/cpu/index.ts';

export function joinBatch(requests: readonly (readonly HandlerTensor[])[]): HandlerTensor[] {
  return (requests[0] ?? []).map(({ name, datatype, shape }, index) => {
    const joined: number[] = [];
    for (const tensors of requests) joined.push(...(tensors[index]?.data as Float32Array | Int32Array));
    const data = datatype === 'FP32' ? Float32Array.from(joined) : Int32Array.from(joined);
    const rows = requests.reduce((sum, tensors) => sum + (tensors[index]?.shape[0] ?? 0), 0);
    return { name, datatype, shape: [rows, ...shape.slice(1)], data };
  });
}

/** The elements of each row (dimension 0) of one output. */
export function rowsOf(tensors: readonly HandlerTensor[], output: string): number[][] {
  const tensor = tensors.find(({ name }) => name === output);
  if (tensor === undefined) throw new Error(`the model gave no '${output}'`);
  const values = Array.from(tensor.data as ArrayLike<number>);
  const [rows = 0] = tensor.shape;
  const width = values.length / rows;
  return Array.from({ length: rows }, (_, row) => values.slice(row * width, (row + 1) * width));
}
