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
import type { FetchFile } from '../store/index.ts';
import { filesOf, parseManifest, type FunctionManifest } from './manifest.ts';

const wholeFile = '.whole';
/** A use within this time after another is not noted. */
const usedAgainMs = 1000;

interface Held {
  readonly manifest: FunctionManifest;
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
      if (manifest?.revision === name && (await isWhole(place, manifest))) {
        this.#held.set(name, { manifest, usedMs: (await stat(join(place, wholeFile))).mtimeMs });
      } else await rm(place, { recursive: true, force: true });
    }
  }

  has(revision: string): boolean {
    return this.#held.has(revision);
  }

  held(): readonly FunctionManifest[] {
    return Array.from(this.#held.values(), ({ manifest }) => manifest);
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
  async hold(manifest: FunctionManifest, fetch: FetchFile): Promise<void> {
    const place = join(this.#folder, manifest.revision);
    const staging = join(this.#folder, `.${manifest.revision}.part`);
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging);
    try {
      for (const file of filesOf(manifest)) {
        const path = join(staging, file.name);
        if (!(await this.#linked(file.sha256, path))) await fetch(file, path);
      }
      await writeFile(join(staging, wholeFile), JSON.stringify(manifest));
      await rename(staging, place);
    } catch (error) {
      await rm(staging, { recursive: true, force: true });
      throw error;
    }
    this.#held.set(manifest.revision, { manifest, usedMs: Date.now() });
  }

  async #linked(sha256: string, path: string): Promise<boolean> {
    for (const { manifest } of this.#held.values()) {
      const same = filesOf(manifest).find((file) => file.sha256 === sha256);
      if (same === undefined) continue;
      await mkdir(dirname(path), { recursive: true });
      return await link(join(this.#folder, manifest.revision, same.name), path).then(
        () => true,
        () => false, // A disk without links.
      );
    }
    return false;
  }

  /** @param onGone awaited before its files are removed: from then on it counts as missing */
  async drop({ revision }: FunctionManifest, onGone: () => Promise<void>): Promise<void> {
    this.#held.delete(revision);
    await onGone();
    await rm(join(this.#folder, revision), { recursive: true, force: true });
  }
}

async function isWhole(place: string, manifest: FunctionManifest): Promise<boolean> {
  for (const { name, bytes } of filesOf(manifest)) {
    const found = await stat(join(place, name)).catch(() => undefined);
    if (found?.size !== bytes) return false;
  }
  return true;
}
