/** What a host found out about models and machines, on disk: a restart does not find it out again. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonAs, writeWhole } from '../../tools/index.ts';
import type { FunctionVersion } from '../types.ts';

/** Reads a note. Undefined if its file is absent, damaged or of an older form: the host finds the fact out again. */
export async function readNote<Found>(
  path: string,
  read: (json: Readonly<Record<string, unknown>>) => Found | undefined,
): Promise<Found | undefined> {
  return jsonAs(await readFile(path, 'utf8').catch(() => undefined), read);
}

/** Writes a note with line breaks, since people read notes too. */
export const writeNote = (path: string, content: object): Promise<void> =>
  writeWhole(path, `${JSON.stringify(content, null, 1)}\n`);

export type Model = Pick<FunctionVersion, 'key' | 'modelSha256' | 'modelBytes' | 'externalDataStamp'>;

/** What one engine showed about models, each in a file that is named by all that it depends on. */
export class ModelNotes {
  readonly #folder: string;
  readonly #engine: string;

  /** @param engine names the GPUs, the driver, the compiler and the engine: what others showed counts for nothing here */
  constructor(folder: string, engine: string) {
    this.#folder = folder;
    this.#engine = engine;
  }

  find<Found>(
    model: Model,
    about: readonly unknown[],
    read: Parameters<typeof readNote<Found>>[1],
  ): Promise<Found | undefined> {
    return readNote(this.#path(model, about), read);
  }

  async keep(model: Model, about: readonly unknown[], content: object): Promise<void> {
    await writeNote(this.#path(model, about), { ...content, firstFor: model.key, engine: this.#engine });
  }

  #path({ modelSha256, modelBytes, externalDataStamp }: Model, about: readonly unknown[]): string {
    const identity = JSON.stringify([this.#engine, modelSha256, modelBytes, externalDataStamp, ...about]);
    return join(this.#folder, `${createHash('sha256').update(identity).digest('hex').slice(0, 32)}.json`);
  }
}
