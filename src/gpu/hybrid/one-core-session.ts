/** ONNX Runtime as one core's thread uses it: its sessions, and tensors on memory that somebody else owns. */
import koffi from 'koffi';
import type * as OrtModule from 'onnxruntime-node';
import {
  arrayOf,
  bytesElements,
  dataTypeOfOnnxRuntime,
  elementBytes,
  elements,
  loadOnnxRuntime,
  onnxRuntimeType,
  packBytes,
  TensorError,
  type DataType,
} from '../../tensor/index.ts';
import type { HostTensor, LooseTensor } from './types.ts';

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

export function fromLoose(tensor: LooseTensor): OrtModule.Tensor {
  const { name, datatype, shape } = tensor;
  const type = ortType(name, datatype);
  if (datatype === 'BYTES') {
    const strings = Array.from(bytesElements(tensor), (element) => Buffer.from(element).toString('utf8'));
    return new ort.Tensor('string', strings, shape);
  }
  return new ort.Tensor(type, elements(tensor) as OrtModule.Tensor.DataType, shape);
}

export function toLoose(name: string, { type, dims: shape, data }: OrtModule.Tensor): LooseTensor {
  const datatype = dataTypeOfOnnxRuntime(type);
  if (datatype === undefined) throw new TensorError(`output '${name}' has the type ${type}, which has no datatype`);
  if (datatype === 'BYTES') return { name, datatype, shape, data: packBytes(data as string[]) };
  const { buffer, byteOffset, byteLength } = data as Exclude<typeof data, string[]>;
  return { name, datatype, shape, data: new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength) };
}
