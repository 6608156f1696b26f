/** What a host has last read of a store on another machine, one file for each function, so that it can start without. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { decodeName, encodeName, type StoredEntry } from '../../store/index.ts';
import { inParallel, jsonAs, KeyedMutex, namesInFolder, readTextIfThere, writeWhole } from '../../tools/index.ts';

/** Entries that are read at once at start. */
export const readAtOnce = 32;

export class EntryCopies {
  readonly #folder: string;
  readonly #entries = new Map<string, StoredEntry>();
  /** By function. */
  readonly #writing = new KeyedMutex();

  constructor(folder: string) {
    this.#folder = folder;
  }

  async load(): Promise<ReadonlyMap<string, StoredEntry>> {
    await mkdir(this.#folder, { recursive: true });
    const names = (await namesInFolder(this.#folder)).flatMap((file) => decodeName(file.replace(/\.json$/, '')) ?? []);
    await inParallel(names, async (name) => await this.#read(name), readAtOnce);
    return this.#entries;
  }

  /** Resolves when it is on the disk; an entry that was replaced meanwhile is not written. */
  async keep(name: string, entry: StoredEntry): Promise<void> {
    this.#entries.set(name, entry);
    await this.#writing.run(name, async () => {
      if (this.#entries.get(name) === entry) await writeWhole(this.#path(name), JSON.stringify(entry));
    });
  }

  async #read(name: string): Promise<void> {
    const entry = jsonAs(await readTextIfThere(this.#path(name)), (value: StoredEntry) =>
      value.envelope.name === name && typeof value.tag === 'string' ? value : undefined,
    );
    // Undefined: damaged by a crash of the machine, and the store has it.
    if (entry !== undefined) this.#entries.set(name, entry);
  }

  #path(name: string): string {
    return join(this.#folder, `${encodeName(name)}.json`);
  }
}
