/** ONNX Runtime for one core: sessions with one thread, and tensors in native memory. */
import type * as OrtModule from 'onnxruntime-node';
import { loadKoffi } from '../../process/index.ts';
import { NativeSession, TensorError, toOnnxRuntime } from '../../tensor/index.ts';
import type { HostTensor } from './types.ts';

const koffi = loadKoffi();

/** Without spinning: a thread that spins would take CPU time from other threads. */
export const oneCoreSession: OrtModule.InferenceSession.SessionOptions = {
  executionProviders: ['cpu'],
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  executionMode: 'sequential',
  logSeverityLevel: 3,
  extra: { session: { intra_op: { allow_spinning: '0' }, inter_op: { allow_spinning: '0' } } },
};

/**
 * Opens a sub-graph on one core. ONNX Runtime has folded its graph before, and some optimisations fail on such a graph
 * ("Attempt to replace the existing tensor"), so it falls back to lower levels. @throws the first error if no level
 * works
 */
export function openOnCore(modelPath: string): NativeSession {
  let refusal: unknown;
  for (const graphOptimizationLevel of ['all', 'basic', 'disabled'] as const) {
    try {
      return new NativeSession(modelPath, { ...oneCoreSession, graphOptimizationLevel });
    } catch (error) {
      refusal ??= error;
    }
  }
  throw refusal;
}

/** A tensor whose values ONNX Runtime reads or writes in place. @throws TensorError for a type that it has other forms of */
export function viewHostTensor({ name, datatype, shape, address, bytes }: HostTensor): OrtModule.Tensor {
  if (datatype === 'BYTES' || datatype === 'BF16')
    throw new TensorError(`tensor '${name}' is ${datatype}, which has no place at an address`);
  const data = bytes === 0 ? new Uint8Array() : new Uint8Array(koffi.view(BigInt(address), bytes));
  return toOnnxRuntime({ name, datatype, shape, data });
}
