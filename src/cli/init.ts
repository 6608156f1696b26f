/** `turntable init`: makes the folder of a function, with a handler, a model and a test to start from. */
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { Command, Option, type AnyCommand } from './commander.ts';
import { isFunctionName, notFunctionName, packageRoot } from '../host/index.ts';
import {
  describeModel,
  ElementType,
  GraphBuilder,
  OnnxError,
  readModel,
  writeModel,
  type ModelMetadata,
  type Sizes,
} from '../onnx/index.ts';
import { typesOf } from '../operators/index.ts';
import { calledAs, makeFolders, quoted } from '../tools/index.ts';
import { CliError, tellingOf, usage } from './error.ts';
import { copyExample, exampleFolder, exampleWithModel, installPackages } from './init-example.ts';
import { handlerText, partsOfModel, testText, trendParts, typesText, type HandlerParts } from './init-files.ts';
import { exampleInputs } from './example-inputs.ts';
import { collectFiles } from './upload.ts';
import { parseSizes } from './values.ts';

export function initCommand(): AnyCommand {
  return new Command('init')
    .description(
      'Make a folder for a new function: function.json, a handler with types that editors know, a model, and a test ' +
        'that calls it without a host. With --example: one that decodes pictures or text, with its packages.',
    )
    .argument('<name>', 'the function')
    .option('--model <file>', 'an ONNX model, which is copied; default: a tiny one that works at once')
    .option('--out <dir>', 'the folder, which must not exist; default: functions/NAME')
    .option('--dim <name=size...>', 'with --model: size of an open dimension; otherwise sizes are tried until it runs')
    .option('--js', 'a handler in JavaScript instead of TypeScript')
    .addOption(
      new Option(
        '--example <name>',
        'a copy of image-classification, detection, text-classification, sentence-embeddings, voice-detection, ' +
          'tabular or two-models, with --model around your model; npm installs its packages',
      ).conflicts(['js', 'dim']),
    )
    .action(async (name, options) => {
      if (!isFunctionName(name)) {
        throw usage(notFunctionName(name));
      }
      const shown = options.out ?? join('functions', name);
      const folder = resolve(shown);
      const example = options.example === undefined ? undefined : await exampleFolder(options.example);
      await makeFolder(folder);
      const notes: string[] = [];
      try {
        if (example === undefined) notes.push(...(await writeFiles(folder, name, options)));
        else {
          await writeTypes(folder, 'handler.ts');
          await copyExample(example, folder);
          const { model } = options;
          if (model !== undefined)
            notes.push(...(await exampleWithModel(folder, await metadataOf(model), () => copyModel(folder, model))));
        }
      } catch (error) {
        await rm(folder, { recursive: true, force: true });
        throw error;
      }
      if (example !== undefined) await installPackages(folder, shown);
      console.log([await nextSteps(name, shown), ...notes].join('\n'));
    });
}

async function makeFolder(folder: string): Promise<void> {
  try {
    await makeFolders(dirname(folder));
    await mkdir(folder);
  } catch (error) {
    const exists = error instanceof Error && 'code' in error && error.code === 'EEXIST';
    const problem = exists ? 'exists already' : `cannot be made: ${(error as Error).message}`;
    throw new CliError(`${folder} ${problem}`, { cause: error });
  }
}

interface MadeParts {
  readonly parts: HandlerParts;
  /** Lines for the end. */
  readonly notes: readonly string[];
}

/** A model that can be checked by hand: four numbers, the slope of the line through them, and what is likeliest. */
async function starter(folder: string): Promise<MadeParts> {
  const graph = new GraphBuilder('trend');
  const readings = graph.input('readings', ElementType.FLOAT, ['batch', 4]);
  // One row per reading; the columns are a rise, a fall, and neither.
  const weights = Float32Array.from([-1.2, 1.2, 0, -0.4, 0.4, 0, 0.4, -0.4, 0, 1.2, -1.2, 0]);
  const slope = graph.node('MatMul', [readings, graph.weight('slope', [4, 3], weights)]);
  const scores = graph.node('Add', [slope, graph.weight('bias', [3], Float32Array.from([0, 0, 1]))]);
  graph.output(graph.node('Softmax', [scores]), ElementType.FLOAT, ['batch', 3], 'scores');
  await writeModel(graph.build(), join(folder, 'model.onnx'));
  return { parts: trendParts, notes: [] };
}

