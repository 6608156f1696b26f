import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ProgramSettings } from '../../../src/gpu/types.ts';
import { writeModel } from '../../../src/onnx/index.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { relativeError, runModel, runOnnxRuntime, withOwnProducts } from '../../support/run-program.ts';
import { convolutionCases, denseModel, productCases, recurrenceCases, type DenseCase } from './cases.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-dense-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const use = sharedEmulatedCuda({});

const exact: ProgramSettings = { precision: 'exact' };
/** Relative to the largest output: rounding of sums in another order, and of weights to 16 bits. */
const tolerances = { exact: 1e-5, tf32: 1e-5, fp16: 2e-3, bf16: 1.5e-2 };

/** Cases with other results than ONNX Runtime's, and the differences. */
async function disagreements(
  name: string,
  cases: readonly DenseCase[],
  settings: ProgramSettings,
  { tolerance = tolerances[settings.precision], isOwn = false } = {},
): Promise<string[]> {
  const { model, inputs, cases: owners } = denseModel(cases);
  const path = join(folder, `${name}.onnx`);
  await writeModel(model, path);
  const expected = await runOnnxRuntime(path, inputs);
  const options = { cacheFolder: folder, settings, ...(isOwn ? { program: withOwnProducts } : {}) };
  const actual = await use((cuda) => runModel(cuda, path, inputs, options));
  expect(expected.length).toBe(Object.keys(owners).length);
  return expected.flatMap((wanted) => {
    const found = actual.find((output) => output.name === wanted.name);
    const error = found === undefined ? Number.POSITIVE_INFINITY : relativeError(found, wanted);
    return error <= tolerance
      ? []
      : [`${owners[wanted.name]!.name} (${wanted.name}): ${error}, shape [${wanted.shape.join(',')}]`];
  });
}

const groups = { products: productCases, convolutions: convolutionCases, recurrences: recurrenceCases };

for (const [name, cases] of Object.entries(groups)) {
  test.skipIf(emulatorMissing)(`${name} agree with ONNX Runtime`, async () => {
    expect(await disagreements(name, cases, exact)).toEqual([]);
  });

  test.skipIf(emulatorMissing)(`${name} by the engine's own kernel agree with ONNX Runtime`, async () => {
    expect(await disagreements(`${name}-own`, cases, exact, { isOwn: true })).toEqual([]);
  });
}

for (const precision of ['fp16', 'bf16'] as const) {
  test.skipIf(emulatorMissing)(
    `products and convolutions with weights kept as ${precision} agree within its precision`,
    async () => {
      const cases = [...productCases, ...convolutionCases];
      expect(await disagreements(precision, cases, { precision })).toEqual([]);
      expect(await disagreements(`${precision}-own`, cases, { precision }, { isOwn: true })).toEqual([]);
    },
  );
}

test.skipIf(emulatorMissing)(
  "TF32 rounds products of the library to ten bits, but not those of the engine's own kernel",
  async () => {
    const wide = productCases.filter(({ name }) => name === 'a product larger than a tile');
    const settings: ProgramSettings = { precision: 'tf32' };
    expect(await disagreements('tf32', wide, settings, { tolerance: 2e-3 })).toEqual([]);
    expect(await disagreements('tf32', wide, settings)).toHaveLength(wide.length);
    expect(await disagreements('tf32-own', wide, settings, { isOwn: true })).toEqual([]);
  },
);
