/**
 * A host's copy of the registry: in memory, and on its disk as one file per function, so that it can start without
 * Redis.
 */
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A function's entry in Redis and on each host. */
export interface Entry {
  readonly revision: number;
  /** Tags of the latest revisions before it, the newest first. */
  readonly ancestors: readonly string[];
  /** null: the function was removed. */
  readonly body: unknown;
}

/** Files that are read at once. */
const readAtOnce = 32;

export class RegistryCopy {
  readonly #folder: string;
  readonly #entries = new Map<string, Entry>();
  /** By function: the write of its latest entry. */
  readonly #writing = new Map<string, Promise<void>>();

  constructor(folder: string) {
    this.#folder = folder;
  }

  async start(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    const files = (await readdir(this.#folder)).filter((file) => file.endsWith('.json'));
    for (let at = 0; at < files.length; at += readAtOnce) {
      await Promise.all(files.slice(at, at + readAtOnce).map((file) => this.#read(file)));
    }
  }

  get(name: string): Entry | undefined {
    return this.#entries.get(name);
  }

  names(): readonly string[] {
    return [...this.#entries.keys()];
  }

  /** Resolves when the entry is on disk; an entry that was replaced meanwhile is not written. */
  async set(name: string, entry: Entry): Promise<void> {
    this.#entries.set(name, entry);
    const before = this.#writing.get(name);
    const writing = (async () => {
      await before?.catch(() => undefined);
      if (this.#entries.get(name) !== entry) return;
      const path = join(this.#folder, `${name}.json`);
      await writeFile(`${path}.new`, JSON.stringify(entry));
      await rename(`${path}.new`, path);
    })();
    this.#writing.set(name, writing);
    try {
      await writing;
    } finally {
      if (this.#writing.get(name) === writing) this.#writing.delete(name);
    }
  }

  async #read(file: string): Promise<void> {
    try {
      const entry = JSON.parse(await readFile(join(this.#folder, file), 'utf8')) as Entry;
      if (Number.isSafeInteger(entry.revision)) this.#entries.set(file.slice(0, -'.json'.length), entry);
    } catch {
      // Damaged by a crash of the machine: Redis has it.
    }
  }
}
