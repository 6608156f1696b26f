/**
 * A store in a folder, on a disk or a shared file system.
 *
 *     entries/<encoded name>/<revision>.json   the highest revision is the entry
 *     blobs/sha256/<hex>                       content under its hash
 *     changed                                  another text after each write
 *     reserve                                  room that changes of entries get on a full disk
 *
 * A revision is made by link(), which fails where the name is taken: of two writers at once one succeeds, on NFS too.
 */
import { randomBytes } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import {
  copyFile,
  link,
  mkdir,
  open,
  rename,
  stat,
  statfs,
  truncate,
  unlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join, resolve } from 'node:path';
import {
  hasCode,
  ifThere,
  namesInFolder,
  readTextIfThere,
  synced,
  syncNames,
  unlinkIfThere,
  writeDurably,
} from '../tools/index.ts';
import { decodeName, encodeName } from './entry-names.ts';
import type { ContentSource, WantedContent } from './fetch-content.ts';
import {
  changedElsewhere,
  entryText,
  includesWrite,
  nextEnvelope,
  parseEntry,
  StoreAway,
  type EntryBefore,
  type EntryBody,
  type Store,
  type StoredContent,
  type StoredEntry,
  type Tag,
} from './store.ts';

/** On a full disk a function must still be removed, which is what makes room, or go back to its version before. */
const reserveBytes = 256 * 1024;
/** What one change of an entry gets of it: the entry's file, and what its folder takes for a name. */
const reserveStepBytes = 16 * 1024;

/** At least so many revisions stay behind the newest: a reader that has listed one can still open it. */
const revisionsKept = 4;
/** A file that a killed writer left is removed by a later writer of the same entry. */
const strayMs = 60 * 60 * 1000;

export class FolderStore implements Store {
  readonly place: string;
  readonly #root: string;
  readonly #entries: string;
  /** It was there once. From then on its absence means that it is not mounted: nothing is written in its place. */
  #wasThere = false;

  constructor(root: string) {
    this.#root = resolve(root);
    this.#entries = join(this.#root, 'entries');
    this.place = `the folder ${this.#root}`;
  }

