/** Reads model files. */
import { dirname, resolve } from 'node:path';
import { decode } from './convert.ts';
import { OnnxError } from './error.ts';
import { isExternal, readExternal, readPart } from './external-data.ts';
import { explained } from './other-formats.ts';
import { readStructure } from './read-structure.ts';
import { checkDataLength, tensorByteLength, tensorsOfModel } from './tensor-data.ts';
import type { ModelProto } from './types.ts';

/** protobuf's limit, and so every runtime's; weights beyond it belong in external data. */
export const modelBytesMax = 2 ** 31 - 1;

function decodeModel(bytes: Uint8Array) {
  try {
    return decode('ModelProto', bytes);
  } catch (error) {
    throw explained(error, bytes);
  }
}

/**
 * Reads a model from its bytes. `rawData` and other byte fields are views on `bytes`, so do not change those.
 * @throws OnnxError `not-onnx`, `truncated`, `too-deep` or `too-large`
 */
export function parseModel(bytes: Uint8Array): ModelProto {
  if (bytes.byteLength === 0) throw new OnnxError('not-onnx', 'the model is empty: it has 0 bytes');
  // A Buffer's views would be Buffers; the plain types promise plain arrays.
  const plain = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const { graph, ...rest } = decodeModel(plain);
  if (graph === undefined) throw new OnnxError('not-onnx', 'the model has no graph');
  return { ...rest, graph };
}

/**
 * Reads a model file without its large weights: each gets a `source` that reads it on demand, from this file or from one
 * beside it. A model of gigabytes opens in milliseconds. The files must not change while the model is in use. A refused
 * location or a missing file of external data shows only when a source is called (or in `checkModel`).
 * @throws OnnxError `not-found`, and those of {@link parseModel}
 */
export const readModel = async (path: string): Promise<ModelProto> => readModelNow(path);

/** {@link readModel}, for a caller that cannot wait; it blocks the thread while it reads. */
export function readModelNow(path: string): ModelProto {
  const absolute = resolve(path);
  const { bytes, skipped } = readStructure(absolute);
  const model = parseModel(bytes);
  for (const { initializer, offset, byteLength } of skipped) {
    const tensor = model.graph.initializer[initializer];
    if (tensor === undefined) throw new OnnxError('not-onnx', `the model file ${path} changed while it was read`);
    checkDataLength(tensor, byteLength);
    tensor.source = () => readPart(absolute, offset, byteLength, `tensor '${tensor.name}'`);
  }
  for (const tensor of tensorsOfModel(model)) {
    if (!isExternal(tensor)) continue;
    // A copy: the source must keep reading from here if a writer changes the tensor's own entries.
    const reference = { ...tensor };
    tensor.source = () => readExternal(reference, tensorByteLength(reference), dirname(absolute));
  }
  return model;
}
