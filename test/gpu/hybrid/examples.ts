/** Models with their inputs and ONNX Runtime's answers. */
import { join } from 'node:path';
import { hybridGraph } from '../../../src/gpu/hybrid/prepare.ts';
import type { PreparedGraph } from '../../../src/gpu/program/prepared.ts';
import { buildArchitecture, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import type { ColdStartPlan } from '../../../src/plan/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';
import { randomOf } from './random-plans.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

export interface Example {
  readonly prepared: PreparedGraph;
  readonly modelPath: string;
  readonly inputs: readonly Tensor[];
  readonly expected: readonly Tensor[];
}

export async function exampleOf(
  folder: string,
  name: string,
  model: ModelProto,
  inputs: readonly Tensor[],
  cells = 1,
): Promise<Example> {
  const modelPath = join(folder, `${name}.onnx`);
  await writeModel(model, modelPath);
  const shapes = shapesOf(inputs);
  const prepared = await hybridGraph({ modelPath, shapes, cells, cacheFolder: join(folder, 'cache') });
  return { prepared, modelPath, inputs, expected: await runOnnxRuntime(modelPath, inputs) };
}

export const architecture = (name: string, settings: Readonly<Record<string, number | string>>): ModelProto =>
  buildArchitecture(name, settings).model;

export const noise = (name: string, shape: readonly number[], seed: number): Tensor => {
  const random = randomOf(seed);
  const count = shape.reduce((product, size) => product * size, 1);
  return tensorOf(
    name,
    'FP32',
    shape,
    Float32Array.from({ length: count }, () => random() * 2 - 1),
  );
};

/** Loads these layers and leaves all others where they are. */
export function loading(
  layers: readonly { readonly name: string }[],
  wanted: readonly number[],
  gpu = 0,
): ColdStartPlan {
  return {
    mode: 'pipeswitch',
    primary: gpu,
    secondaries: [],
    bytesGpu: 0,
    layers: layers.map(({ name }, index) =>
      wanted.includes(index) ? { name, method: 'load', link: gpu } : { name, method: 'dha', link: null },
    ),
  };
}
