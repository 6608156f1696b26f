/** ONNX Runtime as one core's thread uses it: its sessions, and tensors on memory that somebody else owns. */
import koffi from 'koffi';
import type * as OrtModule from 'onnxruntime-node';
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

export const ort = loadOnnxRuntime();

/** A session on one core. A spinning thread would take the core from whoever has work. */
export const oneCoreSession: OrtModule.InferenceSession.SessionOptions = {
  executionProviders: ['cpu'],
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  executionMode: 'sequential',
  logSeverityLevel: 3,
  extra: { session: { intra_op: { allow_spinning: '0' }, inter_op: { allow_spinning: '0' } } },
};

/**
 * Opens a part on one core. Parts come from a graph that ONNX Runtime has folded already, and some of its further
 * passes refuse what an earlier pass left ("Attempt to replace the existing tensor"): then it is opened with fewer
 * passes. Throws what ONNX Runtime said at first where it opens at no level.
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

/** A view on native memory: what ONNX Runtime reads or writes there, it does in place. */
export function viewHostTensor({ name, datatype, shape, address, bytes }: HostTensor): OrtModule.Tensor {
  const type = ortType(name, datatype);
  if (datatype === 'BYTES') throw new TensorError(`tensor '${name}' is BYTES, which has no place at an address`);
  const kind = arrayOf[datatype];
  const values =
    bytes === 0 ? new kind(0) : new kind(koffi.view(BigInt(address), bytes), 0, bytes / elementBytes[datatype]);
  return new ort.Tensor(type, values as OrtModule.Tensor.DataType, shape);
}
