/** Finds the model to measure, from the path of a model or a function's folder, or from a function's name. */
import { existsSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { readFolderSettings, type HostConfig } from '../host/index.ts';
import { describeModel, OnnxError, readModel } from '../onnx/index.ts';
import { hashFile } from '../tools/index.ts';
import { reportFunction } from './doctor/functions.ts';
import { CliError, tellingOf } from './error.ts';

export type ProfileTarget = Awaited<ReturnType<typeof findTarget>>;

/** Throws {@link CliError}. */
export async function findTarget(words: string, config: HostConfig) {
  const { name, modelPath } = await locate(words, config);
  const { inputs, opening } = await tellingOf(`${modelPath} cannot be measured`, [OnnxError], async () =>
    describeModel(await readModel(modelPath)),
  );
  const { sha256: modelSha256 } = await hashFile(modelPath);
  return { name, modelPath, opening, modelSha256, inputs };
}

async function locate(words: string, config: HostConfig): Promise<{ name: string; modelPath: string }> {
  const path = resolve(words);
  if (existsSync(path)) {
    if (statSync(path).isFile()) return { name: basename(words), modelPath: path };
    if (existsSync(join(path, 'function.json'))) return { name: basename(path), modelPath: await modelOf(path) };
  }
  // A path that does not exist is no name.
  if (/[/\\]|\.onnx$/.test(words)) throw new CliError(`there is no model and no function's folder at ${words}`);
  const [report] = await reportFunction(config, words);
  if (report === undefined) {
    throw new CliError(
      `there is no function '${words}' in ${config.functionsDir} or ${config.dataDir}; name one, or give the ` +
        "path of an ONNX file or of a function's folder",
    );
  }
  if (report.state === 'broken') throw new CliError(`function '${words}' cannot be measured: ${report.reason}`);
  const { source, folder, settings } = report;
  return { name: words, modelPath: resolve(folder, source === 'upload' ? 'model.onnx' : settings.model) };
}

async function modelOf(folder: string): Promise<string> {
  const file = join(folder, 'function.json');
  return await tellingOf(`${file} cannot be used`, [Error], async () =>
    resolve(dirname(file), readFolderSettings(await readFile(file, 'utf8')).model ?? 'model.onnx'),
  );
}
