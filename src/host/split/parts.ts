/** Cuts a request of many rows along dimension 0 into parts that run at once, and joins their outputs. */
import type { InvokeOptions, PoolInput, PoolResult } from '../../cpu/index.ts';
import type { Tensor } from '../../tensor/index.ts';

type Invoke = (input: PoolInput, options: InvokeOptions) => Promise<PoolResult>;

/**
 * Runs a request in parts of so many rows, passed to `invoke` in order. Undefined if the outputs cannot be joined: the
 * model does not give one row per row, and the request must run whole. Rejects with the first part's error and abandons
 * the others.
 */
export async function invokeParts(
  input: PoolInput & { kind: 'tensors' },
  parts: readonly number[],
  options: InvokeOptions,
  invoke: Invoke,
): Promise<PoolResult | undefined> {
  const giveUp = new AbortController();
  const signal = options.signal === undefined ? giveUp.signal : AbortSignal.any([options.signal, giveUp.signal]);
  let from = 0;
  const running = parts.map((rows) => {
    const part = { ...input, tensors: input.tensors.map((tensor) => slice(tensor, from, rows)) };
    from += rows;
    return invoke(part, { ...options, signal });
  });
  try {
    return together(await Promise.all(running), parts);
  } catch (error) {
    giveUp.abort();
    await Promise.allSettled(running);
    throw error;
  }
}

function slice(tensor: Tensor, from: number, rows: number): Tensor {
  const [total = 1, ...inner] = tensor.shape;
  const rowBytes = tensor.data.byteLength / total;
  return { ...tensor, shape: [rows, ...inner], data: tensor.data.subarray(from * rowBytes, (from + rows) * rowBytes) };
}

function together(results: readonly PoolResult[], parts: readonly number[]): PoolResult | undefined {
  const [first] = results;
  if (first === undefined || first.output.kind !== 'tensors') return undefined;
  const outputs: Tensor[] = [];
  for (const [at, model] of first.output.tensors.entries()) {
    const pieces: Tensor[] = [];
    for (const [index, { output }] of results.entries()) {
      const piece = output.kind === 'tensors' ? output.tensors[at] : undefined;
      if (piece === undefined || piece.shape[0] !== parts[index] || piece.datatype === 'BYTES') return undefined;
      if (piece.shape.slice(1).join() !== model.shape.slice(1).join()) return undefined;
      pieces.push(piece);
    }
    const rows = parts.reduce((sum, count) => sum + count, 0);
    const data = Buffer.concat(pieces.map((piece) => piece.data));
    outputs.push({ ...model, shape: [rows, ...model.shape.slice(1)], data });
  }
  const widest = results.reduce((most, result) => (result.batchSize > most.batchSize ? result : most));
  return {
    ...first,
    output: { kind: 'tensors', tensors: outputs },
    // The parts ran side by side: for each step the request waited for the slowest.
    timings: {
      queueMs: slowest(results, 'queueMs'),
      loadMs: slowest(results, 'loadMs'),
      preprocessMs: slowest(results, 'preprocessMs'),
      inferMs: slowest(results, 'inferMs'),
      postprocessMs: slowest(results, 'postprocessMs'),
      coreWaitMs: slowest(results, 'coreWaitMs'),
    },
    coldStart: results.some(({ coldStart }) => coldStart),
    batchSize: widest.batchSize,
    batchRows: widest.batchRows,
  };
}

function slowest(results: readonly PoolResult[], step: keyof PoolResult['timings']): number {
  return Math.max(...results.map(({ timings }) => timings[step] ?? 0));
}
