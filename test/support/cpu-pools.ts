/** Common parts of tests of CPU pools: limits, memory for a number of models, inputs, and outputs. */
import type { CpuPoolsOptions, PoolInput, PoolLimits, PoolResult } from '../../src/cpu/index.ts';
import { elements, tensorOf } from '../../src/tensor/index.ts';

export const poolLimits: PoolLimits = {
  instancesMin: 0,
  instancesMax: 2,
  queueMax: 10_000,
  batchMax: 1,
  batchDelayMs: 0,
  idleMs: 60_000,
  handlerTimeoutMs: 10_000,
  loadTimeoutMs: 30_000,
  inferTimeoutMs: 10_000,
};

/** Declared size of a model for tests of how many fit: such a model has its own processes. */
export const largeBytes = 100 * 2 ** 20;

/** Memory for this many of them by their declared size, whatever they really take. */
export function roomFor(instances: number): Partial<CpuPoolsOptions> {
  const processBytes = 32 * 2 ** 20;
  return {
    blankInstances: 0,
    memoryBytes: instances * (1.3 * largeBytes + processBytes) + 1,
    measureProcess: () => Promise.resolve(undefined),
  };
}

/** Rows of four numbers, for the model of `writeReluModel`. */
export function rowsOfFour(...values: number[]): PoolInput {
  const shape = [values.length / 4, 4];
  return { kind: 'tensors', tensors: [tensorOf('x', 'FP32', shape, Float32Array.from(values))] };
}

/** For a handler. */
export const requestOf = (body: string): PoolInput => ({
  kind: 'request',
  request: { method: 'POST', url: '/', headers: {}, body: Buffer.from(body) },
});

export function valuesOf({ output }: PoolResult): number[] {
  if (output.kind !== 'tensors') throw new Error('not tensors');
  const [tensor] = output.tensors;
  return tensor === undefined ? [] : Array.from(elements(tensor) as Float32Array);
}

/** The body of a handler's reply. */
export const bodyOf = ({ output }: PoolResult): string =>
  output.kind === 'response' ? Buffer.from(output.response.body).toString() : 'tensors';
