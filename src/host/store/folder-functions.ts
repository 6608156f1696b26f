/** Functions that ship as folders: `functionsDir/<name>/function.json`, its model and its handler. */
import { readFile, stat } from 'node:fs/promises';
import { dirname, isAbsolute, join, relative, resolve } from 'node:path';
import { hasCode, namesInFolder, readTextIfThere, type Log } from '../../tools/index.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import type { FunctionVersion, VersionState } from '../types.ts';
import { fileBytes } from './disk.ts';
import { compileHandler, type HandlerOutcome } from './handlers.ts';
import { HashedFiles } from './hashed-files.ts';
import { isFunctionName } from './names.ts';
import { readFolderSettings, resolveSettings, type GivenSettings } from './settings.ts';
import type { ValidatedModel, Validations } from './validation.ts';

/** A function's folder as last read. */
export interface FolderFunction {
  readonly given: GivenSettings;
  /** Uploads of the same name use the same handler. */
  readonly handler: HandlerOutcome;
  /** Its state is 'validating' until {@link FolderFunctions.validate} has run. */
  readonly version: FunctionVersion;
}

export interface FolderFunctionsOptions {
  readonly functionsDir: string;
  /** Where compiled handlers go. */
  readonly handlersDir: string;
  readonly defaults: HostConfig['defaults'];
  readonly validations: Validations;
  readonly logger: Log;
}

const functionFile = 'function.json';

export class FolderFunctions {
  readonly #options: FolderFunctionsOptions;
  /** A model may be served under many names. */
  readonly #hashes = new HashedFiles();

  constructor(options: FolderFunctionsOptions) {
    this.#options = { ...options, functionsDir: resolve(options.functionsDir) };
  }

