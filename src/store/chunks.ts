/**
 * A model in chunks. In a version's folder lie
 *
 *     model.onnx      a graph whose tensors are external data in the chunks; it is opened in place of the model
 *     weights/<n>     the chunks; the last one is what is left of the published files outside of their tensors
 *     .layout         which bytes of which published file each chunk has
 *     .chunks         the manifest: the hashes of the others
 *
 * Each of these is content of the store under its hash. The graph and the layout name chunks by number, so versions that
 * differ in the values of their weights alone have one graph and one layout. A published file is made again, byte for
 * byte, by the layout.
 */
import { open, readFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { chunksFolder, type ChunkSlice } from '../onnx/index.ts';
import { jsonAs, type StreamedBytes } from '../tools/index.ts';
import type { NamedContent } from './content-cache.ts';

export const manifestFile = '.chunks';
export const layoutFile = '.layout';
export const graphFile = 'model.onnx';
/** The file of the chunk with this number; the layout and the graph come before the chunks in a manifest. */
export const chunkFile = (chunk: number): string => `${chunksFolder}/${chunk}`;

const format = 1;
const pieceBytes = 512 * 1024;

export interface ChunkLayout {
  readonly format: number;
  /** The model first. */
  readonly files: readonly Pick<NamedContent, 'name' | 'bytes'>[];
  /** By chunk; numbers of a file, its first byte, how many, and the first byte in the chunk. */
  readonly chunks: readonly (readonly (readonly [file: number, offset: number, bytes: number, at: number])[])[];
}

/** Bytes of a chunk that stand behind each other in a published file. */
interface Piece {
  readonly chunk: number;
  readonly at: number;
  readonly offset: number;
  readonly bytes: number;
}

/** @param contents the layout, the graph, and the chunks in order */
export function manifestText(contents: readonly StreamedBytes[]): string {
  return `${JSON.stringify({ format, contents: contents.map(({ sha256, bytes }) => [sha256, bytes]) })}\n`;
}

/** The files beside a manifest. @throws Error with a sentence if the text is none */
export function parseChunkManifest(text: string): readonly NamedContent[] {
  const contents = jsonAs(text, (value: { format: number; contents: (readonly [string, number])[] }) => {
    const isSound = value.contents.every(
      ([sha256, bytes]) => /^[0-9a-f]{64}$/.test(sha256) && Number.isSafeInteger(bytes) && bytes >= 0,
    );
    return value.format === format && isSound && value.contents.length > 2 ? value.contents : undefined;
  });
  if (contents === undefined) throw new Error('the list of its chunks is damaged, or of a newer release');
  return contents.map(([sha256, bytes], at) => ({
    name: at === 0 ? layoutFile : at === 1 ? graphFile : chunkFile(at - 2),
    sha256,
    bytes,
  }));
}

export const layoutText = (files: ChunkLayout['files'], chunks: readonly (readonly ChunkSlice[])[]): string =>
  `${JSON.stringify({
    format,
    files: files.map(({ name, bytes }) => ({ name, bytes })),
    chunks: chunks.map((slices) => slices.map(({ file, offset, bytes, at }) => [file, offset, bytes, at])),
  } satisfies ChunkLayout)}\n`;

/** The pieces of a published file, which cover it. @throws Error with a sentence if they do not */
export function piecesOf({ files, chunks }: ChunkLayout, name: string): readonly Piece[] {
  const number = files.findIndex((each) => each.name === name);
  const file = files[number];
  if (file === undefined) throw new Error(`the layout of its chunks knows no file '${name}'`);
  const pieces = chunks
    .flatMap((slices, chunk) =>
      slices.flatMap(([of, offset, bytes, at]) => (of === number ? [{ chunk, at, offset, bytes }] : [])),
    )
    .toSorted((one, other) => one.offset - other.offset);
  let end = 0;
  for (const { offset, bytes } of pieces) {
    if (offset !== end)
      throw new Error(`the layout of its chunks leaves byte ${Math.min(end, offset)} of '${name}' unclear`);
    end = offset + bytes;
  }
  if (end !== file.bytes)
    throw new Error(`the layout of its chunks covers ${end} of the ${file.bytes} bytes of '${name}'`);
  return pieces;
}

/** Bytes that are read from any position; to be closed. */
export interface ReadableContent extends AsyncDisposable {
  readonly bytes: number;
  /** Reads from this position on into all of the memory, or as much as there is; at least a byte of what is left. */
  readonly readAt: (memory: Uint8Array, from: number) => Promise<number>;
}

/** A file as it lies on the disk. */
export async function readableFile(path: string): Promise<ReadableContent> {
  const file = await open(path);
  try {
    const { size: bytes } = await file.stat();
    return {
      bytes,
      readAt: async (memory, from) => (await file.read(memory, 0, memory.byteLength, from)).bytesRead,
      [Symbol.asyncDispose]: async () => await file.close(),
    };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** A published file, read from the folder of a version in chunks. @throws Error with a sentence */
export async function readableOriginal(folder: string, name: string): Promise<ReadableContent> {
  const text = await readFile(join(folder, layoutFile), 'utf8');
  const layout = jsonAs(text, (value: ChunkLayout) => (value.format === format ? value : undefined));
  if (layout === undefined) throw new Error('the layout of its chunks is damaged');
  const pieces = piecesOf(layout, name);
  let current = 0;
  let opened: { readonly chunk: number; readonly file: FileHandle } | undefined;
  const fileOf = async (chunk: number): Promise<FileHandle> => {
    if (opened?.chunk === chunk) return opened.file;
    await opened?.file.close();
    opened = undefined;
    opened = { chunk, file: await open(join(folder, chunkFile(chunk))) };
    return opened.file;
  };
  const readAt = async (memory: Uint8Array, from: number): Promise<number> => {
    if ((pieces[current]?.offset ?? Infinity) > from) current = 0;
    let filled = 0;
    while (filled < memory.byteLength) {
      const piece = pieces[current];
      if (piece === undefined) break;
      const skipped = from + filled - piece.offset;
      if (skipped >= piece.bytes) {
        current++;
        continue;
      }
      const wanted = Math.min(memory.byteLength - filled, piece.bytes - skipped);
      const file = await fileOf(piece.chunk);
      const { bytesRead } = await file.read(memory, filled, wanted, piece.at + skipped);
      if (bytesRead === 0) throw new Error(`its file '${chunkFile(piece.chunk)}' ends early`);
      filled += bytesRead;
    }
    return filled;
  };
  const bytes = pieces.reduce((sum, piece) => sum + piece.bytes, 0);
  return { bytes, readAt, [Symbol.asyncDispose]: async () => await opened?.file.close() };
}

/** All bytes of a content, in order. */
export async function* streamOf(content: ReadableContent): AsyncGenerator<Uint8Array> {
  for (let from = 0; from < content.bytes;) {
    const memory = Buffer.allocUnsafe(Math.min(pieceBytes, content.bytes - from));
    const filled = await content.readAt(memory, from);
    if (filled === 0) throw new Error(`it ends after ${from} of ${content.bytes} bytes`);
    from += filled;
    yield memory.subarray(0, filled);
  }
}
