/** What lies in the functions folder, and a closer look at one function. */
import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import {
  Validator,
  isFunctionName,
  newestUpload,
  readFolderSettings,
  resolveSettings,
  type FunctionSettings,
  type GivenSettings,
  type HostConfig,
} from '../../host/index.ts';
import { hashFile } from '../../tools/index.ts';
import { CliError } from '../error.ts';

/** Every function folder, checked without opening its model. */
export async function inspectFunctions(config: HostConfig) {
  const path = config.functionsDir;
  let names: string[];
  try {
    names = (await readdir(path)).sort();
  } catch (error) {
    return { state: 'unusable' as const, path, reason: (error as Error).message };
  }
  const functions: Awaited<ReturnType<typeof inspectFolder>>[] = [];
  for (const name of names) {
    if (name.startsWith('.')) continue;
    const text = await readFile(join(path, name, 'function.json'), 'utf8').catch(() => undefined);
    if (text !== undefined) functions.push(await inspectFolder(config, name, text));
  }
  return { state: 'read' as const, path, functions };
}

async function inspectFolder(config: HostConfig, name: string, text: string) {
  try {
    if (!isFunctionName(name)) throw new Error('its folder does not have the name of a function');
    const { model = 'model.onnx', handler } = readSettings(text);
    const folder = join(config.functionsDir, name);
    const modelBytes = await fileBytes(folder, model);
    if (handler !== undefined) await fileBytes(folder, handler);
    return { state: 'good' as const, name, modelBytes, handler };
  } catch (error) {
    return { state: 'broken' as const, name, reason: (error as Error).message };
  }
}

/** Throws what the host says of a folder that it cannot use. */
function readSettings(text: string): GivenSettings {
  try {
    return readFolderSettings(text);
  } catch (error) {
    throw new Error(`function.json: ${(error as Error).message}`, { cause: error });
  }
}

async function fileBytes(folder: string, name: string): Promise<number> {
  const status = await stat(resolve(folder, name)).catch(() => undefined);
  if (status === undefined || !status.isFile()) throw new Error(`its file ${name} is missing`);
  return status.size;
}

/** A version of a function, or a model's file, after it has been opened as the host would open it. */
export type FunctionReport = {
  readonly name: string;
  readonly source: 'folder' | 'upload' | 'file';
  readonly version: string;
  readonly folder: string;
} & Awaited<ReturnType<typeof openModel>>;

/**
 * What a word of a command line names: a model's file, a function's folder, or a function by its name.
 *
 * @throws CliError if it names nothing
 */
export async function reportsOf(
  config: HostConfig,
  words: string,
): Promise<readonly [FunctionReport, ...FunctionReport[]]> {
  const path = await reportPath(config, words);
  const [first, ...others] = path === undefined ? await reportFunction(config, words) : [path];
  if (first !== undefined) return [first, ...others];
  throw new CliError(
    `there is no function '${words}' in ${config.functionsDir}, none was uploaded to ${config.dataDir}, and there ` +
      'is no file or folder of that name',
  );
}

export type MeasuredModel = Awaited<ReturnType<typeof modelToMeasure>>;

/** The model of what the words name. @throws CliError */
export async function modelToMeasure(words: string, config: HostConfig) {
  const [report] = await reportsOf(config, words);
  if (report.state === 'broken') throw new CliError(`'${words}' cannot be measured: ${report.reason}`);
  const { name, modelPath, metadata } = report;
  const { inputs, opening } = metadata;
  const { sha256: modelSha256 } = await hashFile(modelPath);
  return { name, modelPath, opening, modelSha256, inputs };
}

/** The current version of each source that knows `name`: uploads first, since they are the ones that serve. */
async function reportFunction(config: HostConfig, name: string): Promise<FunctionReport[]> {
  const upload = await reportUpload(config, name);
  const shipped = await reportFolder(config, name);
  return [upload, shipped].filter((report) => report !== undefined);
}

/** The model of a file, or the function of a folder; undefined where there is neither. */
async function reportPath(config: HostConfig, words: string): Promise<FunctionReport | undefined> {
  const path = resolve(words);
  const status = await stat(path).catch(() => undefined);
  const name = basename(path);
  if (status?.isDirectory() === true) return await reportFolder(config, name, path);
  if (status?.isFile() !== true) return undefined;
  const common = { name, source: 'file', version: '1', folder: dirname(path) } as const;
  return { ...common, ...(await openModel(config, path, resolveSettings({}, config.defaults))) };
}

async function reportFolder(
  config: HostConfig,
  name: string,
  folder = join(config.functionsDir, name),
): Promise<FunctionReport | undefined> {
  if (!isFunctionName(name)) return undefined;
  const text = await readFile(join(folder, 'function.json'), 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const common = { name, source: 'folder', folder } as const;
  let version = '1';
  try {
    const given = readSettings(text);
    version = given.version ?? version;
    const settings = resolveSettings(given, config.defaults);
    if (settings.handler !== undefined) await fileBytes(folder, settings.handler);
    return { ...common, version, ...(await openModel(config, resolve(folder, settings.model), settings)) };
  } catch (error) {
    return { ...common, version, state: 'broken', reason: (error as Error).message };
  }
}

async function reportUpload(config: HostConfig, name: string): Promise<FunctionReport | undefined> {
  if (!isFunctionName(name)) return undefined;
  const newest = await newestUpload(config.dataDir, name);
  if (newest === undefined) return undefined;
  const { folder, version, loaded } = newest;
  const common = { name, source: 'upload', folder, version } as const;
  if (loaded.status === 'damaged' || loaded.status === 'unreadable') {
    return { ...common, state: 'broken', reason: loaded.reason };
  }
  // Only the version that serves is opened: a store may hold many.
  const settings = resolveSettings(loaded.record.settings, config.defaults);
  return { ...common, ...(await openModel(config, join(folder, 'model.onnx'), settings)) };
}

async function openModel(config: HostConfig, modelPath: string, settings: FunctionSettings) {
  const startedMs = performance.now();
  const validator = new Validator({ timeoutMs: config.validator.timeoutMs });
  try {
    const { metadata, externalFiles } = await validator.validate(modelPath);
    const validationMs = performance.now() - startedMs;
    const { size } = await stat(modelPath);
    let bytes = size;
    for (const file of externalFiles) bytes += await fileBytes(dirname(modelPath), file);
    /** `fileBytes`: model and external data. */
    return { state: 'good' as const, settings, metadata, modelPath, fileBytes: bytes, validationMs };
  } catch (error) {
    return { state: 'broken' as const, reason: (error as Error).message };
  } finally {
    validator.stop();
  }
}