  /** Folders that hold a function. Folders that start with '.', or have no function.json, do not count. */
  async names(): Promise<string[]> {
    const names: string[] = [];
    for (const name of await namesInFolder(this.#options.functionsDir)) {
      if (name.startsWith('.')) continue;
      if ((await fileBytes(join(this.#options.functionsDir, name, functionFile))) === undefined) continue;
      if (isFunctionName(name)) names.push(name);
      else this.#options.logger.warn({ folder: name }, 'a folder is left out: its name is not a function name');
    }
    return names;
  }

  /**
   * Reads one folder; undefined if it holds no function. Any error becomes the reason of an unavailable version, so
   * that one broken function never keeps the host from starting.
   */
  async read(name: string): Promise<FolderFunction | undefined> {
    const folder = join(this.#options.functionsDir, name);
    try {
      return await this.#read(name, folder);
    } catch (error) {
      this.#options.logger.error({ err: error, function: name }, 'a function folder cannot be read');
      const reason = `its folder cannot be read (${(error as Error).message})`;
      return this.#outcome(name, {}, { status: 'broken', reason }, { folder, publishedAtMs: Date.now(), reason });
    }
  }

  async #read(name: string, folder: string): Promise<FolderFunction | undefined> {
    const text = await readTextIfThere(join(folder, functionFile));
    if (text === undefined) return undefined;
    const publishedAtMs = (await stat(join(folder, functionFile))).mtimeMs;
    let given: GivenSettings = {};
    try {
      given = await placed(readFolderSettings(text), folder);
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      // Without its settings it is unknown whether it has a handler, so uploads of its name cannot serve either.
      const reason = `${functionFile}: ${error.message}`;
      return this.#outcome(name, given, { status: 'broken', reason }, { folder, publishedAtMs, reason });
    }
    const handler: HandlerOutcome =
      given.handler === undefined
        ? { status: 'none' }
        : await compileHandler(
            { functionName: name, functionFolder: folder, handler: given.handler },
            this.#options.handlersDir,
          );
    const model = given.model ?? 'model.onnx';
    if (isAbsolute(model) || model.split('/').includes('..')) {
      const reason = `${functionFile}: setting 'model' is '${model}', which is outside the function's folder`;
      return this.#outcome(name, given, handler, { folder, publishedAtMs, reason });
    }
    try {
      const modelPath = join(folder, model);
      const hashed = await this.#hashes.hash(modelPath);
      const newest = Math.max(publishedAtMs, (await stat(modelPath)).mtimeMs);
      const reason = handler.status === 'broken' ? handler.reason : undefined;
      return this.#outcome(name, given, handler, { folder, publishedAtMs: newest, reason, ...hashed });
    } catch (error) {
      if (!hasCode(error, 'ENOENT', 'ENOTDIR', 'EISDIR', 'EACCES')) throw error;
      const problem = hasCode(error, 'ENOENT', 'ENOTDIR') ? 'does not exist' : 'cannot be read';
      return this.#outcome(name, given, handler, { folder, publishedAtMs, reason: `its model '${model}' ${problem}` });
    }
  }

  /** The same function, ready at once if its model is remembered as accepted; else still 'validating'. */
  async recall(shipped: FolderFunction): Promise<FolderFunction> {
    const { version } = shipped;
    if (version.state.status !== 'validating') return shipped;
    const validated = await this.#options.validations.recall(version.modelPath, version.modelSha256);
    return validated === undefined ? shipped : await accepted(shipped, validated);
  }

  /** The same function with the validator's verdict on its model: 'ready' or 'unavailable'. */
  async validate(shipped: FolderFunction): Promise<FolderFunction> {
    const { version } = shipped;
    if (version.state.status !== 'validating') return shipped;
    try {
      const validated = await this.#options.validations.check(version.modelPath, version.modelSha256);
      return await accepted(shipped, validated);
    } catch (error) {
      if (!(error instanceof HostError)) throw error;
      return { ...shipped, version: { ...version, state: { status: 'unavailable', reason: error.message } } };
    }
  }

  #outcome(
    name: string,
    given: GivenSettings,
    handler: HandlerOutcome,
    found: {
      readonly folder: string;
      readonly publishedAtMs: number;
      readonly reason: string | undefined;
      readonly sha256?: string;
      readonly bytes?: number;
    },
  ): FolderFunction {
    const settings = resolveSettings(given, this.#options.defaults);
    const version = given.version ?? '1';
    const state: VersionState =
      found.reason === undefined ? { status: 'validating' } : { status: 'unavailable', reason: found.reason };
    return {
      given,
      handler,
      version: {
        name,
        version,
        key: `${name}@${version}`,
        source: 'folder',
        settings,
        modelPath: join(found.folder, settings.model),
        modelSha256: found.sha256 ?? '',
        modelBytes: found.bytes ?? 0,
        handlerPath: handler.status === 'compiled' ? handler.path : undefined,
        publishedAtMs: found.publishedAtMs,
        metadata: undefined,
        state,
      },
    };
  }
}

/**
 * The settings with their files resolved: an example file is named relative to where the host was started, which is
 * often where its clients are; labels are read.
 */
async function placed(given: GivenSettings, folder: string): Promise<GivenSettings> {
  const { example, labels } = given;
  return {
    ...given,
    ...(example?.startsWith('@') === true
      ? { example: `@${relative(process.cwd(), join(folder, example.slice(1)))}` }
      : undefined),
    ...(labels?.startsWith('@') === true ? { labels: await readLabels(folder, labels.slice(1)) } : undefined),
  };
}

async function readLabels(folder: string, path: string): Promise<string> {
  try {
    return await readFile(join(folder, path), 'utf8');
  } catch (error) {
    throw new HostError(
      'bad-settings',
      `setting 'labels' names '${path}', which cannot be read: ${(error as Error).message}`,
    );
  }
}

async function accepted(shipped: FolderFunction, validated: ValidatedModel): Promise<FolderFunction> {
  const { version } = shipped;
  const { metadata, externalFiles } = validated;
  let { modelBytes, publishedAtMs } = version;
  const stamps: string[] = [];
  for (const name of externalFiles) {
    const found = await stat(join(dirname(version.modelPath), name)).catch(() => undefined);
    if (found === undefined) continue; // Removed since it was validated: the load will report that.
    const { size, mtimeMs, ino } = found;
    modelBytes += size;
    publishedAtMs = Math.max(publishedAtMs, mtimeMs);
    // A stamp instead of hashing gigabytes at each start: a replaced file has another time or inode.
    stamps.push(`${name} ${size} ${mtimeMs} ${ino}`);
  }
  const external = stamps.length === 0 ? {} : { externalDataStamp: stamps.join(', ') };
  return {
    ...shipped,
    version: { ...version, ...external, modelBytes, publishedAtMs, metadata, state: { status: 'ready' } },
  };
}
