/**
 * The functions on a worker's disk.
 *
 *     <folder>/<revision>/<file>   a function's files under the names by which its model knows them
 *     <folder>/<revision>.whole    the manifest, written when all files have arrived
 *
 * A revision is the hash over its files' hashes, so the content of its folder never changes.
 */
import { link, mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { manifestFile, type FetchFile } from '../store/index.ts';
import { inParallel } from '../tools/index.ts';
import { chunkFilesOf, filesOf, parseManifest, type FunctionManifest, type ManifestFile } from './manifest.ts';

/** Beside the folder: in it a model's own file may have any name. */
const mark = '.whole';
/** How many files of a function are fetched at once. */
const filesAtOnce = 4;
/**
 * A use so soon after the one before is not recorded: a touch of the disk for each call would cost more than it tells.
 */
const recordedEveryMs = 1000;

interface Revision {
  readonly manifest: FunctionManifest;
  /** The files in its folder: whole files, or the chunks in which a large model is stored. */
  readonly files: readonly ManifestFile[];
  /** Instant (performance.now()) of the latest use; the system's clock may be set back. */
  usedMs: number;
}

export class ModelFolder {
  readonly #folder: string;
  readonly #revisions = new Map<string, Revision>();

  constructor(folder: string) {
    this.#folder = resolve(folder);
  }

  /** Reads what an earlier worker left, and removes incomplete files. */
  async start(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    const names = new Set((await readdir(this.#folder)).map((name) => name.replace(/\.whole$/, '')));
    for (const name of names) {
      const revisionFolder = join(this.#folder, name);
      const manifest = await readFile(this.#markOf(name), 'utf8').then(parseManifest, () => undefined);
      const files = manifest?.revision === name ? await filesIn(revisionFolder, manifest) : [];
      if (manifest !== undefined && files.length > 0 && (await isWhole(revisionFolder, files))) {
        const unusedMs = Math.max(0, Date.now() - (await stat(this.#markOf(name))).mtimeMs);
        this.#revisions.set(name, { manifest, files, usedMs: performance.now() - unusedMs });
      } else await this.#remove(name);
    }
  }

  /** Whether all files of the function are on the disk. */
  has(revision: string): boolean {
    return this.#revisions.has(revision);
  }

  /** The manifests of all functions on the disk. */
  manifests(): readonly FunctionManifest[] {
    return Array.from(this.#revisions.values(), ({ manifest }) => manifest);
  }

  /** The files of a function; undefined if it is not on the disk. */
  filesOf(revision: string): readonly ManifestFile[] | undefined {
    return this.#revisions.get(revision)?.files;
  }

  /** Milliseconds since its latest use, in this worker or an earlier one; Infinity if it is not on the disk. */
  idleMs(revision: string): number {
    return performance.now() - (this.#revisions.get(revision)?.usedMs ?? -Infinity);
  }

  /** Records that a call uses the function; does nothing if it is not on the disk. */
  use(revision: string): void {
    const used = this.#revisions.get(revision);
    const nowMs = performance.now();
    if (used === undefined || nowMs - used.usedMs < recordedEveryMs) return;
    used.usedMs = nowMs;
    const now = new Date();
    // The order of use survives a restart in the file's time; a failure loses nothing else.
    utimes(this.#markOf(revision), now, now).catch(() => undefined);
  }

  /** Where an instance finds the model and the handler of a function on the disk. */
  pathsOf(manifest: FunctionManifest): { readonly modelPath: string; readonly handlerPath: string | undefined } {
    const revisionFolder = join(this.#folder, manifest.revision);
    const handler = manifest.handler && filesOf(manifest).at(-1);
    return {
      modelPath: join(revisionFolder, manifest.files[0].name),
      handlerPath: handler && join(revisionFolder, handler.name),
    };
  }

  /**
   * Fetches a function's files. A file that another function has already becomes a second link to it.
   *
   * @throws what `fetch` throws; the files that had arrived are removed
   */
  async add(manifest: FunctionManifest, files: readonly ManifestFile[], fetch: FetchFile): Promise<void> {
    const revisionFolder = join(this.#folder, manifest.revision);
    const staging = join(this.#folder, `.${manifest.revision}.part`);
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging);
    try {
      const pathByHash = this.#pathByHash();
      const get = async (file: ManifestFile): Promise<void> => {
        const path = join(staging, file.name);
        if (!(await linked(pathByHash.get(file.sha256), path))) await fetch(file, path);
      };
      await inParallel(files, get, filesAtOnce);
      // A mark without its folder is removed by the next start; a folder without one would be in the way of the next try.
      await writeFile(this.#markOf(manifest.revision), JSON.stringify(manifest));
      await rename(staging, revisionFolder);
    } catch (error) {
      await rm(staging, { recursive: true, force: true });
      throw error;
    }
    this.#revisions.set(manifest.revision, { manifest, files, usedMs: performance.now() });
  }

  /** The path of each file on the disk, by the sha256 of its content. */
  #pathByHash(): ReadonlyMap<string, string> {
    const found = new Map<string, string>();
    for (const { manifest, files } of this.#revisions.values()) {
      for (const { name, sha256 } of files) found.set(sha256, join(this.#folder, manifest.revision, name));
    }
    return found;
  }

  /**
   * Removes a function and its files.
   *
   * @param onGone awaited while the files are still there, but the function counts as missing
   */
  async drop({ revision }: FunctionManifest, onGone: () => Promise<void>): Promise<void> {
    this.#revisions.delete(revision);
    await onGone();
    await this.#remove(revision);
  }

  #markOf(revision: string): string {
    return join(this.#folder, revision + mark);
  }

  async #remove(name: string): Promise<void> {
    for (const path of [this.#markOf(name), join(this.#folder, name)]) await rm(path, { recursive: true, force: true });
  }
}

/** Links the file at `from` to `path`, if there is one; false: the caller must fetch it. */
async function linked(from: string | undefined, path: string): Promise<boolean> {
  if (from === undefined) return false;
  await mkdir(dirname(path), { recursive: true });
  return await link(from, path).then(
    () => true,
    () => false, // The file system has no links.
  );
}

/** The files that an earlier worker left of a function; none if its list of chunks cannot be read. */
async function filesIn(revisionFolder: string, manifest: FunctionManifest): Promise<readonly ManifestFile[]> {
  if (manifest.chunks === undefined) return filesOf(manifest);
  try {
    return chunkFilesOf(manifest, await readFile(join(revisionFolder, manifestFile), 'utf8'));
  } catch {
    return [];
  }
}

/** Whether every file is there in its full size. */
async function isWhole(revisionFolder: string, files: readonly ManifestFile[]): Promise<boolean> {
  for (const { name, bytes } of files) {
    const found = await stat(join(revisionFolder, name)).catch(() => undefined);
    if (found?.size !== bytes) return false;
  }
  return true;
}
