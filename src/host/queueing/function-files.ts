/** What workers are told of the functions here; the files that these need are in the store then. */
import { readFile, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { externalFiles, readModel } from '../../onnx/index.ts';
import type { ChangeWriterOptions } from '../../fleet/index.ts';
import { sealManifest, type FunctionManifest, type ManifestFile } from '../../queue/index.ts';
import { boundToThisMachine } from '../store/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { rowsJoinedMax } from '../rollout/versions.ts';
import { given, hashFile } from '../../tools/index.ts';

/** What could not be put is tried again after this. */
const retryMs = 5000;
/** No entry names these files, so they are put again before they look like leftovers, which they do after a day. */
const putAgainMs = 6 * 60 * 60 * 1000;

export interface FunctionFilesOptions {
  readonly registry: Registry;
  /** Puts a file into the store that no entry names. */
  readonly store: { put(file: ManifestFile, path: string): Promise<void> };
  readonly logger: Logger;
}

/**
 * The manifests of all versions that are ready; a version appears once its files are in the store, which happens in the
 * background. Only those of published models are there by themselves.
 */
export class FunctionFiles {
  readonly #options: FunctionFilesOptions;
  readonly #manifests = new Map<string, FunctionManifest>();
  /** Said to be so already. */
  readonly #failed = new WeakSet<FunctionVersion>();
  #list: readonly FunctionManifest[] | undefined;
  #work: Promise<void> = Promise.resolve();

  constructor(options: FunctionFilesOptions) {
    this.#options = options;
    setInterval(() => this.#putAgain(), putAgainMs).unref();
    options.registry.onChange(({ before, after }) => {
      const key = after?.key ?? before?.key;
      if (key === undefined) return;
      if (this.#manifests.delete(key)) this.#list = undefined;
      if (after?.state.status === 'ready') this.#begin(after);
    });
  }

  manifestOf(key: string): FunctionManifest | undefined {
    return this.#manifests.get(key);
  }

  /** The same array until something changes. */
  manifests(): readonly FunctionManifest[] {
    return (this.#list ??= [...this.#manifests.values()]);
  }

  /** For workers, as this host tells it to the other members. */
  get announced(): ChangeWriterOptions<unknown> {
    let known: readonly FunctionManifest[] | undefined;
    return {
      current: (all, announced) => {
        const now = this.manifests();
        if (now === known && !all) return [];
        known = now;
        const revisions = new Set(now.map(({ revision }) => revision));
        const gone = [...announced.keys()].filter((revision) => !revisions.has(revision));
        return [
          ...gone.map((revision) => [revision, null] as const),
          ...now.map((each) => [each.revision, each] as const),
        ];
      },
      isNews: (before, now) => before !== now,
    };
  }

  #begin(version: FunctionVersion): void {
    this.#work = this.#work.then(() => this.#take(version));
  }

  #putAgain(): void {
    for (const key of this.#manifests.keys()) {
      const at = key.lastIndexOf('@');
      const version = this.#options.registry.find(key.slice(0, at), key.slice(at + 1));
      if (version !== undefined) this.#begin(version);
    }
  }

  async #take(version: FunctionVersion): Promise<void> {
    const { registry, store, logger } = this.#options;
    const stillThere = (): boolean => registry.find(version.name, version.version) === version;
    if (!stillThere()) return;
    try {
      const described = await describe(version);
      if ('reason' in described) {
        logger.info({ function: version.key, reason: described.reason }, 'workers cannot run a function');
        return;
      }
      for (const [file, path] of described.paths) await store.put(file, path);
      if (!stillThere()) return;
      this.#manifests.set(version.key, described.manifest);
      this.#list = undefined;
      this.#failed.delete(version);
    } catch (error) {
      if (!this.#failed.has(version)) {
        logger.warn({ err: error, function: version.key }, 'workers cannot be told of a function');
      }
      this.#failed.add(version);
      setTimeout(() => this.#begin(version), retryMs).unref();
    }
  }
}

type Described =
  | { readonly manifest: FunctionManifest; readonly paths: ReadonlyMap<ManifestFile, string> }
  | { readonly reason: string };

async function describe({
  key,
  modelPath,
  modelSha256,
  modelBytes,
  chunks,
  handlerPath,
  settings,
  metadata,
  rows,
  source,
}: FunctionVersion): Promise<Described> {
  const paths = new Map<ManifestFile, string>();
  const size = chunks === undefined ? (await stat(modelPath)).size : modelBytes;
  const model: ManifestFile = { name: basename(modelPath), sha256: modelSha256, bytes: size };
  if (source === 'folder') paths.set(model, modelPath);
  const files: [ManifestFile, ...ManifestFile[]] = [model];
  // The version counts its external data too; without any, a model of gigabytes need not be read to look for it.
  if (modelBytes > size) {
    for (const name of externalFiles(await readModel(modelPath))) {
      const path = join(dirname(modelPath), name);
      const { sha256, bytes } = await hashFile(path);
      const file = { name, sha256, bytes };
      files.push(file);
      if (source === 'folder') paths.set(file, path);
    }
  }
  let handler: ManifestFile | undefined;
  if (handlerPath !== undefined) {
    const reason = boundToThisMachine(await readFile(handlerPath, 'utf8'));
    if (reason !== undefined) return { reason };
    handler = { name: basename(handlerPath), ...(await hashFile(handlerPath)) };
    paths.set(handler, handlerPath);
  }
  const { threads } = settings.cpu;
  const isolation = settings.isolation === 'own' ? settings.isolation : undefined;
  const manifest = sealManifest({
    key,
    files,
    ...given({ chunks, handler, threads, opening: metadata?.opening, runBytes: metadata?.runBytes, isolation }),
    limits: {
      batchMax: rowsJoinedMax({ settings, rows }),
      batchDelayMs: settings.batching.delayMs,
      handlerTimeoutMs: settings.timeouts.handlerMs,
      loadTimeoutMs: settings.timeouts.loadMs,
      inferTimeoutMs: settings.timeouts.inferMs,
    },
  });
  return { manifest, paths };
}
