/** What workers are told of the functions here, and the files behind the hashes that they are told. */
import { readFile, stat } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { basename, dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { externalFiles, readModel } from '../../onnx/index.ts';
import { sealManifest, type FunctionManifest, type ManifestFile } from '../../queue/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { rowsJoinedMax } from '../rollout/versions.ts';
import { given, hashFile } from '../../tools/index.ts';

/**
 * The manifests of all versions that are ready; a version appears once its files have been hashed, in the background.
 */
export class FunctionFiles {
  readonly #registry: Registry;
  readonly #logger: Logger;
  readonly #manifests = new Map<string, FunctionManifest>();
  readonly #paths = new Map<string, string>();
  #list: readonly FunctionManifest[] | undefined;
  #work: Promise<void> = Promise.resolve();

  constructor(registry: Registry, logger: Logger) {
    this.#registry = registry;
    this.#logger = logger;
    registry.onChange(({ before, after }) => {
      const key = after?.key ?? before?.key;
      if (key === undefined) return;
      this.#forget(key);
      if (after?.state.status === 'ready') this.#work = this.#work.then(() => this.#take(after));
    });
  }

  manifestOf(key: string): FunctionManifest | undefined {
    return this.#manifests.get(key);
  }

  /** The same array until something changes. */
  manifests(): readonly FunctionManifest[] {
    return (this.#list ??= [...this.#manifests.values()]);
  }

  /** Where the file with this hash lies, if a function here has it. */
  pathOf(sha256: string): string | undefined {
    return this.#paths.get(sha256);
  }

  #forget(key: string): void {
    if (!this.#manifests.delete(key)) return;
    this.#list = undefined;
    const needed = new Set(this.manifests().flatMap((manifest) => filesOf(manifest).map(({ sha256 }) => sha256)));
    for (const sha256 of this.#paths.keys()) if (!needed.has(sha256)) this.#paths.delete(sha256);
  }

  async #take(version: FunctionVersion): Promise<void> {
    const stillThere = (): boolean => this.#registry.find(version.name, version.version) === version;
    if (!stillThere()) return;
    try {
      const described = await describe(version);
      if (!stillThere()) return;
      if ('reason' in described) {
        this.#logger.info({ function: version.key, reason: described.reason }, 'workers cannot run a function');
        return;
      }
      this.#manifests.set(version.key, described.manifest);
      this.#list = undefined;
      for (const [sha256, path] of described.paths) this.#paths.set(sha256, path);
    } catch (error) {
      this.#logger.warn({ err: error, function: version.key }, 'workers cannot be told of a function');
    }
  }
}

function filesOf({ files, handler }: FunctionManifest): readonly ManifestFile[] {
  return handler === undefined ? files : [...files, handler];
}

type Described =
  { readonly manifest: FunctionManifest; readonly paths: ReadonlyMap<string, string> } | { readonly reason: string };

async function describe({
  key,
  modelPath,
  modelSha256,
  modelBytes,
  handlerPath,
  settings,
  metadata,
  rows,
}: FunctionVersion): Promise<Described> {
  const paths = new Map([[modelSha256, modelPath]]);
  const { size } = await stat(modelPath);
  const model: ManifestFile = { name: basename(modelPath), sha256: modelSha256, bytes: size };
  const files: [ManifestFile, ...ManifestFile[]] = [model];
  // The version counts its external data too; without any, a model of gigabytes need not be read to look for it.
  if (modelBytes > size) {
    for (const name of externalFiles(await readModel(modelPath))) {
      const path = join(dirname(modelPath), name);
      const { sha256, bytes } = await hashFile(path);
      files.push({ name, sha256, bytes });
      paths.set(sha256, path);
    }
  }
  let handler: ManifestFile | undefined;
  if (handlerPath !== undefined) {
    const reason = boundToThisMachine(await readFile(handlerPath, 'utf8'));
    if (reason !== undefined) return { reason };
    handler = { name: basename(handlerPath), ...(await hashFile(handlerPath)) };
    paths.set(handler.sha256, handlerPath);
  }
  const { threads } = settings.cpu;
  const manifest = sealManifest({
    key,
    files,
    ...given({ handler, threads, opening: metadata?.opening }),
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

/**
 * Why a compiled handler does not run elsewhere: it reads files beside its source, or imports what is installed here.
 */
function boundToThisMachine(code: string): string | undefined {
  if (/__handlerModule(Url|Filename|Dirname)\s*=/.test(code)) return 'its handler looks for files beside itself';
  for (const [, name = ''] of code.matchAll(
    /^\s*(?:import|export)\s[^;'"]*from\s*["']([^"']+)["']|^\s*import\s*["']([^"']+)["']/gm,
  )) {
    if (name !== '' && !isBuiltin(name)) return `its handler imports the package '${name}'`;
  }
  return undefined;
}
