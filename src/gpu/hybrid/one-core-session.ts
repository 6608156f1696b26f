/** ONNX Runtime for one core: sessions with one thread, and tensors in native memory. */
import type * as OrtModule from 'onnxruntime-node';
import { loadKoffi } from '../../process/index.ts';
import {
  arrayOf,
  elementBytes,
  loadOnnxRuntime,
  NativeSession,
  onnxRuntimeType,
  TensorError,
  type DataType,
} from '../../tensor/index.ts';
import type { HostTensor } from './types.ts';

const koffi = loadKoffi();
export const ort = loadOnnxRuntime();

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

function ortType(name: string, datatype: DataType): OrtModule.Tensor.Type {
  const type = onnxRuntimeType(datatype);
  if (type === undefined) throw new TensorError(`tensor '${name}' is ${datatype}, which ONNX Runtime cannot be given`);
  return type;
}

/** A tensor whose values ONNX Runtime reads or writes in place. */
export function viewHostTensor({ name, datatype, shape, address, bytes }: HostTensor): OrtModule.Tensor {
  const type = ortType(name, datatype);
  if (datatype === 'BYTES') throw new TensorError(`tensor '${name}' is BYTES, which has no place at an address`);
  const kind = arrayOf[datatype];
  const values =
    bytes === 0 ? new kind(0) : new kind(koffi.view(BigInt(address), bytes), 0, bytes / elementBytes[datatype]);
  return new ort.Tensor(type, values as OrtModule.Tensor.DataType, shape);
}
