/**
 * A host's copy of the registry: in memory, and on its disk as one file per function, so that it can start without
 * Redis.
 */
import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonAs, KeyedMutex, writeWhole } from '../tools/index.ts';

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
  /** By function. */
  readonly #writing = new KeyedMutex();

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
    await this.#writing.run(name, async () => {
      if (this.#entries.get(name) !== entry) return;
      await writeWhole(join(this.#folder, `${name}.json`), JSON.stringify(entry));
    });
  }

  async #read(file: string): Promise<void> {
    const text = await readFile(join(this.#folder, file), 'utf8').catch(() => undefined);
    const entry = jsonAs(text, (value: Entry) => (Number.isSafeInteger(value.revision) ? value : undefined));
    // Undefined: damaged by a crash of the machine, and Redis has it.
    if (entry !== undefined) this.#entries.set(file.slice(0, -'.json'.length), entry);
  }
}
