/**
 * Reads a whole data folder and compares every stored file with its hash, without a host. Without `repair` nothing is
 * written, so it may run beside a host that uses the folder.
 */
import { existsSync } from 'node:fs';
import { link, mkdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fetchContent, type ContentSource } from '../../store/index.ts';
import { hashFile } from '../../tools/index.ts';
import { ConfigError } from '../config/config-error.ts';
import { DataFolder } from './data-folder.ts';
import { hasCode, namesIn, unlinkIfThere } from './disk.ts';
import { isFunctionName, isSha256, isVersion } from './names.ts';
import { loadRecord, type StoredFile } from './version-record.ts';

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
 * folder meanwhile @param healFrom with `repair`: hosts to ask for files whose copies here are all damaged @throws
 * ConfigError where there is no data folder
 */
export async function checkStore(
  dataDir: string,
  {
    repair = false,
    healFrom = { hostUrls: [] },
    onFile,
  }: {
    readonly repair?: boolean;
    readonly healFrom?: ContentSource;
    readonly onFile?: (path: string) => void;
  } = {},
): Promise<StoreReport> {
  const data = new DataFolder(dataDir);
  if (!existsSync(data.functions)) throw new ConfigError(`${dataDir} is no data folder: 'functions' is not in it`);
  if (!repair) return await new StoreCheck(data, undefined, onFile).run();
  await data.open();
  try {
    return await new StoreCheck(data, healFrom, onFile).run();
  } finally {
    await data.close();
  }
}

class StoreCheck {
  readonly #data: DataFolder;
  /** Where to ask for files without an intact copy here; undefined: nothing is written. */
  readonly #repair: ContentSource | undefined;
  readonly #onFile: ((path: string) => void) | undefined;
  /** By inode: its sha256. */
  readonly #hashes = new Map<string, string>();
  #bytes = 0;
  readonly #problems: StoreProblem[] = [];

  constructor(data: DataFolder, repair: ContentSource | undefined, onFile: ((path: string) => void) | undefined) {
    this.#data = data;
    this.#repair = repair;
    this.#onFile = onFile;
  }

  async run(): Promise<StoreReport> {
    let versions = 0;
    for (const name of await namesIn(this.#data.functions)) {
      for (const version of await namesIn(this.#data.functionFolder(name))) {
        if (!isFunctionName(name) || !isVersion(version)) {
          this.#tell(join('functions', name, version), undefined, 'it is not a version of a function');
          continue;
        }
        versions++;
        await this.#checkVersion(name, version);
      }
    }
    await this.#checkBlobs();
    return { versions, files: this.#hashes.size, bytes: this.#bytes, problems: this.#problems };
  }

  async #checkVersion(name: string, version: string): Promise<void> {
    const folder = this.#data.versionFolder(name, version);
    const key = `${name}@${version}`;
    const loaded = await loadRecord(folder, name, version);
    if (loaded.status === 'unreadable') {
      this.#tell(join('functions', name, version), key, `${loaded.reason}: remove it, or publish it again`);
      return;
    }
    for (const file of loaded.record.files) await this.#checkFile(key, folder, file);
  }

  async #checkFile(key: string, folder: string, file: StoredFile): Promise<void> {
    const { name, sha256 } = file;
    const path = join(folder, name);
    const found = await this.#hashOf(path);
    if (found === sha256) return;
    const reason =
      found === undefined ? 'it is missing: publish it again' : 'its bytes have another hash: publish it again';
    const shown = path.slice(this.#data.root.length + 1);
    try {
      const repaired = this.#repair === undefined ? undefined : await this.#replace(path, file, this.#repair);
      this.#tell(shown, key, reason, repaired);
    } catch (error) {
      this.#tell(shown, key, `${reason} (${(error as Error).message})`);
    }
  }

  /** Replaces a file by intact bytes. @returns how; undefined: no copy here has them, and there is no host to ask */
  async #replace(path: string, file: StoredFile, source: ContentSource): Promise<string | undefined> {
    const blob = join(this.#data.blobs, 'sha256', file.sha256);
    const fresh = `${path}.link`;
    await unlinkIfThere(fresh);
    let how = 'replaced by the blob of its hash';
    if ((await this.#hashOf(blob)) === file.sha256) {
      await mkdir(dirname(path), { recursive: true });
      await link(blob, fresh);
    } else {
      if (source.hostUrls.length === 0) return undefined;
      how = `fetched from ${await fetchContent(source, file, fresh)}`;
      // The versions that share the file get it from here.
      await rm(blob, { force: true });
      await link(fresh, blob);
    }
    await rename(fresh, path);
    return how;
  }

  async #checkBlobs(): Promise<void> {
    const folder = join(this.#data.blobs, 'sha256');
    for (const name of await namesIn(folder)) {
      const path = join('blobs', 'sha256', name);
      if (!isSha256(name)) this.#tell(path, undefined, 'its name is not a hash; the next start removes it');
      else if ((await this.#hashOf(join(folder, name))) !== name) {
        if (this.#repair !== undefined) await unlinkIfThere(join(folder, name));
        this.#tell(path, undefined, 'its bytes have another hash', this.#repair === undefined ? undefined : 'removed');
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
