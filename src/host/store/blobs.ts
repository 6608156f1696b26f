/**
 * The content store: `blobs/sha256/<hex>`, each file under the hash of its bytes. A published version holds hard links
 * to its blobs, so a blob's link count shows whether anything still refers to it, and there is no list that could be
 * wrong.
 *
 * A blob that no version refers to gets a note, an empty file `blobs/put/<hex>`: one that a client uploads on its own,
 * and what workers need of functions in folders. It stays while the note is younger than a day.
 */
import { existsSync } from 'node:fs';
import { copyFile, constants, link, mkdir, open, readFile, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { hasCode, hashFile, ifThere, inParallel, KeyedMutex, namesInFolder, unlinkIfThere } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import type { DataFolder } from './data-folder.ts';
import { noLinkCodes, receiveFile, stampOf, syncFile, syncFolder } from './disk.ts';
import { isSha256 } from './names.ts';
import { storedFiles, type StoredFile, type VersionRecord } from './version-record.ts';

const putKeepMs = 24 * 60 * 60 * 1000;

export class BlobStore {
  readonly #folder: string;
  readonly #notes: string;
  readonly #stagingPath: () => string;
  readonly #mutex = new KeyedMutex();
  /** The sha256 that this process has computed for a file, by inode, size and time of the last change. */
  readonly #hashed = new Map<string, string | Promise<string>>();

  constructor(data: Pick<DataFolder, 'blobs' | 'stagingPath'>) {
    this.#folder = join(data.blobs, 'sha256');
    this.#notes = join(data.blobs, 'put');
    this.#stagingPath = () => data.stagingPath();
  }

  async start(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    await mkdir(this.#notes, { recursive: true });
  }

  has(sha256: string): boolean {
    return isSha256(sha256) && existsSync(this.#path(sha256));
  }

  /**
   * Stores a stream that must have this sha256. `temporary` is a path on the same disk to stream to. Throws HostError
   * 'digest-mismatch', 'body-too-large' or 'disk-full', and then keeps nothing.
   */
  async put(sha256: string, stream: AsyncIterable<Uint8Array>, bytesMax: number, temporary: string): Promise<void> {
    const streamed = await receiveFile(temporary, stream, bytesMax, `the blob is over the limit of ${bytesMax} bytes`);
    if (streamed.sha256 !== sha256) {
      await unlinkIfThere(temporary);
      throw new HostError('digest-mismatch', `the blob's bytes have the sha256 ${streamed.sha256}, not ${sha256}`);
    }
    await syncFile(temporary);
    await this.take(sha256, temporary);
  }

  /** Moves a file whose bytes were just found to have this sha256 into the store; it must be on the store's disk. */
  async take(sha256: string, temporary: string): Promise<void> {
    await this.#mutex.run(sha256, async () => {
      // The note first: a kill in between leaves a note without a blob, not a blob that the next start removes.
      await this.note(sha256);
      if (await this.isSound(this.#path(sha256), sha256)) await unlinkIfThere(temporary);
      else {
        await rename(temporary, this.#path(sha256));
        this.#hashed.set(stampOf(await stat(this.#path(sha256), { bigint: true })), sha256);
      }
      await syncFolder(this.#folder);
    });
  }

  /** From now on a blob stays for a day although nothing refers to it. */
  async note(sha256: string): Promise<void> {
    const note = await open(join(this.#notes, sha256), 'w');
    await note.utimes(new Date(), new Date());
    await note.close();
  }

  /** Whether a file with this stamp was found to have the bytes of this sha256. */
  isKnown(stamp: string, sha256: string): boolean {
    return this.#hashed.get(stamp) === sha256;
  }

  /**
   * Whether a file has the bytes of this sha256. Each file is read once after each start of the host, and again when
   * its size or time has changed: disks corrupt data silently, so neither a name nor a size is proof.
   */
  async isSound(path: string, sha256: string): Promise<boolean> {
    const found = await ifThere(stat(path, { bigint: true }));
    if (found === undefined) return false;
    const stamp = stampOf(found);
    const known = this.#hashed.get(stamp);
    if (known !== undefined) return (await known) === sha256;
    // Many may ask at once, and one of them reads it.
    const hashing = hashFile(path).then((hash) => hash.sha256);
    this.#hashed.set(stamp, hashing);
    try {
      const hashed = await hashing;
      this.#hashed.set(stamp, hashed);
      return hashed === sha256;
    } catch (error) {
      this.#hashed.delete(stamp);
      throw error;
    }
  }

  /** Makes `target` a file with the blob's bytes. Throws HostError 'unknown-blob'; a damaged blob is removed first. */
  async takeOut(sha256: string, target: string): Promise<number> {
    return await this.#mutex.run(sha256, async () => {
      const blob = this.#path(sha256);
      if (!(await this.isSound(blob, sha256))) {
        await unlinkIfThere(blob);
        throw new HostError('unknown-blob', `no blob with the sha256 ${sha256} is stored`);
      }
      await linkOrCopy(blob, target);
      return (await stat(target)).size;
    });
  }

  /** Makes a folder with all that is stored of a version. Throws as {@link takeOut}. */
  async takeOutAll(record: Pick<VersionRecord, 'files' | 'chunks'>, folder: string): Promise<readonly StoredFile[]> {
    await mkdir(folder, { recursive: true });
    const stored = await this.storedFiles(record);
    await inParallel(stored, async ({ name, sha256 }) => await this.takeOut(sha256, join(folder, name)));
    return stored;
  }

  /** What is stored of a version, by the manifest among the blobs. Throws HostError 'unknown-blob'. */
  async storedFiles(record: Pick<VersionRecord, 'files' | 'chunks'>): Promise<readonly StoredFile[]> {
    if (record.chunks === undefined) return record.files;
    const { sha256 } = record.chunks;
    const text = await ifThere(readFile(this.#path(sha256), 'utf8'));
    if (text === undefined) throw new HostError('unknown-blob', `no blob with the sha256 ${sha256} is stored`);
    return storedFiles(record, text);
  }

  /** Replaces a damaged blob, or a version's file, by the right bytes. Returns whether it was damaged. */
  async heal(sha256: string, fresh: string, damaged = this.#path(sha256)): Promise<boolean> {
    return await this.#mutex.run(sha256, async () => {
      const isMissing = (await ifThere(stat(damaged))) === undefined;
      if (isMissing && damaged === this.#path(sha256)) return false;
      if (await this.isSound(damaged, sha256)) return false;
      await syncFile(fresh);
      await this.#replace(damaged, fresh);
      await syncFolder(dirname(damaged));
      return true;
    });
  }

  /**
   * Shares a file that has just been written and flushed with the blob of its hash: the file becomes the blob, or is
   * replaced by a link to the existing one, which must be intact (see `heal`).
   *
   * @param isLinked it was made as a link to the blob
   */
  async takeIn(sha256: string, file: string, isLinked: boolean): Promise<void> {
    await this.#mutex.run(sha256, async () => {
      const blob = this.#path(sha256);
      if (isLinked && existsSync(blob)) return;
      try {
        await link(file, blob);
        this.#hashed.set(stampOf(await stat(blob, { bigint: true })), sha256);
      } catch (error) {
        if (hasCode(error, ...noLinkCodes)) return await linkOrCopy(file, blob).catch(unlessThere);
        if (!hasCode(error, 'EEXIST')) throw error;
        if ((await stat(blob)).ino === (await stat(file)).ino) return;
        await this.#replace(file, blob);
      }
    });
  }

  /** Puts a link to `by` in place of a file. Not by a name made from the file's own: an upload may bring that, too. */
  async #replace(file: string, by: string): Promise<void> {
    const path = this.#stagingPath();
    await linkOrCopy(by, path);
    await rename(path, file);
  }

  /** Waits until the names of new blobs are on the disk. */
  async sync(): Promise<void> {
    await syncFolder(this.#folder);
  }

  /** Removes a blob if nothing refers to it any more. @param isElsewhere ignore its note */
  async release(sha256: string, isElsewhere = false): Promise<void> {
    await this.#mutex.run(sha256, async () => {
      const blob = this.#path(sha256);
      const found = await ifThere(stat(blob));
      const note = join(this.#notes, sha256);
      if (found === undefined || found.nlink > 1 || (!isElsewhere && (await isFresh(note)))) return;
      await unlinkIfThere(blob);
      await unlinkIfThere(note);
    });
  }

  /** Removes every blob that nothing refers to, and every file that is no blob. */
  async collect(): Promise<void> {
    for (const name of await namesInFolder(this.#folder)) {
      if (isSha256(name)) await this.release(name);
      else await unlinkIfThere(join(this.#folder, name));
    }
    for (const name of await namesInFolder(this.#notes)) {
      if (!this.has(name)) await unlinkIfThere(join(this.#notes, name));
    }
  }

  /** The folder of the blobs, each under its hash. */
  get folder(): string {
    return this.#folder;
  }

  /** The path of a stored blob; undefined if there is none. */
  pathOf(sha256: string): string | undefined {
    return this.has(sha256) ? this.#path(sha256) : undefined;
  }

  #path(sha256: string): string {
    return join(this.#folder, sha256);
  }
}

async function isFresh(note: string): Promise<boolean> {
  const found = await ifThere(stat(note));
  return found !== undefined && Date.now() - found.mtimeMs < putKeepMs;
}

function unlessThere(error: unknown): void {
  if (!hasCode(error, 'EEXIST')) throw error;
}

async function linkOrCopy(from: string, to: string): Promise<void> {
  await mkdir(dirname(to), { recursive: true });
  try {
    await link(from, to);
  } catch (error) {
    if (!hasCode(error, ...noLinkCodes)) throw error;
    await copyFile(from, to, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    await syncFile(to);
  }
}
