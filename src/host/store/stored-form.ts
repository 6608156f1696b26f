/**
 * The form in which an upload is stored: its files, or its model in chunks (src/store/chunks.ts). The validator cuts
 * the model and opens it in chunks, so what is published has been opened as it will be served.
 */
import { createHash } from 'node:crypto';
import { rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { chunkFile, manifestFile, manifestText, type WantedContent } from '../../store/index.ts';
import { given, inParallel } from '../../tools/index.ts';
import type { Publisher } from '../types.ts';
import type { BlobStore } from './blobs.ts';
import type { Catalogue } from './catalogue.ts';
import type { DataFolder } from './data-folder.ts';
import { discardTree, onDisk, syncFile, syncFolder } from './disk.ts';
import { HostError } from '../errors.ts';
import type { Integrity } from './integrity.ts';
import { handlerFile, uploadedModel } from './names.ts';
import type { SplitModel } from './split-model.ts';
import { sameFiles } from './uploaded-files.ts';
import type { ValidatedModel, Validations } from './validation.ts';
import { modelFiles, storedFiles, type StoredFile, type VersionRecord } from './version-record.ts';

/** A smaller model is one file: cutting and opening it in chunks takes more than it shares. */
const splitBytesMin = 4 * 1024 * 1024;

export interface StoredForm extends AsyncDisposable {
  readonly folder: string;
  readonly stored: readonly StoredFile[];
  /** Of these in its folder, those that are not on the disk yet. */
  readonly fresh: readonly StoredFile[];
  readonly chunks: WantedContent | undefined;
  readonly validated: ValidatedModel;
  /** Versions (`name@version`) whose damaged files were replaced. */
  readonly healed: readonly string[];
}

export interface StoredFormsOptions {
  readonly catalogue: Pick<Catalogue, 'uploads'>;
  readonly data: DataFolder;
  readonly blobs: BlobStore;
  readonly validations: Validations;
  readonly integrity: Integrity;
}

export class StoredForms {
  readonly #options: StoredFormsOptions;

  constructor(options: StoredFormsOptions) {
    this.#options = options;
  }

  /** @param folder of the upload, which it keeps @throws HostError 'model-refused' and those of {@link Validations} */
  async make(folder: string, files: readonly StoredFile[], publisher: Publisher | undefined): Promise<StoredForm> {
    const { validations, data } = this.#options;
    const [model] = files;
    const bytes = modelFiles({ files }).reduce((sum, each) => sum + each.bytes, 0);
    const modelPath = join(folder, uploadedModel);
    const sha256 = model?.sha256 ?? '';
    const whole = (validated: ValidatedModel): StoredForm => ({
      folder,
      stored: files,
      fresh: files,
      chunks: undefined,
      validated,
      healed: [],
      [Symbol.asyncDispose]: async () => undefined,
    });
    if (bytes < splitBytesMin) return whole(await validations.check(modelPath, sha256, publisher));
    const own = data.stagingPath();
    try {
      const form = (await this.#ofTwin(own, files)) ?? (await this.#split(own, folder, files, publisher));
      if ('whole' in form) return whole(form.whole);
      const handler = files.find(({ name }) => name === handlerFile);
      if (handler !== undefined) await rename(join(folder, handlerFile), join(own, handlerFile));
      return { ...form, folder: own, [Symbol.asyncDispose]: async () => await discardTree(own) };
    } catch (error) {
      await discardTree(own);
      throw error;
    }
  }

  /** The same model is published already, in chunks that are here. */
  async #ofTwin(own: string, files: readonly StoredFile[]): Promise<Form | undefined> {
    const { blobs } = this.#options;
    const record = this.#twinOf(modelFiles({ files }));
    if (record === undefined) return undefined;
    try {
      await blobs.takeOutAll({ files: modelFiles(record), ...given({ chunks: record.chunks }) }, own);
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      await discardTree(own);
      return undefined;
    }
    const externalFiles = modelFiles(record).flatMap(({ name }) => (name === uploadedModel ? [] : [name]));
    const stored = await blobs.storedFiles({ files, ...given({ chunks: record.chunks }) });
    const fresh = stored.filter(({ name }) => name === handlerFile);
    return {
      stored,
      fresh,
      chunks: record.chunks,
      validated: { metadata: record.metadata, externalFiles },
      healed: [],
    };
  }

  #twinOf(files: readonly StoredFile[]): VersionRecord | undefined {
    for (const versions of this.#options.catalogue.uploads.values()) {
      for (const loaded of versions.values()) {
        if (loaded.status !== 'whole' || loaded.record.chunks === undefined) continue;
        if (sameFiles(modelFiles(loaded.record), files)) return loaded.record;
      }
    }
    return undefined;
  }

  async #split(
    own: string,
    folder: string,
    files: readonly StoredFile[],
    publisher: Publisher | undefined,
  ): Promise<Form | { readonly whole: ValidatedModel }> {
    const { validations, blobs, integrity, data } = this.#options;
    const check = async (contents: string): Promise<ValidatedModel> =>
      await validations.check(join(folder, uploadedModel), files[0]?.sha256 ?? '', publisher, {
        folder: own,
        contents,
      });
    let validated = await check(blobs.folder);
    // All are written anew, from the upload.
    if (await this.#hasDamaged(validated.split)) validated = await check(data.stagingPath());
    if (validated.split === undefined) return { whole: validated };
    const { contents } = validated.split;
    const text = manifestText(contents);
    await onDisk(async () => await writeFile(join(own, manifestFile), text));
    const chunks = { sha256: createHash('sha256').update(text).digest('hex'), bytes: Buffer.byteLength(text) };
    const stored = storedFiles({ files, chunks }, text);
    const linked = new Set(contents.flatMap(({ name, linked: stamp }) => (stamp === undefined ? [] : [name])));
    const fresh = stored.filter(({ name }) => !linked.has(name));
    const healed: string[] = [];
    for (const { name, sha256 } of fresh) {
      if (blobs.has(sha256)) healed.push(...(await integrity.heal(sha256, join(own, name))));
    }
    return { stored, fresh, chunks, validated, healed };
  }

  /** Whether content was linked whose bytes have another hash. */
  async #hasDamaged({ contents }: SplitModel = { contents: [], externalFiles: [] }): Promise<boolean> {
    const { blobs } = this.#options;
    let isDamaged = false;
    await inParallel(contents, async ({ sha256, linked }) => {
      if (linked === undefined || blobs.isKnown(linked, sha256)) return;
      const path = blobs.pathOf(sha256);
      if (path !== undefined && !(await blobs.isSound(path, sha256))) isDamaged = true;
    });
    return isDamaged;
  }
}

type Form = Pick<StoredForm, 'stored' | 'fresh' | 'chunks' | 'validated' | 'healed'>;

/** Waits until the files of a form are on the disk, and the names of its chunks. */
export async function flushForm({ folder, fresh, chunks }: StoredForm): Promise<void> {
  await inParallel(fresh, async ({ name }) => await syncFile(join(folder, name)));
  if (chunks !== undefined) await inParallel([folder, dirname(join(folder, chunkFile(0)))], syncFolder);
}
