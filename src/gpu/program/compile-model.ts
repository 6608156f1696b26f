/** Compiles a model file to a program, with a cache on disk. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { deserialize, serialize } from 'node:v8';
import { LRUCache } from 'lru-cache';
import { getOrMake, getOrStart, given, writeWhole } from '../../tools/index.ts';
import { fileStamp, type ModelProto } from '../../onnx/index.ts';
import type { Operator } from '../operators/types.ts';
import { layoutOf } from './assemble.ts';
import { prepareBase, type FunctionBase } from './base.ts';
import { withCoding } from './coded.ts';
import { compileProgram, defaultSettings } from './compile.ts';
import { engineVersion } from './engine-version.ts';
import { writeNarrowed } from './narrowed.ts';
import { checkShapes, prepareGraph } from './prepare.ts';
import type { InputShapes, Program, WeightLayout } from './types.ts';
import type { ProgramSettings } from '../types.ts';

export interface CompileModelOptions {
  /** For programs, and for weights that had to be computed. Keep it while a program is in use. */
  readonly cacheFolder: string;
  readonly settings?: ProgramSettings;
  /** False: each node is emitted on its own. Default true. */
  readonly fusion?: boolean;
  /** Makes of the graph, whose weights are inputs, another one with further outputs. `name` goes into the key. */
  readonly changed?: { readonly name: string; readonly change: (model: ModelProto) => ModelProto };
}

/** A base is small (a graph without weights), and making it reads the model file. */
const bases = new LRUCache<string, Promise<FunctionBase>>({ max: 64 });

export function baseOf(modelPath: string, cacheFolder: string): Promise<FunctionBase> {
  const path = resolve(modelPath);
  const key = `${path}\0${fileStamp(path)}\0${resolve(cacheFolder)}`;
  return getOrStart(bases, key, () => prepareBase(path, cacheFolder));
}

/** By file: functions of one graph that are prepared at once share the work. */
const programs = new Map<string, Promise<Program>>();

/** What a program is made of: the same for functions whose graphs are equal, whatever their weights are. */
export interface ProgramOf {
  readonly base: FunctionBase;
  readonly shapes: InputShapes;
  readonly operators: readonly Operator[];
  readonly settings: ProgramSettings;
  readonly fusion: boolean;
  /** Of a part of the graph: the plan that it is the GPU's part of. */
  readonly part?: unknown;
}

function programKey({ base, shapes, operators, settings, fusion, part }: ProgramOf): string {
  const types = operators.map(({ type }) => type);
  const { coding: _, asTheyAre: _form, ...ofProgram } = settings;
  const content = [base.graphHash, shapes, types, ofProgram, fusion, engineVersion(), part];
  return createHash('sha256').update(JSON.stringify(content)).digest('hex');
}

/**
 * Compiles a program, or reads it from the cache. It may have been made for another model with the same graph, or before
 * its files moved: its layout has to be replaced.
 */
export async function keptProgram(
  of: ProgramOf,
  cacheFolder: string,
  compile: (key: string) => Program | Promise<Program>,
): Promise<Program> {
  const key = programKey(of);
  const path = join(cacheFolder, 'programs', `${key}.program`);
  return await getOrMake(programs, path, () =>
    readOrCompile(path, key, async () => await compile(key)).finally(() => programs.delete(path)),
  );
}

/**
 * Compiles a model for given input shapes, or reads the program from the cache. `shapes` may omit inputs whose shapes
 * the model fixes.
 *
 * @throws OnnxError for a file that is no model; ProgramError 'unsupported' with all obstacles, 'bad-shapes', 'folding'
 */
export async function compileModel(
  modelPath: string,
  shapes: InputShapes,
  operators: readonly Operator[],
  { cacheFolder, settings = defaultSettings, fusion = true, changed }: CompileModelOptions,
): Promise<Program> {
  const ofModel = await baseOf(modelPath, cacheFolder);
  const base =
    changed === undefined
      ? ofModel
      : { ...ofModel, model: changed.change(ofModel.model), graphHash: `${ofModel.graphHash} ${changed.name}` };
  const checked = checkShapes(base, shapes);
  const of = { base, shapes: checked, operators, settings, fusion };
  const program = await keptProgram(of, cacheFolder, async (key) => {
    const prepared = await prepareGraph(base, checked, cacheFolder);
    return compileProgram(prepared, operators, settings, { fusion, key });
  });
  await writeNarrowed(base, settings);
  return { ...program, layout: await finalLayout(base, settings, cacheFolder) };
}

async function finalLayout(base: FunctionBase, settings: ProgramSettings, cacheFolder: string): Promise<WeightLayout> {
  const layout = layoutOf(base, settings);
  return layout.bytes > (settings.coding ?? 0)
    ? layout
    : await withCoding(layout, cacheFolder, given({ asTheyAre: settings.asTheyAre }));
}

async function readOrCompile(path: string, key: string, compile: () => Promise<Program>): Promise<Program> {
  try {
    const found = deserialize(await readFile(path)) as Program;
    if (found.key === key) return found;
  } catch {
    // Missing or damaged: it is made again.
  }
  const program = await compile();
  await writeWhole(path, serialize(program));
  return program;
}

/** A model's weights by layers, even if the engine cannot run it. @throws OnnxError, ProgramError */
export async function layoutOfModel(
  modelPath: string,
  { cacheFolder, settings = defaultSettings }: Pick<CompileModelOptions, 'cacheFolder' | 'settings'>,
): Promise<WeightLayout> {
  const base = await baseOf(modelPath, cacheFolder);
  await writeNarrowed(base, settings);
  return await finalLayout(base, settings, cacheFolder);
}
