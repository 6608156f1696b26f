/** The models of the GPU benchmark as files, with their plans for this machine. */
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { buildArchitecture, writeModel, type ModelProto } from '../../src/onnx/index.ts';
import { namedModel } from '../../src/profile/index.ts';
import type { InputShapes } from '../../src/gpu/index.ts';

export interface BenchModel {
  readonly name: string;
  readonly path: string;
  readonly shapes: InputShapes;
}

/** At full size as in DeepPlan (Jeong et al. 2023, 5.1), batch 1. */
export const fullModels = ['bert-base', 'bert-large', 'roberta-base', 'gpt2', 'resnet50', 'resnet101'];

/** Writes a model once; the folder keeps it for the next run. */
export async function writeBenchModel(folder: string, name: string, small: boolean): Promise<BenchModel> {
  const named = small
    ? { model: tiny(name), dimensions: { batch: 1, sequence: 8 } as Readonly<Record<string, number>> }
    : namedModel(name);
  const path = join(folder, `${small ? 'tiny-' : ''}${name}.onnx`);
  if (!existsSync(path)) {
    mkdirSync(folder, { recursive: true });
    await writeModel(named.model, `${path}.part`);
    renameSync(`${path}.part`, path);
  }
  const shapes = named.model.graph.input.map(({ name: input, type }) => ({
    name: input,
    shape: (type?.tensorType?.shape?.dim ?? []).map(({ dimValue, dimParam }) =>
      dimValue === undefined ? (named.dimensions[dimParam ?? ''] ?? 1) : Number(dimValue),
    ),
  }));
  return { name, path, shapes };
}

function tiny(name: string): ModelProto {
  return buildArchitecture(name, { layers: 2, hidden: 32, heads: 4, vocabulary: 50, positions: 40 }).model;
}
