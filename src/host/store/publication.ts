/** One upload: its files are streamed into a staging folder, which is then published or dropped. */
import { copyFile, mkdir } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { HostError } from '../errors.ts';
import type { Publication, Publisher } from '../types.ts';
import type { BlobStore } from './blobs.ts';
import { discardTree, diskError, receiveFile } from './disk.ts';
import { hasCode, hashFile } from '../../tools/index.ts';
import type { Originals } from './originals.ts';
import { checkFilename, checkSha256, handlerFile, quoted } from './names.ts';
import type { StoredFile } from './version-record.ts';

export type Published = Awaited<ReturnType<Publication['commit']>>;

/** A finished upload, ready to publish. */
export interface StagedUpload {
  readonly name: string;
  /** As requested at its beginning. */
  readonly version: string | undefined;
  readonly folder: string;
  readonly files: readonly StoredFile[];
  /** The serving version goes on serving. */
  readonly holdBack: boolean;
  readonly publisher: Publisher | undefined;
}

/** The folder exists, and is empty. */
export interface StagedPublicationOptions extends Pick<StagedUpload, 'name' | 'version' | 'folder' | 'publisher'> {
  /** For all files of the upload together. */
  readonly bytesMax: number;
  readonly blobs: BlobStore;
  readonly originals: Originals;
  /** Checks the upload and moves its folder into place. */
  readonly publish: (staged: StagedUpload, settings: unknown) => Promise<Published>;
  /** Called once, when the upload has ended either way and its folder is gone. */
  readonly onEnd: () => void;
}

/** Writes a file. */
type Fill = (path: string) => Promise<{ readonly sha256: string; readonly bytes: number }>;

/** More files than any model has; each costs a few system calls under the function's lock. */
const filesMax = 1024;

export class StagedPublication implements Publication {
  readonly #options: StagedPublicationOptions;
  readonly #files = new Map<string, StoredFile>();
  #bytes = 0;
  #state: 'open' | 'failed' | 'committing' | 'ended' = 'open';
  #commit: Promise<Published> | undefined;

  constructor(options: StagedPublicationOptions) {
    this.#options = options;
  }

  async writeFile(filename: string, stream: AsyncIterable<Uint8Array>): Promise<void> {
    const { bytesMax } = this.#options;
    await this.#addFile(filename, async (path) => {
      const left = bytesMax - this.#bytes;
      const streamed = await receiveFile(path, stream, left, `the upload is over the limit of ${bytesMax} bytes`);
      this.#bytes += streamed.bytes;
      return streamed;
    });
  }

  async useBlob(filename: string, sha256: string): Promise<void> {
    checkSha256(sha256);
    const { blobs, originals } = this.#options;
    await this.#addFile(filename, async (path) => ({
      sha256,
      bytes: (await originals.takeOut(sha256, path)) ?? (await blobs.takeOut(sha256, path)),
    }));
  }

  /** Adds the compiled handler; no request can. */
  async useHandler(compiled: string): Promise<void> {
    await this.#fill(handlerFile, async (path) => {
      await copyFile(compiled, path);
      return await hashFile(path);
    });
  }

  async commit(settings: unknown, holdBack = false): Promise<Published> {
    this.#mustBeOpen();
    this.#state = 'committing';
    const { name, version, folder, publisher, publish } = this.#options;
    const files = [...this.#files.values()];
    this.#commit = publish({ name, version, folder, publisher, files, holdBack }, settings);
    try {
      return await this.#commit;
    } finally {
      await this.#end();
    }
  }

  async abort(): Promise<void> {
    if (this.#state === 'ended') return;
    // A switch under way is finished: half of it cannot be undone.
    if (this.#commit === undefined) await this.#end();
    else await this.#commit.catch(() => undefined);
  }

  async #addFile(given: string, fill: Fill): Promise<void> {
    // `./w.bin` is how a model may name its file; what leaves the folder still does.
    const filename = given === '' ? given : posix.normalize(given);
    checkFilename(filename);
    await this.#fill(filename, fill);
  }

  async #fill(filename: string, fill: Fill): Promise<void> {
    this.#mustBeOpen();
    if (this.#files.has(filename)) {
      throw new HostError('bad-request', `the upload brings the file ${quoted(filename)} twice`);
    }
    if (this.#files.size === filesMax) {
      throw new HostError('bad-request', `the upload brings more than ${filesMax} files`);
    }
    const path = join(this.#options.folder, filename);
    try {
      await mkdir(dirname(path), { recursive: true });
      const filled = await fill(path);
      this.#mustBeOpen();
      this.#files.set(filename, { name: filename, ...filled });
    } catch (error) {
      // A file is missing now, so this upload cannot be published any more.
      if (this.#state === 'open') this.#state = 'failed';
      // Aborted meanwhile: files written since then are in a folder without an owner.
      if (this.#state === 'ended') await discardTree(this.#options.folder);
      if (hasCode(error, 'EEXIST', 'ENOTDIR', 'EISDIR')) {
        throw new HostError('bad-request', `the file name ${quoted(filename)} is a folder of another file's name`);
      }
      throw diskError(error);
    }
  }

  #mustBeOpen(): void {
    if (this.#state === 'open') return;
    throw new HostError('bad-request', 'the upload is incomplete or over, and takes nothing more');
  }

  async #end(): Promise<void> {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    await discardTree(this.#options.folder);
    this.#options.onEnd();
  }
}
