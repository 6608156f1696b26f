/** The self-test on emulated machines with defects: each defect fails only the beliefs that it concerns. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { beliefs, lacksOf, selfTest, startGpuProcess, type SelfTestReport } from '../../../src/gpu/index.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';

const driver = await buildEmulatedDriver();

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-self-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const machineWith = (defects: readonly string[]): Record<string, string> => ({
  ...driver!.environment,
  TURNTABLE_EMULATOR: JSON.stringify({ devices: [{}, {}], defects }),
});

const testOf = (defects: readonly string[], again = true): Promise<SelfTestReport> =>
  selfTest({ cacheFolder: folder, environment: { ...process.env, ...machineWith(defects) }, again });

const settings = { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 26, selfTest: true };

const failed = ({ results }: SelfTestReport): string[] =>
  results.flatMap(({ belief, holds }) => (holds ? [] : [belief]));

describe.skipIf(driver === undefined)('on the emulated driver', () => {
  it('a machine without defects holds all beliefs, and the result is stored', async () => {
    const report = await testOf([]);
    expect(report.results.filter(({ holds }) => !holds)).toEqual([]);
    expect(report.results.map(({ belief }) => belief)).toEqual(beliefs.map(({ belief }) => belief));
    const kept = join(folder, 'self-tests');
    const [file] = await readdir(kept);
    // The next self-test does not test, it reads the file.
    const text = (await readFile(join(kept, file!), 'utf8')).replace('"detail": ""', '"detail": "from the file"');
    await writeFile(join(kept, file!), text);
    expect((await testOf(['host-copies'], false)).results[0]).toMatchObject({ holds: true, detail: 'from the file' });
    await writeFile(join(kept, file!), '{');
    expect(failed(await testOf(['host-copies'], false))).toEqual(['copies']);
  });

  it.each([
    [
      ['host-reads-by-kernels', 'products', 'graphs', 'events-across-devices'],
      ['host-reads-by-kernels', 'products', 'graphs', 'events-across-devices'],
    ],
    [
      ['peer-copies', 'kernel softmax', 'registered-memory', 'kernel attention'],
      ['peer-copies', 'events-across-devices', 'operators normalization', 'registered-memory', 'operators attention'],
    ],
    // The library adds the bias of Q to all three products of Q, K and V.
    [['bias-strides'], ['products']],
    // The library refuses the product, and the engine has its own kernel.
    [['bias-by-item'], []],
  ])('on a machine with the defects %j, %j do not hold and all others do', async (defects, expected) => {
    expect(failed(await testOf(defects)).toSorted()).toEqual(expected.toSorted());
  });

  it.each([
    ['host-copies', 'copies'],
    ['kernel selftest', 'kernels'],
  ])('the GPUs of a machine with the defect %s are not used, because of %s', async (defect, belief) => {
    const report = await testOf([defect]);
    expect(failed(report)).toEqual([belief]);
    expect(lacksOf(report.results).unusable).toMatch(/^the GPU self-test failed: .*; no function runs on the GPUs$/);
  });

  it('the GPU process does not open if the GPUs cannot be used, and says why', async () => {
    const client = startGpuProcess({
      ...settings,
      cacheFolder: join(folder, 'unusable'),
      environment: machineWith(['host-copies']),
      log: () => undefined,
    });
    await expect(client.ready).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(
        /copies between pinned memory and a GPU keep every byte' does not hold .*; no function runs/,
      ),
    });
    await client.stop();
  });

  it('the GPU process does without operators that failed, and logs them', async () => {
    const { model } = buildArchitecture('bert-base', {
      layers: 1,
      hidden: 32,
      heads: 4,
      vocabulary: 50,
      positions: 40,
    });
    const modelPath = join(folder, 'bert.onnx');
    await writeModel(model, modelPath);
    const lines: string[] = [];
    const client = startGpuProcess({
      ...settings,
      cacheFolder: join(folder, 'process'),
      environment: machineWith(['host-reads-by-kernels', 'kernel softmax']),
      log: (line) => lines.push(line),
    });
    try {
      await client.ready;
      expect(lines).toEqual([
        expect.stringMatching(/'kernels read pinned host memory' does not hold .*; every layer is loaded before/),
        expect.stringMatching(/'the normalization kernels .*' does not hold .*; the normalization operators are left/),
      ]);
      const shapes = model.graph.input.map(({ name }) => ({ name, shape: [1, 6] }));
      const coverage = await client.register({ key: 'bert@1', modelPath, shapes });
      expect(coverage).toMatchObject({
        covered: false,
        obstacles: expect.arrayContaining([expect.objectContaining({ operator: 'LayerNormalization' })]),
      });
    } finally {
      await client.stop();
    }
  });
});
