/** Reads model files. */
import { closeSync, fstatSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { OnnxError } from './error.ts';
import { isExternal, readAt, readExternal, readPart } from './external-data.ts';
import { explained, signatureBytes } from './other-formats.ts';
import { checkDataLength, tensorByteLength, tensorsOfModel } from './tensor-data.ts';
import type { ModelProto, TensorProto } from './types.ts';
import { decode, WireSource, type SkippedData } from './wire-read.ts';

/** protobuf's limit, and so every runtime's; weights beyond it belong in external data. */
export const modelBytesMax = 2 ** 31 - 1;
/** Smaller weights are read with the rest, unless a reader wants the place of each. */
const skippedBytesUsual = 16 * 1024;

export interface ModelStructure {
  /** The model without the data that is skipped. */
  readonly model: ModelProto;
  /** By initializer. */
  readonly skipped: ReadonlyMap<TensorProto, SkippedData>;
}

function structureOf(source: WireSource, skippedBytesMin?: number): ModelStructure {
  if (source.size === 0) throw new OnnxError('not-onnx', 'the model is empty: it has 0 bytes');
  const { message, skipped } = decode('ModelProto', source, skippedBytesMin);
  const { graph, ...rest } = message;
  if (graph === undefined) throw new OnnxError('not-onnx', 'the model has no graph');
  return { model: { ...rest, graph }, skipped };
}

/**
 * Reads a model from its bytes. `rawData` and other byte fields are views on `bytes`, so do not change those.
 * @throws OnnxError `not-onnx`, `truncated`, `too-deep` or `too-large`
 */
export function parseModel(bytes: Uint8Array): ModelProto {
  // A Buffer's views would be Buffers; the plain types promise plain arrays.
  const plain = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  try {
    return structureOf(WireSource.ofBytes(plain)).model;
  } catch (error) {
    throw explained(error, bytes);
  }
}

/**
 * Reads everything of a model file except the raw data of its main graph's initializers from so many bytes on.
 * @throws OnnxError `not-found`, and those of {@link parseModel}
 */
export function readStructure(path: string, skippedBytesMin = skippedBytesUsual): ModelStructure {
  let descriptor: number;
  try {
    descriptor = openSync(path, 'r');
  } catch (error) {
    throw new OnnxError('not-found', `the model file ${path} cannot be opened: ${(error as Error).message}`, {
      cause: error,
    });
  }
  try {
    const status = fstatSync(descriptor);
    if (!status.isFile()) throw new OnnxError('not-found', `the model ${path} is not a file`);
    try {
      return structureOf(WireSource.ofFile(descriptor, status.size), skippedBytesMin);
    } catch (error) {
      throw explained(error, readAt(descriptor, 0, Math.min(signatureBytes, status.size)));
    }
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Reads a model file without its large weights: each gets a `source` that reads it on demand, from this file or from one
 * beside it. A model of gigabytes opens in milliseconds. The files must not change while the model is in use. A refused
 * location or a missing file of external data shows only when a source is called (or in `checkModel`).
 * @throws OnnxError `not-found`, and those of {@link parseModel}
 */
export const readModel = async (path: string): Promise<ModelProto> => readModelNow(path);

/** {@link readModel}, for a caller that cannot wait; it blocks the thread while it reads. */
export const readModelNow = (path: string): ModelProto => modelOf(readStructure(resolve(path)), path);

/** What {@link readModel} makes of the structure of a file: its large weights get their sources. */
export function modelOf({ model, skipped }: ModelStructure, path: string): ModelProto {
  const absolute = resolve(path);
  for (const [tensor, { offset, byteLength }] of skipped) {
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
