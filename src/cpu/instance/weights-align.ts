/**
 * Moves the weights in the file of a prepared model to where kernels can read them. Kernels load packed weights with
 * instructions that fault at an address that is no multiple of a vector. ONNX Runtime writes weights to the file one
 * behind the other: behind a bias of 360 numbers no matrix is aligned, and every session that maps the file would die
 * by SIGSEGV in its first run.
 */
import { open, type FileHandle } from 'node:fs/promises';
import { isExternal, readModel, tensorsOfModel, writeModel, type StringStringEntry } from '../../onnx/index.ts';

/** Bytes of the largest vector, AVX-512's, and of a cache line. */
const alignmentBytes = 64;
const moveBytesMax = 4 * 1024 * 1024;

interface Blob {
  readonly offset: number;
  readonly bytes: number;
}

/** @param modelPath the graph as ONNX Runtime saved it; it is only written again where something has moved */
export async function alignWeights(modelPath: string, weightsPath: string): Promise<void> {
  const model = await readModel(modelPath);
  const tensors = [...tensorsOfModel(model)].filter(isExternal);
  const found = new Map<number, Blob>();
  // An empty tensor has the offset of the next one, and nothing to move.
  for (const blob of tensors.flatMap(({ externalData = [] }) => blobsOf(externalData)))
    if (blob.bytes > 0) found.set(blob.offset, blob);
  const blobs = [...found.values()].toSorted((one, other) => one.offset - other.offset);
  const moved = new Map<number, number>();
  let endBytes = 0;
  for (const { offset, bytes } of blobs) {
    const to = Math.ceil(Math.max(offset, endBytes) / alignmentBytes) * alignmentBytes;
    moved.set(offset, to);
    endBytes = to + bytes;
  }
  if (blobs.every(({ offset }) => moved.get(offset) === offset)) return;
  const file = await open(weightsPath, 'r+');
  try {
    // All move towards the end: from the last one on, none is overwritten before it has moved.
    for (const blob of blobs.toReversed()) await move(file, blob, moved.get(blob.offset)!);
  } finally {
    await file.close();
  }
  for (const tensor of tensors)
    tensor.externalData = (tensor.externalData ?? []).map((entry) => withOffsets(entry, moved));
  await writeModel(model, modelPath, { externalData: 'keep' });
}

/** Beside a tensor's own bytes (`offset`, `length`): those that kernels made of them, `prepacked_0` and so on. */
const isPacked = ({ key }: StringStringEntry): boolean => key.startsWith('prepacked_');

function blobsOf(entries: readonly StringStringEntry[]): Blob[] {
  const numberOf = (name: string): number => Number(entries.find(({ key }) => key === name)?.value ?? 0);
  const packed = entries.filter(isPacked).flatMap(({ value }) => {
    // The name of the packing; then for each blob its offset, length and checksum: `MatMul+7|64;3200;0|3264;128;0`.
    const [, ...places] = value.split('|');
    return places.map((place): Blob => {
      const [offset, bytes] = place.split(';').map(Number);
      return { offset: offset!, bytes: bytes! };
    });
  });
  return [{ offset: numberOf('offset'), bytes: numberOf('length') }, ...packed];
}

function withOffsets(entry: StringStringEntry, moved: ReadonlyMap<number, number>): StringStringEntry {
  const { key, value } = entry;
  if (key === 'offset') return { key, value: String(moved.get(Number(value)) ?? value) };
  if (!isPacked(entry)) return entry;
  const [name, ...places] = value.split('|');
  const placed = places.map((place) => {
    const [offset, ...rest] = place.split(';');
    return [moved.get(Number(offset)) ?? offset, ...rest].join(';');
  });
  return { key, value: [name, ...placed].join('|') };
}

async function move(file: FileHandle, { offset, bytes }: Blob, to: number): Promise<void> {
  if (to === offset) return;
  const piece = Buffer.alloc(Math.min(bytes, moveBytesMax));
  for (let end = bytes; end > 0; end -= piece.length) {
    const start = Math.max(0, end - piece.length);
    const { bytesRead } = await file.read(piece, 0, end - start, offset + start);
    if (bytesRead < end - start) throw new Error('the prepared weights end early');
    await file.write(piece, 0, end - start, to + start);
  }
}
