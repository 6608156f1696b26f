/**
 * Reads a whole data folder and compares every stored file with its hash, without a host. Without `repair` nothing is
 * written, so it may run beside a host that uses the folder.
 */
import { existsSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { link, mkdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { decodeName, encodeName, fetchContent, readableOriginal, streamOf, type Store } from '../../store/index.ts';
import { hasCode, hashFile, namesInFolder, unlinkIfThere } from '../../tools/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { DataFolder } from './data-folder.ts';
import { formatOf, newestFormat } from './data-format.ts';
import { Entries } from './entries.ts';
import { EntryCopies } from './entry-copies.ts';
import { isSha256 } from './names.ts';
import {
  loadVersion,
  manifestOf,
  modelFiles,
  storedFiles,
  type LoadedRecord,
  type StoredFile,
  type VersionRecord,
} from './version-record.ts';

export interface StoreProblem {
  /** Relative to the data folder. */
  readonly path: string;
  /** `name@version`; undefined for a blob that no version uses. */
  readonly function: string | undefined;
  readonly reason: string;
  /** How `repair` fixed it; undefined if only publishing again, or removing, helps. */
  readonly repaired: string | undefined;
}

export interface StoreReport {
  readonly versions: number;
  /** Files that were read, each once, however many links it has. */
  readonly files: number;
  readonly bytes: number;
  readonly problems: readonly StoreProblem[];
}

/**
 * @param repair replaces damaged files by intact ones of the same hash and removes damaged blobs; no host may use the
 * folder meanwhile @param shared the store on another machine that the folder is a cache of; with `repair`, files whose
 * copies here are all damaged are fetched from it @throws ConfigError where there is no data folder
 */
export async function checkStore(
  dataDir: string,
  {
    repair = false,
    shared,
    onFile,
  }: {
    readonly repair?: boolean;
    readonly shared?: Store | undefined;
    readonly onFile?: (path: string) => void;
  } = {},
): Promise<StoreReport> {
  const data = new DataFolder(dataDir);
  if (!existsSync(data.functions)) throw new ConfigError(`${dataDir} is no data folder: 'functions' is not in it`);
  if (!repair) {
    const format = await formatOf(data.root);
    if (format !== undefined && format !== newestFormat) {
      throw new ConfigError(
        `${dataDir} has format ${format}, and this version reads format ${newestFormat}: start a host on it once, or ` +
          'use --repair, which brings an older format to it',
      );
    }
    return await new StoreCheck(data, shared, false, onFile).run();
  }
  await data.open();
  try {
    return await new StoreCheck(data, shared, true, onFile).run();
  } finally {
    await data.close();
  }
}

const ignore = (): void => undefined;
/** What is lost is in the report. */
const silent = { info: ignore, warn: ignore, error: ignore };

/** The newest version of a function as a data folder has it, without a host; undefined: it has none. */
export async function newestUpload(
  dataDir: string,
  name: string,
): Promise<{ readonly folder: string; readonly version: string; readonly loaded: LoadedRecord } | undefined> {
  const data = new DataFolder(dataDir);
  const entries = new Entries(data.store, silent, new EntryCopies(data.known));
  await entries.recall();
  await entries.read(name);
  const newest = entries.get(name).versions.toSorted((one, other) => other.sequence - one.sequence)[0];
  if (newest === undefined) return undefined;
  const { version } = newest;
  const folder = data.versionFolder(name, version);
  return { folder, version, loaded: await loadVersion(folder, newest) };
}

class StoreCheck {
  readonly #data: DataFolder;
  readonly #shared: Store | undefined;
  readonly #repairs: boolean;
  readonly #onFile: ((path: string) => void) | undefined;
  /** By inode: its sha256. */
  readonly #hashes = new Map<string, string>();
  #bytes = 0;
  readonly #problems: StoreProblem[] = [];

  constructor(data: DataFolder, shared: Store | undefined, repairs: boolean, onFile?: (path: string) => void) {
    this.#data = data;
    this.#shared = shared;
    this.#repairs = repairs;
    this.#onFile = onFile;
  }

  async run(): Promise<StoreReport> {
    const entries = new Entries(this.#shared ?? this.#data.store, silent);
    await entries.start();
    const folders = await namesInFolder(this.#data.functions);
    let versions = 0;
    for (const folder of folders) {
      if (decodeName(folder) === undefined) this.#tell(join('functions', folder), undefined, 'it is not a function');
    }
    for (const name of new Set([...entries.names(), ...folders.flatMap((each) => decodeName(each) ?? [])].toSorted())) {
      const records = new Map(entries.get(name).versions.map((record) => [encodeName(record.version), record]));
      for (const each of new Set([...records.keys(), ...(await namesInFolder(this.#data.functionFolder(name)))])) {
        versions++;
        await this.#checkVersion(name, each, records.get(each), entries.isReadable(name));
      }
    }
    await this.#checkBlobs();
    return { versions, files: this.#hashes.size, bytes: this.#bytes, problems: this.#problems };
  }

  async #checkVersion(
    name: string,
    folder: string,
    record: VersionRecord | undefined,
    isReadable: boolean,
  ): Promise<void> {
    const path = join(this.#data.functionFolder(name), folder);
    const key = `${name}@${record?.version ?? decodeName(folder) ?? folder}`;
    if (record === undefined) {
      const reason = isReadable ? 'its function has no such version' : 'the entry of its function is lost';
      this.#tell(relative(this.#data.root, path), key, `${reason}: remove it, or publish it again`);
      return;
    }
    // In a cache it may not be here yet, or no longer.
    if (this.#shared !== undefined && !existsSync(path)) return;
    const manifest = manifestOf(record);
    if (manifest === undefined) {
      for (const file of record.files) await this.#checkFile(key, path, file);
      return;
    }
    if (!(await this.#checkFile(key, path, manifest))) return;
    let isWhole = true;
    for (const file of storedFiles(record, await readFile(join(path, manifest.name), 'utf8')).slice(1)) {
      isWhole = (await this.#checkFile(key, path, file)) && isWhole;
    }
    if (isWhole) await this.#checkOriginals(key, path, record);
  }

  /** What a version in chunks was published as must still come of them. */
  async #checkOriginals(key: string, folder: string, record: VersionRecord): Promise<void> {
    for (const { name, sha256 } of modelFiles(record)) {
      const shown = `${relative(this.#data.root, join(folder, name))} as published`;
      try {
        this.#onFile?.(join(folder, name));
        await using content = await readableOriginal(folder, name);
        const hash = createHash('sha256');
        for await (const part of streamOf(content)) hash.update(part);
        if (hash.digest('hex') !== sha256) this.#tell(shown, key, 'its chunks make other bytes: publish it again');
      } catch (error) {
        this.#tell(shown, key, `${(error as Error).message}: publish it again`);
      }
    }
  }

  /** @returns whether the file is intact, or is again */
  async #checkFile(key: string, folder: string, file: StoredFile): Promise<boolean> {
    const { name, sha256 } = file;
    const path = join(folder, name);
    const found = await this.#hashOf(path);
    if (found === sha256) return true;
    const reason =
      found === undefined ? 'it is missing: publish it again' : 'its bytes have another hash: publish it again';
    const shown = relative(this.#data.root, path);
    try {
      const repaired = this.#repairs ? await this.#replace(path, file) : undefined;
      this.#tell(shown, key, reason, repaired);
      return repaired !== undefined;
    } catch (error) {
      this.#tell(shown, key, `${reason} (${(error as Error).message})`);
      return false;
    }
  }

  /** Replaces a file by intact bytes. @returns how; undefined: no copy here has them, and no store has */
  async #replace(path: string, file: StoredFile): Promise<string | undefined> {
    const blob = join(this.#data.blobs, 'sha256', file.sha256);
    for (const folder of [this.#data.staging, dirname(path)]) await mkdir(folder, { recursive: true });
    const fresh = this.#data.stagingPath();
    let how = 'replaced by the blob of its hash';
    if ((await this.#hashOf(blob)) === file.sha256) {
      await link(blob, fresh);
    } else {
      if (this.#shared === undefined) return undefined;
      await fetchContent(this.#shared.source(new AbortController().signal), file, fresh);
      how = `fetched from ${this.#shared.place}`;
      // The versions that share the file get it from here.
      await rm(blob, { force: true });
      await link(fresh, blob);
    }
    await rename(fresh, path);
    return how;
  }

  async #checkBlobs(): Promise<void> {
    const folder = join(this.#data.blobs, 'sha256');
    for (const name of await namesInFolder(folder)) {
      const path = join('blobs', 'sha256', name);
      if (!isSha256(name)) this.#tell(path, undefined, 'its name is not a hash; the next start removes it');
      else if ((await this.#hashOf(join(folder, name))) !== name) {
        if (this.#repairs) await unlinkIfThere(join(folder, name));
        this.#tell(path, undefined, 'its bytes have another hash', this.#repairs ? 'removed' : undefined);
      }
    }
  }

  /** Undefined if the file does not exist. */
  async #hashOf(path: string): Promise<string | undefined> {
    try {
      const { ino } = await stat(path, { bigint: true });
      const known = this.#hashes.get(String(ino));
      if (known !== undefined) return known;
      this.#onFile?.(path);
      const { sha256, bytes } = await hashFile(path);
      this.#hashes.set(String(ino), sha256);
      this.#bytes += bytes;
      return sha256;
    } catch (error) {
      if (hasCode(error, 'ENOENT', 'ENOTDIR')) return undefined;
      if (hasCode(error, 'EIO', 'EACCES')) return `unreadable (${(error as NodeJS.ErrnoException).code})`;
      throw error;
    }
  }

  #tell(path: string, key: string | undefined, reason: string, repaired?: string): void {
    this.#problems.push({ path, function: key, reason, repaired });
  }
}
