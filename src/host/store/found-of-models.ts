/** What a check has found out about models, in one small file each, so that a restart need not find it out again. */
import { join } from 'node:path';
import { jsonAs, namesInFolder, readTextIfThere, unlinkIfThere } from '../../tools/index.ts';
import { replaceFile } from './disk.ts';
import { isSha256 } from './names.ts';

/** Under the sha256 of the model's file. */
export class FoundOfModels<Found extends object> {
  readonly #folder: string;
  readonly #checkedBy: string;

  /** @param checkedBy names the checker: what another one has found counts for nothing here */
  constructor(folder: string, checkedBy: string) {
    this.#folder = folder;
    this.#checkedBy = checkedBy;
  }

  /**
   * Undefined also for a file that is damaged, or not one of ours: the next check replaces it. @param read throws where
   * members are missing
   */
  protected async kept<Read>(modelSha256: string, read: (found: Found) => Read): Promise<Read | undefined> {
    const text = await readTextIfThere(this.#path(modelSha256)).catch(() => undefined);
    return jsonAs(text, (json: Found & { readonly checkedBy: string }) =>
      json.checkedBy === this.#checkedBy ? read(json) : undefined,
    );
  }

  protected async all(): Promise<readonly Found[]> {
    const files = await namesInFolder(this.#folder);
    const found = await Promise.all(files.map(async (file) => await this.kept(modelOf(file), (each) => each)));
    return found.flatMap((each) => each ?? []);
  }

  /** Without the file, as on a full disk, the next start checks again. */
  protected async keep(modelSha256: string, found: Found): Promise<void> {
    const text = JSON.stringify({ checkedBy: this.#checkedBy, ...found });
    await replaceFile(this.#path(modelSha256), `${text}\n`).catch(() => undefined);
  }

  /** For a model that no function has any more. */
  async forget(modelSha256: string): Promise<void> {
    await unlinkIfThere(this.#path(modelSha256));
  }

  /** Forgets every model that is not in `known`. */
  async keepOnly(known: ReadonlySet<string>): Promise<void> {
    for (const file of await namesInFolder(this.#folder)) {
      const sha256 = modelOf(file);
      if (!isSha256(sha256) || !known.has(sha256)) await unlinkIfThere(join(this.#folder, file));
    }
  }

  #path(modelSha256: string): string {
    return join(this.#folder, `${modelSha256}.json`);
  }
}

const modelOf = (file: string): string => file.replace(/\.json$/, '');
