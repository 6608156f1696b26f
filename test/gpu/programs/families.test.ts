/**
 * The engine has all operators of transformers and CNNs that PyTorch's two exporters write, at every opset from 17 to
 * 23.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel, ProgramError } from '../../../src/gpu/program/index.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';
import { writeModel } from '../../../src/onnx/index.ts';
import { buildFamily, familyInputs, type Family } from '../../support/model-families.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-coverage-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const precisions = ['fp32', 'fp16', 'qdq', 'dynamic', 'qoperator'] as const;
const opsets = [17, 18, 19, 20, 21, 22, 23];

const combinations = (['transformer', 'cnn'] as const).flatMap((kind) =>
  (['torchscript', 'dynamo'] as const).flatMap((exporter) =>
    // torch.export writes opsets from 18 on.
    opsets
      .filter((opset) => exporter === 'torchscript' || opset >= 18)
      .flatMap((opset) =>
        // Open and fixed sizes in turns, so that each precision and each opset has both.
        precisions.map((precision, index): Family => {
          const isDynamic = (opset + index) % 2 === 0;
          return { kind, exporter, opset, precision, isDynamic };
        }),
      ),
  ),
);

test(`${combinations.length} combinations of model, exporter, opset, precision and sizes run entirely on the GPU`, async () => {
  const lacking: string[] = [];
  for (const [index, family] of combinations.entries()) {
    const path = join(folder, `${index}.onnx`);
    await writeModel(buildFamily(family), path);
    try {
      await compileModel(path, shapesOf(familyInputs(family)), operators, { cacheFolder: folder });
    } catch (error) {
      if (!(error instanceof ProgramError)) throw error;
      lacking.push(`${JSON.stringify(family)}: ${error.obstacles[0]?.reason ?? error.message}`);
    }
  }
  expect(lacking).toEqual([]);
});