const metadataOf = (path: string): Promise<ModelMetadata> =>
  tellingOf(`the model ${path} cannot be taken`, [OnnxError], async () =>
    describeModel(await readModel(path), typesOf),
  );

/** External data keeps the name that the model has for it. */
async function copyModel(folder: string, path: string): Promise<void> {
  const [model, ...data] = await collectFiles(path);
  if (model !== undefined) await copyFile(model.path, join(folder, 'model.onnx'));
  for (const file of data) {
    await mkdir(dirname(join(folder, file.name)), { recursive: true });
    await copyFile(file.path, join(folder, file.name));
  }
}

async function ofModel(folder: string, name: string, path: string, given: Sizes): Promise<MadeParts> {
  const metadata = await metadataOf(path);
  await copyModel(folder, path);
  const { example, note } = await exampleInputs(path, metadata, given);
  return { parts: partsOfModel(metadata, name, example), notes: note === undefined ? [] : [`example.json: ${note}`] };
}

async function write(path: string, content: unknown): Promise<void> {
  await writeFile(path, typeof content === 'string' ? content : `${JSON.stringify(content, undefined, 2)}\n`);
}

async function writeFiles(
  folder: string,
  name: string,
  options: { readonly model?: string; readonly dim?: readonly string[]; readonly js?: true },
): Promise<readonly string[]> {
  const isTyped = options.js !== true;
  const given = parseSizes(options.dim ?? [], '--dim');
  const { parts, notes } =
    options.model === undefined ? await starter(folder) : await ofModel(folder, name, options.model, given);
  const handler = isTyped ? 'handler.ts' : 'handler.mjs';
  const { description } = parts;
  await write(join(folder, handler), handlerText(parts, isTyped));
  await write(join(folder, 'handler.test.mjs'), testText(parts));
  await write(join(folder, 'example.json'), `${JSON.stringify(parts.example)}\n`);
  await write(join(folder, 'package.json'), { private: true, type: 'module', scripts: { test: 'node --test' } });
  await writeTypes(folder, handler);
  // Last: with it the folder is a function.
  await write(join(folder, 'function.json'), { description, handler, slo: '100ms', example: '@example.json' });
  return notes;
}

/** For editors. Checking the compiler's own declarations as well would take two thirds of its time. */
async function writeTypes(folder: string, handler: string): Promise<void> {
  await write(join(folder, handler.endsWith('.ts') ? 'tsconfig.json' : 'jsconfig.json'), {
    compilerOptions: { target: 'es2023', module: 'nodenext', strict: true, skipDefaultLibCheck: true, noEmit: true },
    include: [handler, 'turntable.d.ts'],
  });
  const declared = join(packageRoot, 'dist', 'cpu', 'instance', 'handler.d.ts');
  await write(join(folder, 'turntable.d.ts'), typesText(await readFile(declared, 'utf8')));
}

async function nextSteps(name: string, shown: string): Promise<string> {
  const files = new Set(await readdir(resolve(shown)));
  const { example } = JSON.parse(await readFile(resolve(shown, 'function.json'), 'utf8')) as { example: string };
  const body = example.startsWith('@')
    ? `--file ${quoted(join(shown, example.slice(1)))}`
    : `--data ${quoted(example)}`;
  const command = calledAs();
  // The test starts it without a shell.
  const prefix = command === 'turntable' ? '' : `TURNTABLE=${quoted(resolve(process.argv[1] ?? ''))} `;
  return [
    `made ${shown}`,
    `  ${command} try ${quoted(shown)}`,
    // From version 22 on, Node takes no folder there.
    ...(files.has('handler.test.mjs') ? [`  ${prefix}node --test ${quoted(join(shown, 'handler.test.mjs'))}`] : []),
    `  ${command} serve --functions ${quoted(dirname(shown))}`,
    `  ${command} call ${name} ${body}`,
  ].join('\n');
}
