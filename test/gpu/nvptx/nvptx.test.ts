/**
 * Compiles the generated kernels by clang for NVIDIA GPUs. Unlike the g++ of the emulated driver, clang checks the
 * rules of the language (address spaces, attributes, PTX in assembler statements). CUDA need not be installed.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { kernelFrom } from '../../../src/gpu/operators/common/kernel-file.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel } from '../../../src/gpu/program/index.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import { clang, ptxOf } from '../../support/ptx.ts';

if (clang === undefined)
  console.log('clang is not installed: whether it compiles the kernels for nvptx64 is not tested.');

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-nvptx-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const text = { layers: 1, hidden: 32, heads: 4, vocabulary: 50, positions: 40 };
const image = { image: 32, classes: 10 };
const recurrent = { layers: 2, hidden: 16, sequence: 5 };

/** Small versions of the architectures that ship: sizes change only numbers in the kernels. */
const models: readonly [string, Parameters<typeof buildArchitecture>[1]][] = [
  ['bert-base', text],
  ['roberta-base', text],
  ['gpt2', text],
  ['resnet50', { ...image, width: 8, blocks: [1, 1, 1, 1] }],
  ['vgg16', { ...image, width: 4, hidden: 32 }],
  ['inception-v3', { image: 75, classes: 10, width: 0.05 }],
  ['mobilenet-v2', { ...image, width: 0.25 }],
  ['lstm', recurrent],
  ['gru', recurrent],
  ['mlp', { layers: 3, input: 64, hidden: 48, output: 32 }],
];

const entries = (ptx: string): string[] => [...ptx.matchAll(/\.visible \.entry (\w+)\(/g)].map(([, name]) => name!);

test.skipIf(clang === undefined).each(models.map(([name, settings], index) => ({ name, settings, index })))(
  'clang compiles every kernel of $name for nvptx64',
  async ({ name, settings, index }) => {
    const { model } = buildArchitecture(name, settings);
    const path = join(folder, `${name}.onnx`);
    await writeModel(model, path);
    const shapes = model.graph.input.map(({ name: input, type }) => ({
      name: input,
      shape: (type?.tensorType?.shape?.dim ?? []).map(({ dimValue }, axis) =>
        dimValue === undefined ? (axis === 0 ? 1 : 6) : Number(dimValue),
      ),
    }));
    // Neighbours in the list have the same operators, so each tests the settings that the other omits.
    const [one, other] = index % 2 === 0 ? (['library', 'own'] as const) : (['own', 'library'] as const);
    for (const programSettings of [
      { products: one, precision: 'exact' },
      { products: other, precision: 'fp16' },
      { products: other, precision: 'bf16' },
    ] as const) {
      const options = { cacheFolder: folder, settings: programSettings };
      const program = await compileModel(path, shapes, operators, options);
      const kernels = new Set(program.launches.flatMap((launch) => (launch.kind === 'kernel' ? [launch.kernel] : [])));
      if (kernels.size === 0) continue;
      expect(new Set(entries(await ptxOf(program.source, folder)))).toEqual(kernels);
    }
  },
);

test.skipIf(clang === undefined).each(['decode', 'from-host'])(
  'clang compiles the kernel of %s.cu, which no program has, for nvptx64',
  async (file) => {
    expect(entries(await ptxOf(kernelFrom(file, {}), folder))).toHaveLength(1);
  },
);

test.skipIf(clang === undefined).each([
  ['a function that CUDA does not have', 'out[0] = __no_such_function(1.0f);', /__no_such_function/],
  ['a write to what is only read', 'in[0] = 1.0f;', /cannot assign|read-only|const/],
  ['host code', 'out[0] = (float)rand();', /rand/],
])('clang refuses a kernel with %s', async (_what, statement, words) => {
  const source = `#include <stdlib.h>\nKERNEL void wrong(const float* in, float* out) { ${statement} }`;
  await expect(ptxOf(source, folder)).rejects.toThrow(words);
});
