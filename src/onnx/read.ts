/** Reads model files. */
import { closeSync, openSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { decode } from './convert.ts';
import { OnnxError } from './error.ts';
import { isExternal, readAt, readExternal } from './external-data.ts';
import { explained } from './other-formats.ts';
import { readStructure } from './read-structure.ts';
import { checkDataLength, tensorByteLength, tensorsOfModel } from './tensor-data.ts';
import type { ModelProto } from './types.ts';

/** protobuf's limit, and so every runtime's; weights beyond it belong in external data. */
export const modelBytesMax = 2 ** 31 - 1;

const readPieceBytes = 2 ** 28;

export interface ReadOptions {
  /**
   * What happens to weights in files beside the model:
   * - `leave` (default): they stay there. Each such tensor gets a `source` that reads it on demand, so that the model can
   *   be written elsewhere or cut. A refused location or a missing file shows only then (or in `checkModel`).
   * - `load`: all are read into `rawData`, and the tensors are no longer external.
   */
  readonly externalData?: 'load' | 'leave';
  /**
   * Where the weights inside the model file are read to:
   * - `memory` (default): the whole file is read, and `rawData` is a view on it
   * - `file`: they stay in the file, and each tensor gets a `source` that reads it on demand. A model of gigabytes then
   *   opens in milliseconds. The file must not change while the model is in use.
   */
  readonly weights?: 'memory' | 'file';
}

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

async function readWhole(path: string): Promise<Uint8Array> {
  let file;
  try {
    file = await open(path, 'r');
  } catch (error) {
    throw new OnnxError('not-found', `the model file ${path} cannot be opened: ${(error as Error).message}`, {
      cause: error,
    });
  }
  try {
    const status = await file.stat();
    if (!status.isFile()) throw new OnnxError('not-found', `the model ${path} is not a file`);
    if (status.size > modelBytesMax) {
      throw new OnnxError(
        'too-large',
        `the model file ${path} has ${status.size} bytes; beyond 2 GiB its weights must stand in external data`,
      );
    }
    const bytes = new Uint8Array(new ArrayBuffer(status.size));
    let done = 0;
    while (done < bytes.byteLength) {
      const { bytesRead } = await file.read(bytes, done, Math.min(readPieceBytes, bytes.byteLength - done), done);
      if (bytesRead === 0) return bytes.subarray(0, done);
      done += bytesRead;
    }
    return bytes;
  } finally {
    await file.close();
  }
}

/** Attaches sources to external tensors, or loads them. */
function resolveExternalTensors(model: ModelProto, modelDir: string, externalData: 'load' | 'leave'): void {
  for (const tensor of tensorsOfModel(model)) {
    if (!isExternal(tensor)) continue;
    // A copy: the source must keep reading from here if a writer changes the tensor's own entries.
    const reference = { ...tensor };
    const read = (): Uint8Array => readExternal(reference, tensorByteLength(reference), modelDir);
    if (externalData === 'leave') {
      tensor.source = read;
    } else {
      tensor.rawData = read();
      delete tensor.externalData;
      delete tensor.dataLocation;
    }
  }
}

function fromStructure(path: string): ModelProto {
  const { bytes, skipped } = readStructure(path);
  const model = parseModel(bytes);
  for (const { initializer, offset, byteLength } of skipped) {
    const tensor = model.graph.initializer[initializer];
    if (tensor === undefined) throw new OnnxError('not-onnx', `the model file ${path} changed while it was read`);
    checkDataLength(tensor, byteLength);
    tensor.source = fileSource(path, offset, byteLength, tensor.name);
  }
  return model;
}

/**
 * Reads a model file.
 * @throws OnnxError `not-found`, those of {@link parseModel}, and with `externalData: 'load'` also `external-data`
 */
export async function readModel(
  path: string,
  { externalData = 'leave', weights = 'memory' }: ReadOptions = {},
): Promise<ModelProto> {
  const absolute = resolve(path);
  const model = weights === 'file' ? fromStructure(absolute) : parseModel(await readWhole(path));
  resolveExternalTensors(model, dirname(absolute), externalData);
  return model;
}

/** A source that reads `size` bytes of a file at `offset`. */
function fileSource(path: string, offset: number, size: number, owner: string): () => Uint8Array {
  return () => {
    const descriptor = openSync(path, 'r');
    try {
      const bytes = readAt(descriptor, offset, size);
      if (bytes.byteLength < size) {
        throw new OnnxError('truncated', `the model file ${path} became shorter than tensor '${owner}' needs`);
      }
      return bytes;
    } finally {
      closeSync(descriptor);
    }
  };
}
