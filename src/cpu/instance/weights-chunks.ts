/**
 * Cuts the weights' file of a prepared model into chunks, as the store does with published files: the weights of a layer
 * are in one file for all models that have it, under the hash of its bytes, and processes map that one. An entry of the
 * cache has links to its chunks.
 *
 * In a chunk, weights stand where kernels can read them. Kernels load packed weights with instructions that fault at an
 * address that is no multiple of a vector. ONNX Runtime writes weights to its file one behind the other: behind a bias of
 * 360 numbers no matrix is aligned, and every session that maps the file would die by SIGSEGV in its first run.
 */
import { createHash } from 'node:crypto';
import { copyFile, link, mkdir, open, readdir, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import {
  aligned,
  chunked,
  chunksFolder,
  isExternal,
  readModel,
  tensorsOfModel,
  writeModel,
  type StringStringEntry,
  type TensorProto,
} from '../../onnx/index.ts';
import { hashFile, temporaryPath, type StreamedBytes } from '../../tools/index.ts';

const copyBytesMax = 4 * 1024 * 1024;
/** Chunks that no entry has are kept for so long: one may be about to get a link. */
const unusedMsMax = 60 * 60 * 1000;

interface Blob {
  readonly offset: number;
  readonly bytes: number;
}

/** What must be in one file: a tensor's bytes, and those that kernels made of them. */
interface Unit {
  readonly tensor: TensorProto;
  readonly blobs: readonly Blob[];
}

export interface WeightChunk extends StreamedBytes {
  /** Name of the file in the entry. */
  readonly name: string;
}

/**
 * @param modelPath the graph as ONNX Runtime saved it, which is written again @param weightsPath the file beside it that
 * it names @param shared the folder of all chunks
 */
export async function cutWeights(modelPath: string, weightsPath: string, shared: string): Promise<WeightChunk[]> {
  const model = await readModel(modelPath);
  const units = [...tensorsOfModel(model)]
    .filter(isExternal)
    .map((tensor): Unit => ({ tensor, blobs: blobsOf(tensor) }));
  const entry = dirname(modelPath);
  await mkdir(join(entry, chunksFolder), { recursive: true });
  await mkdir(shared, { recursive: true });
  const weights = await open(weightsPath);
  const chunks: WeightChunk[] = [];
  try {
    for (const [number, inChunk] of chunked(units, bytesOf).entries()) {
      const name = `${chunksFolder}/${number}`;
      const parts: Part[] = [];
      for (const { tensor, blobs, at } of inChunk) {
        const moved = new Map<number, number>();
        let end = at;
        for (const { offset, bytes } of blobs) {
          moved.set(offset, aligned(end));
          parts.push({ offset, bytes, at: aligned(end) });
          end = aligned(end) + bytes;
        }
        tensor.externalData = (tensor.externalData ?? []).map((each) => placed(each, name, moved));
      }
      chunks.push({ name, ...(await writeChunk(weights, parts, shared, join(entry, name))) });
    }
  } finally {
    await weights.close();
  }
  await writeModel(model, modelPath, { externalData: 'keep' });
  await rm(weightsPath);
  return chunks;
}

/** Removes chunks that no entry has any more. */
export async function removeUnusedChunks(shared: string): Promise<void> {
  for (const name of await readdir(shared).catch(() => [])) {
    const path = join(shared, name);
    const { nlink, mtimeMs } = await stat(path);
    if (nlink === 1 && Date.now() - mtimeMs > unusedMsMax) await rm(path, { force: true });
  }
}

const bytesOf = ({ blobs }: Unit): number => blobs.reduce((end, { bytes }) => aligned(end) + bytes, 0);

interface Part extends Blob {
  readonly at: number;
}

/** Writes a chunk, unless there is an intact one of its bytes, and links it to `target`. */
async function writeChunk(
  weights: FileHandle,
  parts: readonly Part[],
  shared: string,
  target: string,
): Promise<StreamedBytes> {
  const hash = createHash('sha256');
  const bytes = await eachPiece(weights, parts, (piece) => void hash.update(piece));
  const sha256 = hash.digest('hex');
  const path = join(shared, sha256);
  const there = await stat(path).catch(() => undefined);
  if (there?.size !== bytes || (await hashFile(path)).sha256 !== sha256) {
    const temporary = temporaryPath(shared, 'part');
    const file = await open(temporary, 'wx');
    try {
      await eachPiece(weights, parts, async (piece, at) => void (await file.write(piece, 0, piece.byteLength, at)));
      // The pages count as each instance's own until they are on disk, and a power cut must not leave half of them.
      await file.sync();
      await rename(temporary, path);
    } finally {
      await file.close();
      await rm(temporary, { force: true });
    }
  }
  // A disk without hard links.
  await link(path, target).catch(async () => await copyFile(path, target));
  return { sha256, bytes };
}

/** The bytes of a chunk in pieces, with zeros between its parts. @returns how many */
async function eachPiece(
  weights: FileHandle,
  parts: readonly Part[],
  use: (piece: Uint8Array, at: number) => unknown,
): Promise<number> {
  const memory = Buffer.allocUnsafe(Math.min(copyBytesMax, Math.max(1, ...parts.map(({ bytes }) => bytes))));
  let end = 0;
  for (const { offset, bytes, at } of parts) {
    if (at > end) await use(new Uint8Array(at - end), end);
    for (let done = 0; done < bytes;) {
      const { bytesRead } = await weights.read(memory, 0, Math.min(memory.length, bytes - done), offset + done);
      if (bytesRead === 0) throw new Error('the prepared weights end early');
      await use(memory.subarray(0, bytesRead), at + done);
      done += bytesRead;
    }
    end = at + bytes;
  }
  return end;
}

/** Beside a tensor's own bytes (`offset`, `length`): those that kernels made of them, `prepacked_0` and so on. */
const isPacked = ({ key }: StringStringEntry): boolean => key.startsWith('prepacked_');

function blobsOf({ externalData = [] }: TensorProto): Blob[] {
  const numberOf = (name: string): number => Number(externalData.find(({ key }) => key === name)?.value ?? 0);
  const packed = externalData.filter(isPacked).flatMap(({ value }) => {
    // The name of the packing; then for each blob its offset, length and checksum: `MatMul+7|64;3200;0|3264;128;0`.
    const [, ...places] = value.split('|');
    return places.map((place): Blob => {
      const [offset, bytes] = place.split(';').map(Number);
      return { offset: offset!, bytes: bytes! };
    });
  });
  // An empty tensor has the offset of the next one, and nothing to move.
  const distinct = new Map(
    [{ offset: numberOf('offset'), bytes: numberOf('length') }, ...packed]
      .filter(({ bytes }) => bytes > 0)
      .map((blob) => [blob.offset, blob]),
  );
  return [...distinct.values()];
}

function placed(entry: StringStringEntry, location: string, moved: ReadonlyMap<number, number>): StringStringEntry {
  const { key, value } = entry;
  if (key === 'location') return { key, value: location };
  if (key === 'offset') return { key, value: String(moved.get(Number(value)) ?? 0) };
  if (!isPacked(entry)) return entry;
  const [name, ...places] = value.split('|');
  const movedPlaces = places.map((place) => {
    const [offset, ...rest] = place.split(';');
    return [moved.get(Number(offset)) ?? 0, ...rest].join(';');
  });
  return { key, value: [name, ...movedPlaces].join('|') };
}
