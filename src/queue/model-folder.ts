/**
 * A worker's models on its disk.
 *
 *     <folder>/<revision>/<file>   a function's files under the names by which its model knows them
 *     <folder>/<revision>/.whole   all of them have arrived; the text is the manifest
 *
 * A revision is the hash over its files' hashes, so that a folder's content never changes.
 */
import { link, mkdir, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { manifestFile, type FetchFile } from '../store/index.ts';
import { inParallel } from '../tools/index.ts';
import { chunkFilesOf, filesOf, parseManifest, type FunctionManifest, type ManifestFile } from './manifest.ts';

const wholeFile = '.whole';
/** Files of a function that are fetched at once. */
const filesAtOnce = 4;
/** A use within this time after another is not noted. */
const usedAgainMs = 1000;

interface Held {
  readonly manifest: FunctionManifest;
  /** What lies in its folder. */
  readonly files: readonly ManifestFile[];
  /** Date.now() of the latest use. */
  usedMs: number;
}

export class ModelFolder {
  readonly #folder: string;
  readonly #held = new Map<string, Held>();

  constructor(folder: string) {
    this.#folder = resolve(folder);
  }

  /** Reads what an earlier worker left, and removes incomplete files. */
  async start(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    for (const name of await readdir(this.#folder)) {
      const place = join(this.#folder, name);
      const manifest = await readFile(join(place, wholeFile), 'utf8').then(parseManifest, () => undefined);
      const files = manifest?.revision === name ? await filesIn(place, manifest) : [];
      if (manifest !== undefined && files.length > 0 && (await isWhole(place, files))) {
        this.#held.set(name, { manifest, files, usedMs: (await stat(join(place, wholeFile))).mtimeMs });
      } else await rm(place, { recursive: true, force: true });
    }
  }

  has(revision: string): boolean {
    return this.#held.has(revision);
  }

  held(): readonly FunctionManifest[] {
    return Array.from(this.#held.values(), ({ manifest }) => manifest);
  }

  /** The files of a function; undefined: it is not here. */
  filesOf(revision: string): readonly ManifestFile[] | undefined {
    return this.#held.get(revision)?.files;
  }

  /** Since its latest use, in this worker or in an earlier one. */
  idleMs(revision: string): number {
    return Date.now() - (this.#held.get(revision)?.usedMs ?? -Infinity);
  }

  /** A call uses a function that is here. */
  use(revision: string): void {
    const held = this.#held.get(revision);
    const now = new Date();
    if (held === undefined || now.getTime() - held.usedMs < usedAgainMs) return;
    held.usedMs = now.getTime();
    // Keeps the order over a restart; a failure here loses only that.
    utimes(join(this.#folder, revision, wholeFile), now, now).catch(() => undefined);
  }

  /** The paths of a function that is here. */
  open(manifest: FunctionManifest): { readonly modelPath: string; readonly handlerPath: string | undefined } {
    const place = join(this.#folder, manifest.revision);
    const handler = manifest.handler && filesOf(manifest).at(-1);
    return { modelPath: join(place, manifest.files[0].name), handlerPath: handler && join(place, handler.name) };
  }

  /** Brings a function's files here. A file that another function has here is the same file on the disk. */
  async hold(manifest: FunctionManifest, files: readonly ManifestFile[], fetch: FetchFile): Promise<void> {
    const place = join(this.#folder, manifest.revision);
    const staging = join(this.#folder, `.${manifest.revision}.part`);
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging);
    try {
      const before = this.#places();
      const get = async (file: ManifestFile): Promise<void> => {
        const path = join(staging, file.name);
        if (!(await linked(before.get(file.sha256), path))) await fetch(file, path);
      };
      await inParallel(files, get, filesAtOnce);
      await writeFile(join(staging, wholeFile), JSON.stringify(manifest));
      await rename(staging, place);
    } catch (error) {
      await rm(staging, { recursive: true, force: true });
      throw error;
    }
    this.#held.set(manifest.revision, { manifest, files, usedMs: Date.now() });
  }

  /** Where each file is that is here, by its hash. */
  #places(): ReadonlyMap<string, string> {
    const found = new Map<string, string>();
    for (const { manifest, files } of this.#held.values()) {
      for (const { name, sha256 } of files) found.set(sha256, join(this.#folder, manifest.revision, name));
    }
    return found;
  }

  /** @param onGone awaited before its files are removed: from then on it counts as missing */
  async drop({ revision }: FunctionManifest, onGone: () => Promise<void>): Promise<void> {
    this.#held.delete(revision);
    await onGone();
    await rm(join(this.#folder, revision), { recursive: true, force: true });
  }
}

/** Whether there was such a file, which then is at `path` too. */
async function linked(from: string | undefined, path: string): Promise<boolean> {
  if (from === undefined) return false;
  await mkdir(dirname(path), { recursive: true });
  return await link(from, path).then(
    () => true,
    () => false, // A disk without links.
  );
}

/** What an earlier worker has left of a function; none if that is not known. */
async function filesIn(place: string, manifest: FunctionManifest): Promise<readonly ManifestFile[]> {
  if (manifest.chunks === undefined) return filesOf(manifest);
  try {
    return chunkFilesOf(manifest, await readFile(join(place, manifestFile), 'utf8'));
  } catch {
    return [];
  }
}

async function isWhole(place: string, files: readonly ManifestFile[]): Promise<boolean> {
  for (const { name, bytes } of files) {
    const found = await stat(join(place, name)).catch(() => undefined);
    if (found?.size !== bytes) return false;
  }
  return true;
}
