/**
 * Writes model files as a stream: besides what the model already holds, at most one tensor's bytes are in memory at a
 * time. This needs every length in advance: a tensor's size follows from its dimensions.
 */
import { writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { makeFolders, replaceFile } from '../tools/index.ts';
import { OnnxError } from './error.ts';
import { isExternal } from './external-data.ts';
import { modelBytesMax } from './read.ts';
import { graphField, initializerField, rawDataField } from './schema.ts';
import { asExternal, tensorByteLength, tensorBytes, withoutData } from './tensor-data.ts';
import { ElementType, type ModelProto, type TensorProto } from './types.ts';
import { encode, lengthPrefix, prefixBytes } from './wire-write.ts';

/** Above this, `auto` puts weights beside the model: below protobuf's 2 GiB, since runtimes add to a model. */
const embeddedBytesMax = 1_900_000_000;
/** Smaller tensors stay in the model, where shape arithmetic can read them without another file. */
const externalBytesMin = 1024;
/**
 * Large tensors start on a page, so that a runtime can map them; small ones at an offset aligned for any element type.
 */
const pageBytes = 4096;
const pageAlignedFromBytes = 64 * 1024;
const smallAlignmentBytes = 64;
/** Smaller parts share a call to write. */
const gatherBytes = 1024 * 1024;

export interface WriteOptions {
  /**
   * Where the weights of the main graph go:
   * - `auto` (default): into the model, or beside it once the model would exceed 1.9 GB
   * - `always`: beside it, in `<model file>.data`, for tensors of at least 1024 bytes
   * - `never`: into the model; refused beyond 2 GiB
   * - `keep`: external tensors still name their file, which must be beside the new model; it is neither read nor written
   */
  readonly externalData?: 'auto' | 'always' | 'never' | 'keep';
}

export interface Written {
  readonly modelBytes: number;
  /** 0 if no external file was written. */
  readonly externalBytes: number;
  readonly externalPath: string | undefined;
}

/** An initializer to be written: its fields, and the bytes that follow as raw data. */
interface Piece {
  readonly head: Uint8Array;
  readonly rawBytes: number;
  readonly raw: () => Uint8Array;
}

interface ExternalPiece {
  readonly offset: number;
  readonly bytes: number;
  readonly tensor: TensorProto;
}

const nothing = new Uint8Array(0);

function embeddedPiece(tensor: TensorProto, keepExternal: boolean): Piece {
  const kept = keepExternal && isExternal(tensor);
  const streamed = !kept && (tensor.source !== undefined || tensor.rawData !== undefined);
  if (!streamed || tensor.dataType === ElementType.STRING) {
    return { head: encode('TensorProto', tensor, keepExternal), rawBytes: 0, raw: () => nothing };
  }
  return {
    head: encode('TensorProto', withoutData(tensor)),
    rawBytes: tensorByteLength(tensor),
    raw: () => tensorBytes(tensor),
  };
}

const align = (offset: number, bytes: number): number => {
  const alignment = bytes >= pageAlignedFromBytes ? pageBytes : smallAlignmentBytes;
  return Math.ceil(offset / alignment) * alignment;
};

interface Layout {
  /** The model without its initializers. */
  readonly head: Uint8Array;
  /** The graph without its initializers. */
  readonly graph: Uint8Array;
  readonly pieces: readonly Piece[];
  readonly graphBytes: number;
  readonly modelBytes: number;
  readonly external: readonly ExternalPiece[];
}

function pieceBytes({ head, rawBytes }: Piece): number {
  const rawField = rawBytes === 0 ? 0 : prefixBytes(rawBytes) + rawBytes;
  return head.byteLength + rawField;
}

/** @param location the file for weights beside the model; undefined: they go into the model */
function plan(model: ModelProto, location: string | undefined, keepExternal: boolean): Layout {
  const { graph, ...rest } = model;
  const head = encode('ModelProto', rest, keepExternal);
  const graphHead = encode('GraphProto', { ...graph, initializer: [] }, keepExternal);
  const pieces: Piece[] = [];
  const externalPieces: ExternalPiece[] = [];
  let externalEnd = 0;
  let graphBytes = graphHead.byteLength;
  for (const tensor of graph.initializer) {
    let piece: Piece;
    const bytes = tensor.dataType === ElementType.STRING ? 0 : tensorByteLength(tensor);
    if (location !== undefined && bytes >= externalBytesMin) {
      const offset = align(externalEnd, bytes);
      externalEnd = offset + bytes;
      externalPieces.push({ offset, bytes, tensor });
      const described = asExternal(tensor, location, offset, bytes);
      piece = { head: encode('TensorProto', described), rawBytes: 0, raw: () => nothing };
    } else {
      piece = embeddedPiece(tensor, keepExternal);
    }
    const size = pieceBytes(piece);
    graphBytes += prefixBytes(size) + size;
    pieces.push(piece);
  }
  const modelBytes = head.byteLength + prefixBytes(graphBytes) + graphBytes;
  return { head, graph: graphHead, pieces, graphBytes, modelBytes, external: externalPieces };
}

/** The parts of the model file, in order. */
function* modelParts({ head, graph, graphBytes, pieces }: Layout): Generator<Uint8Array> {
  yield head;
  yield lengthPrefix(graphField, graphBytes);
  yield graph;
  for (const piece of pieces) {
    yield lengthPrefix(initializerField, pieceBytes(piece));
    yield piece.head;
    if (piece.rawBytes > 0) {
      yield lengthPrefix(rawDataField, piece.rawBytes);
      yield piece.raw();
    }
  }
}

/** The parts of the file of external data, in order. */
function* externalParts(pieces: readonly ExternalPiece[]): Generator<Uint8Array> {
  let end = 0;
  for (const { tensor, offset, bytes } of pieces) {
    if (offset > end) yield new Uint8Array(offset - end);
    yield tensorBytes(tensor);
    end = offset + bytes;
  }
}

/** The same bytes in fewer parts; each is valid until the next is taken. */
function* gather(parts: Iterable<Uint8Array>): Generator<Uint8Array> {
  const gathered = new Uint8Array(gatherBytes);
  let used = 0;
  for (const part of parts) {
    if (part.byteLength > gatherBytes - used) {
      yield gathered.subarray(0, used);
      used = 0;
    }
    if (part.byteLength > gatherBytes) {
      yield part;
    } else {
      gathered.set(part, used);
      used += part.byteLength;
    }
  }
  yield gathered.subarray(0, used);
}

/**
 * Writes a model to `path`, and makes its folder. Files appear whole or not at all, the model last; the tensors'
 * sources may read from the old file at `path`. The same model gives the same bytes.
 * @throws OnnxError `bad-tensor` if a tensor's bytes do not fit its dimensions, `too-large` if the model file would
 * exceed 2 GiB, `external-data` for missing data
 */
export async function writeModel(
  model: ModelProto,
  path: string,
  { externalData = 'auto' }: WriteOptions = {},
): Promise<Written> {
  const location = `${basename(path)}.data`;
  let layout = plan(model, externalData === 'always' ? location : undefined, externalData === 'keep');
  if (externalData === 'auto' && layout.modelBytes > embeddedBytesMax) layout = plan(model, location, false);
  if (layout.modelBytes > modelBytesMax) {
    throw new OnnxError(
      'too-large',
      `the model would take ${layout.modelBytes} bytes in one file; beyond 2 GiB its weights must go to external data`,
    );
  }
  const last = layout.external.at(-1);
  const externalPath = last === undefined ? undefined : join(dirname(path), location);
  await makeFolders(dirname(path));
  await replaceFile(path, async (temporary) => {
    await writeFile(temporary, gather(modelParts(layout)));
    if (externalPath === undefined) return;
    await replaceFile(externalPath, (data) => writeFile(data, gather(externalParts(layout.external))));
  });
  return {
    modelBytes: layout.modelBytes,
    externalBytes: last === undefined ? 0 : last.offset + last.bytes,
    externalPath,
  };
}

/**
 * A model as the bytes of one file, for models small enough to be in memory twice. Throws as {@link writeModel}.
 * @param externalData `never` (default): tensors in files beside the model are included through their source (as from
 * `readModel`); `keep`: they still name their file
 */
export function serializeModel(model: ModelProto, externalData: 'never' | 'keep' = 'never'): Uint8Array {
  const layout = plan(model, undefined, externalData === 'keep');
  if (layout.modelBytes > modelBytesMax) {
    throw new OnnxError('too-large', `the model takes ${layout.modelBytes} bytes, which one file cannot hold`);
  }
  const bytes = new Uint8Array(layout.modelBytes);
  let at = 0;
  for (const part of modelParts(layout)) {
    bytes.set(part, at);
    at += part.byteLength;
  }
  return bytes;
}