  async read(name: string): Promise<StoredEntry | undefined> {
    return await this.#onDisk(async () => {
      for (;;) {
        const [newest] = await this.#revisions(name);
        if (newest === undefined) return undefined;
        const text = await readTextIfThere(this.#path(name, newest));
        // Undefined: it was replaced by so many others meanwhile.
        if (text !== undefined) return parseEntry(name, tagOf(newest), text);
      }
    });
  }

  async write(name: string, body: EntryBody | undefined, before: EntryBefore | undefined): Promise<StoredEntry> {
    return await this.#onDisk(async () => {
      const envelope = nextEnvelope(name, body, before);
      const revision = before === undefined ? 0 : Number(before.tag);
      const folder = join(this.#entries, encodeName(name));
      if (revision === 0) await this.#make(folder);
      const temporary = join(folder, `.${envelope.nonce}`);
      try {
        await this.#withReserve(temporary, async () => {
          await Promise.all([
            writeDurably(temporary, entryText(envelope)),
            ...(revision === 0 ? [syncNames(this.#entries)] : []),
          ]);
          await take(temporary, this.#path(name, revision + 1));
        });
      } catch (error) {
        await unlinkIfThere(temporary);
        if (!hasCode(error, 'EEXIST')) throw error;
        // On NFS the reply to a link() that succeeded may be lost, and its repetition fails.
        return await this.#ownOrRefused(name, envelope.nonce);
      }
      // The revision is there for everyone from here on. Steps that do not need each other go at once: each is a trip to
      // the thread pool, and with NFS one to the server.
      const [files] = await Promise.all([
        namesInFolder(folder),
        syncNames(folder),
        unlinkIfThere(temporary),
        // Who misses the marker lists within a minute.
        this.#mark(envelope.nonce).catch(() => undefined),
        this.#fillReserve(),
      ]);
      const revisions = revisionsIn(files);
      // Revisions are removed from below. If the one before is there, this one never was before; else this writer slept
      // through several others, and made one again that was removed, or it was overtaken by several after it.
      const isNext = revision === 0 ? revisions.length === 1 : revisions.includes(revision);
      if (!isNext) {
        const now = revisions[0] === revision + 1 ? undefined : await this.read(name);
        if (now !== undefined && includesWrite(now, envelope.nonce)) return now;
        await unlinkIfThere(this.#path(name, revision + 1));
        throw changedElsewhere(name);
      }
      if (files.length > 2 * revisionsKept) await tidy(folder, files, revisions);
      return { tag: tagOf(revision + 1), envelope };
    });
  }

  /** Where the disk is full, `work` is done once more with a part of the reserve. */
  async #withReserve(temporary: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!hasCode(error, 'ENOSPC', 'EDQUOT')) throw error;
      const left = (await ifThere(stat(this.#reserve)))?.size ?? 0;
      if (left === 0) throw error;
      await unlinkIfThere(temporary);
      await truncate(this.#reserve, Math.max(0, left - reserveStepBytes));
      await work();
    }
  }

  /** A disk without room for it is no fault. */
  async #fillReserve(): Promise<void> {
    try {
      if (((await ifThere(stat(this.#reserve)))?.size ?? 0) === reserveBytes) return;
      const { bavail, bsize } = await statfs(this.#root);
      if (bavail * bsize > 4 * reserveBytes) await writeFile(this.#reserve, Buffer.alloc(reserveBytes, 1));
    } catch {
      // The next write tries again.
    }
  }

  get #reserve(): string {
    return join(this.#root, 'reserve');
  }

  /** Nonces have one length, so the file need not be emptied before, after which ext4 flushes it to the disk at once. */
  async #mark(nonce: string): Promise<void> {
    await writeFile(join(this.#root, 'changed'), nonce, { flag: constants.O_WRONLY | constants.O_CREAT });
  }

  async list(): Promise<ReadonlyMap<string, Tag>> {
    return await this.#onDisk(async () => {
      const found = new Map<string, Tag>();
      for (const encoded of await namesInFolder(this.#entries)) {
        const name = decodeName(encoded);
        const newest = name === undefined ? undefined : (await this.#revisions(name))[0];
        if (name !== undefined && newest !== undefined) found.set(name, tagOf(newest));
      }
      return found;
    });
  }

  async marker(): Promise<string | undefined> {
    return await this.#onDisk(async () => {
      return await readTextIfThere(join(this.#root, 'changed'));
    });
  }

  async has({ sha256, bytes }: WantedContent): Promise<boolean> {
    return await this.#onDisk(async () => {
      return (await ifThere(stat(this.#content(sha256))))?.size === bytes;
    });
  }

  async put(content: WantedContent, path: string): Promise<void> {
    const isThere = await this.has(content);
    await this.#onDisk(async () => {
      const target = this.#content(content.sha256);
      if (isThere) {
        // Who may not write cannot collect either.
        await utimes(target, new Date(), new Date()).catch((error: unknown) => {
          if (!hasCode(error, 'EROFS', 'EPERM', 'EACCES')) throw error;
        });
        return;
      }
      const folder = this.#contents;
      await this.#make(folder);
      // A copy, also where a link would do: the publisher's file may be changed later.
      const temporary = join(folder, `.${randomBytes(12).toString('hex')}`);
      try {
        await copyFile(path, temporary);
        await synced(temporary, 'r');
        await rename(temporary, target);
      } finally {
        await unlinkIfThere(temporary);
      }
      await syncNames(folder);
    });
  }

  async contents(): Promise<readonly StoredContent[]> {
    return await this.#onDisk(async () => {
      const found: StoredContent[] = [];
      for (const sha256 of await namesInFolder(this.#contents)) {
        if (!/^[0-9a-f]{64}$/.test(sha256)) continue;
        const { size, mtimeMs } = await stat(this.#content(sha256));
        found.push({ sha256, bytes: size, ageMs: Date.now() - mtimeMs });
      }
      return found;
    });
  }

  async discard(sha256: string): Promise<void> {
    await this.#onDisk(async () => await unlinkIfThere(this.#content(sha256)));
  }

  /** Any folder will do that can be written; what it does without hard links, `take` says. */
  async probe(): Promise<void> {
    await this.#onDisk(async () => {
      await this.#make(this.#entries);
      const temporary = join(this.#root, `.probe-${randomBytes(6).toString('hex')}`);
      await writeFile(temporary, '');
      await unlink(temporary);
    });
  }

  source(signal: AbortSignal): ContentSource {
    return {
      place: this.place,
      open: async (sha256, range) => {
        const path = this.#content(sha256);
        await stat(path).catch((error: unknown) => {
          if (!hasCode(error, 'ENOENT')) throw error;
          throw new Error(`${this.place} has no file with the sha256 ${sha256}`, { cause: error });
        });
        const part = range === undefined ? {} : { start: range.from, end: range.to - 1 };
        return {
          isWhole: range === undefined,
          body: createReadStream(path, { ...part, signal }) as AsyncIterable<Buffer>,
        };
      },
      signal,
    };
  }

  /** The newest entry, if the write with this nonce is in it. @throws ChangedElsewhere */
  async #ownOrRefused(name: string, nonce: string): Promise<StoredEntry> {
    const now = await this.read(name);
    if (now !== undefined && includesWrite(now, nonce)) return now;
    throw changedElsewhere(name);
  }

  /** The newest first. */
  async #revisions(name: string): Promise<number[]> {
    return revisionsIn(await namesInFolder(join(this.#entries, encodeName(name))));
  }

  #path(name: string, revision: number): string {
    return join(this.#entries, encodeName(name), `${revision}.json`);
  }

  #content(sha256: string): string {
    return join(this.#contents, sha256);
  }

  get #contents(): string {
    return join(this.#root, 'blobs', 'sha256');
  }

  /** Makes a folder of the store, and the first time the store itself. @throws StoreAway if it has gone since */
  async #make(folder: string): Promise<void> {
    if (!this.#wasThere) {
      for (const each of [this.#entries, this.#contents]) await mkdir(each, { recursive: true });
      this.#wasThere = true;
    }
    await stat(this.#entries);
    await mkdir(folder).catch((error: unknown) => {
      if (!hasCode(error, 'EEXIST')) throw error;
    });
  }

  /** The disk's errors as the store's. A full or read-only disk keeps its error, which its owner can mend. */
  async #onDisk<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (hasCode(error, 'ENOENT') && this.#wasThere && !(await isThere(this.#entries)))
        throw new StoreAway(`${this.place} has gone: is it mounted?`, { cause: error });
      if (!hasCode(error, 'EIO', 'ESTALE', 'ETIMEDOUT', 'ENOTCONN', 'EHOSTDOWN')) throw error;
      throw new StoreAway(`${this.place} does not answer: ${(error as Error).message}`, { cause: error });
    }
  }
}

const isThere = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    (error: unknown) => !hasCode(error, 'ENOENT'),
  );

/** The newest first. */
function revisionsIn(files: readonly string[]): number[] {
  return files
    .flatMap((file) => {
      const [, digits] = /^([1-9][0-9]{0,14})\.json$/.exec(file) ?? [];
      return digits === undefined ? [] : [Number(digits)];
    })
    .toSorted((one, other) => other - one);
}

/** Removes old revisions, from below, and strays. What cannot be removed now is by a later writer. */
async function tidy(folder: string, files: readonly string[], revisions: readonly number[]): Promise<void> {
  try {
    for (const revision of revisions.slice(revisionsKept + 1).toReversed()) {
      await unlinkIfThere(join(folder, `${revision}.json`));
    }
    for (const file of files.filter((each) => each.startsWith('.'))) {
      const { mtimeMs } = await stat(join(folder, file));
      if (Date.now() - mtimeMs > strayMs) await unlinkIfThere(join(folder, file));
    }
  } catch {
    // Another writer is doing the same.
  }
}

const tagOf = (revision: number): Tag => String(revision) as Tag;

/** Fails with EEXIST where the name is taken. */
async function take(temporary: string, path: string): Promise<void> {
  try {
    await link(temporary, path);
  } catch (error) {
    if (!hasCode(error, 'EPERM', 'ENOTSUP', 'ENOSYS')) throw error;
    // A disk without hard links: only one host at a time can use it, as its own data folder.
    const handle = await open(path, 'wx');
    await handle.close();
    await rename(temporary, path);
  }
}
