/** Writes a model's split form: see src/store/chunks.ts. It runs in the validator's process. */
import { createHash } from 'node:crypto';
import { closeSync, linkSync, mkdirSync, openSync, readSync, statSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { cutModel, serializeModel, type ChunkSlice, type ModelCut } from '../../onnx/index.ts';
import { chunkFile, graphFile, layoutFile, layoutText, type NamedContent } from '../../store/index.ts';
import { hasCode } from '../../tools/index.ts';
import { noLinkCodes, stampOf } from './disk.ts';
import { uploadedModel } from './names.ts';

export interface SplitOrder {
  /** It may hold what an earlier try has left. */
  readonly folder: string;
  /** Contents under their hashes: what is there already is linked, and not written. */
  readonly contents: string;
}

export interface SplitModel {
  /** In the order of a manifest. */
  readonly contents: readonly (NamedContent & {
    /** The folder's file is the one that was there, of which this is the stamp ({@link stampOf}). */
    readonly linked: string | undefined;
  })[];
  /** Files that the model names, which are in the chunks too. */
  readonly externalFiles: readonly string[];
}

const pieceBytes = 2 ** 20;

/** @returns undefined where the model stays whole @throws OnnxError as `readModel` */
export function splitModel(modelPath: string, order: SplitOrder): SplitModel | undefined {
  const cut = cutModel(modelPath, uploadedModel, chunkFile);
  if (cut === undefined) return undefined;
  using files = new OpenFiles(cut.files);
  const slices = [...cut.chunks, cut.rest];
  const written = [
    text(layoutFile, Buffer.from(layoutText(cut.files, slices))),
    text(graphFile, serializeModel(cut.graph, 'keep')),
    ...slices.map((each, chunk) => ({ name: chunkFile(chunk), parts: () => files.parts(each) })),
  ];
  for (const { name } of written) mkdirSync(dirname(join(order.folder, name)), { recursive: true });
  const contents = written.map((each) => write(each, order));
  return { contents, externalFiles: cut.files.slice(1).map(({ name }) => name) };
}

interface Source {
  readonly name: string;
  /** The same bytes each time; a part is valid until the next is taken. */
  readonly parts: () => Iterable<Uint8Array>;
}

const text = (name: string, bytes: Uint8Array): Source => ({ name, parts: () => [bytes] });

function write({ name, parts }: Source, { folder, contents }: SplitOrder): SplitModel['contents'][number] {
  const hash = createHash('sha256');
  let bytes = 0;
  for (const part of parts()) {
    hash.update(part);
    bytes += part.byteLength;
  }
  const sha256 = hash.digest('hex');
  const target = join(folder, name);
  // A chunk that is damaged is opened all the same, and the host finds it. A damaged graph would be refused.
  const linked = name === graphFile ? undefined : link(join(contents, sha256), bytes, target);
  if (linked === undefined) {
    const file = openSync(target, 'wx');
    try {
      for (const part of parts()) writeAll(file, part);
    } finally {
      closeSync(file);
    }
  }
  return { name, sha256, bytes, linked };
}

/** @returns the stamp of such content, which then is at `target` too; undefined: there is none */
function link(content: string, bytes: number, target: string): string | undefined {
  const found = statSync(content, { throwIfNoEntry: false, bigint: true });
  if (found?.size !== BigInt(bytes)) return undefined;
  try {
    linkSync(content, target);
    return stampOf(found);
  } catch (error) {
    // Removed since then; no hard links on this disk, or no more of them.
    if (hasCode(error, 'ENOENT', ...noLinkCodes)) return undefined;
    throw error;
  }
}

function writeAll(file: number, part: Uint8Array): void {
  for (let done = 0; done < part.byteLength;) done += writeSync(file, part, done);
}

class OpenFiles implements Disposable {
  readonly #descriptors: readonly number[];
  readonly #memory = Buffer.allocUnsafe(pieceBytes);

  constructor(files: ModelCut['files']) {
    this.#descriptors = files.map(({ path }) => openSync(path, 'r'));
  }

  /** The bytes of a chunk: its slices, with zeros between them. */
  *parts(slices: readonly ChunkSlice[]): Generator<Uint8Array> {
    let end = 0;
    for (const { file, offset, bytes, at } of slices) {
      if (at > end) yield new Uint8Array(at - end);
      end = at + bytes;
      for (let done = 0; done < bytes;) {
        const wanted = Math.min(pieceBytes, bytes - done);
        const count = readSync(this.#descriptors[file]!, this.#memory, 0, wanted, offset + done);
        if (count === 0) throw new Error('a file of the model became shorter while it was read');
        done += count;
        yield this.#memory.subarray(0, count);
      }
    }
  }

  [Symbol.dispose](): void {
    for (const descriptor of this.#descriptors) closeSync(descriptor);
  }
}
