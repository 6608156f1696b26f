/** The published files of versions whose models are stored in chunks: they are made again as they are read. */
import { createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { readableOriginal, streamOf, type ReadableContent } from '../../store/index.ts';
import type { Catalogue } from './catalogue.ts';
import type { DataFolder } from './data-folder.ts';
import { modelFiles } from './version-record.ts';

interface Found {
  readonly folder: string;
  readonly name: string;
  readonly bytes: number;
}

export class Originals {
  readonly #catalogue: Pick<Catalogue, 'uploads'>;
  readonly #data: DataFolder;

  constructor(catalogue: Pick<Catalogue, 'uploads'>, data: DataFolder) {
    this.#catalogue = catalogue;
    this.#data = data;
  }

  /** A file with this hash, of a version whose chunks were found to be intact. */
  find(sha256: string): Found | undefined {
    for (const [name, versions] of this.#catalogue.uploads) {
      for (const [version, loaded] of versions) {
        if (loaded.status !== 'whole' || loaded.record.chunks === undefined) continue;
        const file = modelFiles(loaded.record).find((each) => each.sha256 === sha256);
        if (file !== undefined) return { ...file, folder: this.#data.versionFolder(name, version) };
      }
    }
    return undefined;
  }

  async open(sha256: string): Promise<ReadableContent | undefined> {
    const found = this.find(sha256);
    return found && (await readableOriginal(found.folder, found.name));
  }

  /** Writes the file to a path. @returns its bytes; undefined: no version has it */
  async takeOut(sha256: string, path: string): Promise<number | undefined> {
    await using content = await this.open(sha256);
    if (content === undefined) return undefined;
    await pipeline(streamOf(content), createWriteStream(path, { flags: 'wx' }));
    return content.bytes;
  }
}
