/**
 * Writes model files as a stream: besides what the model already holds, at most one tensor's bytes are in memory at a
 * time. This needs every length in advance: a tensor's size follows from its dimensions.
 */
import { randomBytes } from 'node:crypto';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { makeFolders } from '../tools/index.ts';
import { encode } from './convert.ts';
import { OnnxError } from './error.ts';
import { checkLocation, dataLocationExternal, isExternal } from './external-data.ts';
import { lengthPrefix } from './protobuf.ts';
import { modelBytesMax } from './read.ts';
import { tensorByteLength, tensorBytes, withoutData } from './tensor-data.ts';
import { ElementType, type ModelProto, type TensorProto } from './types.ts';

/** Above this, `auto` puts weights beside the model: below protobuf's 2 GiB, since runtimes add to a model. */
const embeddedBytesMax = 1_900_000_000;
/** Smaller tensors stay in the model, where shape arithmetic can read them without another file. */
const thresholdBytesDefault = 1024;
/**
 * Large tensors start on a page, so that a runtime can map them; small ones at an offset aligned for any element type.
 */
const pageBytes = 4096;
const pageAlignedFromBytes = 64 * 1024;
const smallAlignmentBytes = 64;
/** Most bytes of one write call: the operating system stops a little below 2 GiB. */
const writePieceBytes = 2 ** 28;
const gatherBytes = 1024 * 1024;

const graphField = 7;
const initializerField = 5;
const rawDataField = 9;

export interface ExternalLayout {
  /** Relative to the model's folder. */
  readonly location: string;
  /** Tensors of fewer bytes stay in the model; default 1024. */
  readonly thresholdBytes?: number;
}

export interface WriteOptions {
  /**
   * Where the weights of the main graph go:
   * - `auto` (default): into the model, or beside it once the model would exceed 1.9 GB
   * - `always`: beside it, in `<model file>.data`, for tensors of at least 1024 bytes
   * - `never`: into the model; refused beyond 2 GiB
   * - a layout: beside it, in that file
   * - `keep`: external tensors still name their file, which must be beside the new model; it is neither read nor written
   */
  readonly externalData?: 'auto' | 'always' | 'never' | 'keep' | ExternalLayout;
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

/** Bytes of that prefix; all tags here take one. */
function prefixBytes(size: number): number {
  let bytes = 2;
  for (let rest = size; rest >= 128; rest /= 128) bytes++;
  return bytes;
}

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

function plan(model: ModelProto, external: ExternalLayout | undefined, keepExternal: boolean): Layout {
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
    if (external !== undefined && bytes > 0 && bytes >= (external.thresholdBytes ?? thresholdBytesDefault)) {
      const offset = align(externalEnd, bytes);
      externalEnd = offset + bytes;
      externalPieces.push({ offset, bytes, tensor });
      const described: TensorProto = {
        ...withoutData(tensor),
        dataLocation: dataLocationExternal,
        externalData: [
          { key: 'location', value: external.location },
          { key: 'offset', value: String(offset) },
          { key: 'length', value: String(bytes) },
        ],
      };
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

async function writeAt(file: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  let done = 0;
  while (done < bytes.byteLength) {
    const size = Math.min(writePieceBytes, bytes.byteLength - done);
    const { bytesWritten } = await file.write(bytes, done, size, position + done);
    done += bytesWritten;
  }
}

/** Writes parts in sequence, small ones gathered. */
async function writeParts(file: FileHandle, parts: Iterable<Uint8Array>): Promise<void> {
  const gathered = new Uint8Array(gatherBytes);
  let used = 0;
  let position = 0;
  const flush = async (): Promise<void> => {
    await writeAt(file, gathered.subarray(0, used), position);
    position += used;
    used = 0;
  };
  for (const part of parts) {
    if (part.byteLength > gatherBytes - used) await flush();
    if (part.byteLength > gatherBytes) {
      await writeAt(file, part, position);
      position += part.byteLength;
    } else {
      gathered.set(part, used);
      used += part.byteLength;
    }
  }
  await flush();
}

/** Writes a file under a temporary name, and renames it when it is complete. */
class PendingFile {
  readonly path: string;
  private readonly pendingPath: string;

  constructor(path: string) {
    this.path = path;
    this.pendingPath = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.partial`);
  }

  async write(fill: (file: FileHandle) => Promise<void>): Promise<void> {
    await makeFolders(dirname(this.path));
    const file = await open(this.pendingPath, 'wx');
    try {
      await fill(file);
    } finally {
      await file.close();
    }
  }

  async commit(): Promise<void> {
    await rename(this.pendingPath, this.path);
  }

  async discard(): Promise<void> {
    await rm(this.pendingPath, { force: true });
  }
}

function layoutOf(model: ModelProto, path: string, externalData: NonNullable<WriteOptions['externalData']>) {
  const beside: ExternalLayout = { location: `${basename(path)}.data` };
  if (typeof externalData === 'object') {
    checkLocation(externalData.location, 'the model to write');
    return { external: externalData, layout: plan(model, externalData, false) };
  }
  if (externalData === 'always') return { external: beside, layout: plan(model, beside, false) };
  const embedded = plan(model, undefined, externalData === 'keep');
  if (externalData === 'auto' && embedded.modelBytes > embeddedBytesMax) {
    return { external: beside, layout: plan(model, beside, false) };
  }
  return { external: undefined, layout: embedded };
}

/**
 * Writes a model to `path`, and makes its folder. Files appear whole or not at all, the model last; the tensors'
 * sources may read from the old file at `path`. The same model gives the same bytes.
 * @throws OnnxError `bad-tensor` if a tensor's bytes do not fit its dimensions, `too-large` if the model file would
 * exceed 2 GiB, `external-data` for a location outside the model's folder or missing data
 */
export async function writeModel(model: ModelProto, path: string, options: WriteOptions = {}): Promise<Written> {
  const { external, layout } = layoutOf(model, path, options.externalData ?? 'auto');
  if (layout.modelBytes > modelBytesMax) {
    throw new OnnxError(
      'too-large',
      `the model would take ${layout.modelBytes} bytes in one file; beyond 2 GiB its weights must go to external data`,
    );
  }
  const modelFile = new PendingFile(path);
  const externalFile =
    external === undefined || layout.external.length === 0
      ? undefined
      : new PendingFile(join(dirname(path), external.location));
  let externalBytes = 0;
  try {
    await externalFile?.write(async (file) => {
      for (const { tensor, offset, bytes } of layout.external) {
        await writeAt(file, tensorBytes(tensor), offset);
        externalBytes = offset + bytes;
      }
    });
    await modelFile.write(async (file) => await writeParts(file, modelParts(layout)));
    await externalFile?.commit();
    await modelFile.commit();
  } finally {
    await externalFile?.discard();
    await modelFile.discard();
  }
  return { modelBytes: layout.modelBytes, externalBytes, externalPath: externalFile?.path };
}

/**
 * A model as the bytes of one file, for models small enough to be in memory twice. Tensors in files beside the model
 * are included through their source (as from `readModel`). Throws as {@link writeModel}.
 */
export function serializeModel(model: ModelProto): Uint8Array {
  const layout = plan(model, undefined, false);
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
