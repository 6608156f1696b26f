/** Publishes uploads: checks an upload, and makes it a version by one write of the function's entry. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { HostError } from '../errors.ts';
import { nowhere } from '../calls/out-of-service.ts';
import type { FunctionVersion, Publisher } from '../types.ts';
import type { Catalogue } from './catalogue.ts';
import { StoreAway } from '../../store/index.ts';
import { inParallel } from '../../tools/index.ts';
import { storeUnavailable, type Changes } from './changes.ts';
import { diskError, onDisk } from './disk.ts';
import { trafficOf, withVersion } from './entries.ts';
import type { Integrity } from './integrity.ts';
import { nextVersion, uploadedModel } from './names.ts';
import type { Originals } from './originals.ts';
import { StagedPublication, type Published, type StagedUpload } from './publication.ts';
import { inheritSettings, parseUploadSettings, resolveSettings, type GivenSettings } from './settings.ts';
import { flushForm, StoredForms, type StoredForm } from './stored-form.ts';
import type { ModelStoreOptions } from './types.ts';
import { checkExternalFiles, isOnlyFile, sameFiles, sameSettings } from './uploaded-files.ts';
import type { StoreParts, VersionFiles } from './version-files.ts';
import { modelFiles, type StoredFile, type VersionRecord } from './version-record.ts';

export interface PublishingOptions
  extends StoreParts, Pick<ModelStoreOptions, 'defaults' | 'limits' | 'logger' | 'whyNowhere' | 'shared'> {
  readonly changes: Changes;
  readonly integrity: Integrity;
  readonly originals: Originals;
  readonly versionFiles: VersionFiles;
}

export class Publishing {
  readonly #options: PublishingOptions;
  readonly #catalogue: Catalogue;
  readonly #forms: StoredForms;
  /** `name@version` of uploads under way with an explicit version. */
  readonly #underWay = new Set<string>();
  /** The highest sequence of a published version. */
  #sequence = 0;

  constructor(options: PublishingOptions) {
    this.#options = options;
    this.#forms = new StoredForms(options);
    this.#catalogue = options.catalogue;
  }

  /** Later publications count from here on. */
  countFrom(sequence: number): void {
    this.#sequence = Math.max(this.#sequence, sequence);
  }

  /** @throws HostError 'bad-name', 'folder-function' or 'publish-in-progress' */
  async begin(name: string, version: string | undefined, publisher?: Publisher): Promise<StagedPublication> {
    const { data, blobs, limits, originals } = this.#options;
    if (version !== undefined) this.#reserve(name, version);
    const folder = data.stagingPath();
    const release = (): void => {
      if (version !== undefined) this.#underWay.delete(`${name}@${version}`);
    };
    try {
      await mkdir(folder);
    } catch (error) {
      release();
      throw diskError(error);
    }
    return new StagedPublication({
      name,
      version,
      folder,
      publisher,
      bytesMax: limits.uploadBytesMax,
      blobs,
      originals,
      publish: async (staged, settings) => await this.#publish(staged, settings),
      onEnd: release,
    });
  }

  /** @throws HostError 'folder-function' or 'publish-in-progress' */
  #reserve(name: string, version: string): void {
    this.#catalogue.mustNotBeShipped(name, version);
    const key = `${name}@${version}`;
    if (this.#underWay.has(key)) {
      throw new HostError(
        'publish-in-progress',
        `another upload of function '${name}' version '${version}' is under way`,
      );
    }
    this.#underWay.add(key);
  }

  async #publish(staged: StagedUpload, rawSettings: unknown): Promise<Published> {
    const model = staged.files.find(({ name }) => name === uploadedModel);
    if (model === undefined) throw new HostError('bad-request', `the upload brings no file '${uploadedModel}'`);
    const { version: said, ...settings } = parseUploadSettings(rawSettings, model.sha256);
    if (staged.version !== undefined && said !== undefined && said !== staged.version) {
      throw new HostError(
        'bad-settings',
        `setting 'version' is '${said}', but the upload was begun for version '${staged.version}'`,
      );
    }
    const files = [model, ...staged.files.filter((file) => file !== model)];
    if (staged.version !== undefined || said === undefined) {
      return await this.#publishChecked(staged, staged.version, settings, files);
    }
    this.#reserve(staged.name, said);
    try {
      return await this.#publishChecked(staged, said, settings, files);
    } finally {
      this.#underWay.delete(`${staged.name}@${said}`);
    }
  }

  async #publishChecked(
    { name, folder, publisher, holdBack }: StagedUpload,
    wanted: string | undefined,
    given: GivenSettings,
    files: readonly StoredFile[],
  ): Promise<Published> {
    const [model] = files;
    const settings = inheritSettings(given, this.#catalogue.settingsBefore(name, wanted));
    const healed = new Set<string>();
    for (const file of files) {
      for (const key of await this.#options.integrity.heal(file.sha256, join(folder, file.name))) healed.add(key);
    }
    const known = this.#published(name, wanted, settings, files);
    if (known !== undefined) return { version: known, created: healed.has(known.key) };
    // Outside the lock: a validation may take long, and other versions of the function need not wait for it.
    await using form = await this.#forms.make(folder, files, publisher);
    const { validated, chunks } = form;
    const mended = form.healed.length === 0 ? undefined : this.#published(name, wanted, settings, files);
    if (mended !== undefined) return { version: mended, created: form.healed.includes(mended.key) };
    const ofModel = modelFiles({ files });
    checkExternalFiles(ofModel, validated.externalFiles);
    const modelBytes = ofModel.reduce((total, { bytes }) => total + bytes, 0);
    const refusal = this.#options.whyNowhere?.(name, modelBytes);
    if (refusal !== undefined) throw nowhere({ name }, refusal);
    await this.#options.rows.admit({
      key: `${name}@${wanted ?? 'next'}`,
      modelPath: join(form.folder, uploadedModel),
      modelSha256: model?.sha256 ?? '',
      modelBytes,
      metadata: validated.metadata,
      settings: resolveSettings(settings, this.#options.defaults, this.#catalogue.shipped.get(name)?.given),
    });
    await onDisk(async () => await flushForm(form));
    await this.#share(form);
    return await this.#options.changes.run(name, async () => {
      const knownNow = this.#published(name, wanted, settings, files);
      if (knownNow !== undefined) return { version: knownNow, created: false };
      const version = wanted ?? nextVersion(this.#versionsTaken(name));
      const record: VersionRecord = {
        format: 1,
        name,
        version,
        sequence: this.#sequence + 1,
        publishedAtMs: Date.now(),
        settings,
        files,
        ...(chunks && { chunks }),
        metadata: validated.metadata,
      };
      // Taken before the first await, so that publications of other functions cannot take the same number.
      this.#sequence = record.sequence;
      const entry = this.#catalogue.entries.get(name);
      const current = this.#catalogue.find(name);
      // In the same entry as the version, so that it serves nothing even if the host is killed in between.
      const traffic = holdBack && current?.state.status === 'ready' ? trafficOf(entry, current.version) : undefined;
      await onDisk(async () => {
        const { blobs, data } = this.#options;
        const fresh = new Set(form.fresh);
        await inParallel(form.stored, async (file) => {
          await blobs.takeIn(file.sha256, join(form.folder, file.name), !fresh.has(file));
        });
        await Promise.all([blobs.sync(), mkdir(data.functionFolder(name), { recursive: true })]);
      });
      await this.#options.changes.commit(name, withVersion(entry, record, traffic));
      await onDisk(() => this.#options.versionFiles.place(form.folder, record));
      this.#catalogue.uploadsOf(name).set(version, { status: 'whole', record, stored: form.stored });
      this.#catalogue.refresh(name);
      const published = this.#catalogue.find(name, version);
      if (published === undefined) throw new Error(`${name}@${version} was published, but is not in the registry`);
      this.#options.logger.info({ function: published.key, bytes: published.modelBytes }, 'published');
      return { version: published, created: true };
    });
  }

  /** A store on another machine has the files before its entry names them. @throws HostError 'store-unavailable' */
  async #share({ folder, stored }: StoredForm): Promise<void> {
    const { shared } = this.#options;
    if (shared === undefined) return;
    try {
      await inParallel(stored, async (file) => await shared.store.put(file, join(folder, file.name)));
    } catch (error) {
      throw error instanceof StoreAway ? storeUnavailable(error) : error;
    }
  }

  /**
   * The version that has these bytes and settings already: the wanted one, or by default the current one. Throws
   * HostError 'version-exists' if the wanted version differs.
   */
  #published(
    name: string,
    wanted: string | undefined,
    settings: GivenSettings,
    files: readonly StoredFile[],
  ): FunctionVersion | undefined {
    if (wanted !== undefined) this.#catalogue.mustNotBeShipped(name, wanted);
    const known = this.#catalogue.find(name, wanted);
    if (known === undefined) return undefined;
    const loaded = known.source === 'upload' ? this.#catalogue.uploads.get(name)?.get(known.version) : undefined;
    const isKnown = loaded?.status === 'whole' || loaded?.status === 'unverified' || loaded?.status === 'elsewhere';
    const record = isKnown ? loaded.record : undefined;
    if (known.source === 'upload' && record === undefined) return undefined;
    const same =
      sameSettings(
        known,
        resolveSettings(settings, this.#options.defaults, this.#catalogue.shipped.get(name)?.given),
      ) && (record !== undefined ? sameFiles(record.files, files) : isOnlyFile(known, files));
    if (same) return known;
    if (wanted === undefined) return undefined;
    throw new HostError(
      'version-exists',
      `version '${wanted}' of function '${name}' is published already, with another model or other settings`,
    );
  }

  *#versionsTaken(name: string): Iterable<string> {
    for (const { version } of this.#catalogue.versions(name)) yield version;
    yield* this.#catalogue.uploads.get(name)?.keys() ?? [];
    for (const key of this.#underWay) if (key.startsWith(`${name}@`)) yield key.slice(name.length + 1);
  }
}
