/** `turntable init NAME --example EXAMPLE`: a copy of one of the package's examples, ready to serve. */
import { execFile } from 'node:child_process';
import { access, copyFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../host/index.ts';
import { describeModel, readModel, type ModelMetadata, type TensorSpec } from '../onnx/index.ts';
import { CliError, usage } from './error.ts';

const examplesFolder = join(packageRoot, 'examples');
/** Not copied: the script that makes the model, the model that it made here, and npm's files. */
const leftOut = new Set(['make-model.mjs', 'model.onnx', 'package.json', 'package-lock.json']);

/** @throws CliError where there is no such example */
export async function exampleFolder(name: string): Promise<string> {
  const entries = await readdir(examplesFolder, { withFileTypes: true });
  const names = entries.flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
  if (!names.includes(name)) throw usage(`there is no example '${name}'; there are ${names.toSorted().join(', ')}`);
  return join(examplesFolder, name);
}

/** Copies the example and makes its model. function.json comes last: it makes the folder a function. */
export async function copyExample(from: string, to: string): Promise<void> {
  const entries = await readdir(from, { withFileTypes: true });
  const files = entries.flatMap((entry) => (entry.isFile() && !leftOut.has(entry.name) ? [entry.name] : []));
  const manifest = JSON.parse(await readFile(join(from, 'package.json'), 'utf8')) as Record<string, unknown>;
  const { name: _name, ...kept } = manifest;
  await writeFile(join(to, 'package.json'), `${JSON.stringify(kept, undefined, 2)}\n`);
  await promisify(execFile)(process.execPath, [join(from, 'make-model.mjs'), to]);
  const last = 'function.json';
  for (const file of [...files.filter((each) => each !== last), last]) await copyFile(join(from, file), join(to, file));
}

/**
 * Puts a model in place of the example's stand-in. The handler names its tensors then, which are paired by name, or else
 * by their order.
 *
 * @param put copies the model's files into the folder
 * @returns what the handler does that does not fit the model, a line each
 */
export async function exampleWithModel(
  folder: string,
  own: ModelMetadata,
  put: () => Promise<void>,
): Promise<string[]> {
  const standIn = describeModel(await readModel(join(folder, 'model.onnx')));
  await put();
  const handler = join(folder, 'handler.ts');
  let text = await readFile(handler, 'utf8');
  const notes: string[] = [];
  for (const [verb, from, to] of [
    ['gives', standIn.inputs, own.inputs],
    ['reads', standIn.outputs, own.outputs],
  ] as const) {
    const free = to.filter(({ name }) => !from.some((each) => each.name === name));
    for (const tensor of from) {
      const found = to.find(({ name }) => name === tensor.name) ?? free.shift();
      if (found === undefined || !fits(tensor, found)) {
        const has = found === undefined ? 'has no more' : `has ${specText(found)}`;
        notes.push(`handler.ts ${verb} ${specText(tensor)}, and the model ${has}: change it there`);
      } else text = text.replaceAll(`'${tensor.name}'`, JSON.stringify(found.name).replaceAll('"', "'"));
    }
    if (verb === 'gives' && free.length > 0)
      notes.push(`handler.ts does not give ${free.map(specText).join(' and ')}: add it there`);
  }
  await writeFile(handler, text);
  return notes;
}

const specText = ({ name, datatype, shape }: TensorSpec): string => `'${name}' ${datatype} [${shape.join(', ')}]`;

/** Sizes that are open fit any. */
const fits = (one: TensorSpec, other: TensorSpec): boolean =>
  one.datatype === other.datatype &&
  one.shape.length === other.shape.length &&
  one.shape.every((size, at) => at === 0 || size < 0 || other.shape[at]! < 0 || size === other.shape[at]);

/** Installs the packages that the handler imports. If that fails the folder stays, so that npm can be run again. */
export async function installPackages(folder: string, shown: string): Promise<void> {
  const { dependencies = {} } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as {
    readonly dependencies?: Readonly<Record<string, string>>;
  };
  const names = Object.keys(dependencies);
  if (names.length === 0) return;
  console.log(`npm installs ${names.join(', ')} ...`);
  try {
    await promisify(execFile)('npm', ['install', '--no-audit', '--no-fund', '--loglevel', 'error'], { cwd: folder });
    await Promise.all(names.map((name) => access(join(folder, 'node_modules', name))));
  } catch (error) {
    const npmOutput = error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
    const lines = npmOutput.split('\n').map((line) => line.replace(/^npm (error|ERR!) ?/, ''));
    const why = lines.filter((line) => line !== '').slice(0, 2);
    throw new CliError(
      `made ${shown}, but npm could not install its packages (${why.join('; ') || (error as Error).message}); ` +
        `try again: npm install --prefix ${shown}`,
      { cause: error },
    );
  }
}
