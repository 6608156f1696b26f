/** The self-test on emulated machines with defects: each defect fails only the beliefs that it concerns. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  beliefs,
  lacksOf,
  selfTest,
  startGpuProcess,
  type GpuProcessSettings,
  type SelfTestReport,
} from '../../../src/gpu/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';
import { loadingAll } from '../../support/loading-all.ts';
import { shaped } from '../../support/shapes.ts';

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

/** Functions of one node each behind a transpose, on a machine: what came of the check of each, and what the process logged. */
async function checked(
  defects: readonly string[],
  types: readonly string[],
  more: Partial<GpuProcessSettings> = {},
): Promise<{ readonly kinds: readonly string[]; readonly graph: boolean; readonly lines: readonly string[] }> {
  const lines: string[] = [];
  const client = startGpuProcess({
    ...settings,
    ...more,
    cacheFolder: join(folder, ['process', ...defects].join(' ')),
    environment: machineWith(defects),
    log: (line) => lines.push(line),
  });
  try {
    const kinds: string[] = [];
    let graph = false;
    const x = tensorOf(
      'x',
      'FP32',
      [3, 8],
      Float32Array.from({ length: 24 }, (_, index) => Math.sin(index)),
    );
    for (const type of types) {
      const builder = new GraphBuilder(type, { opset: 17 });
      builder.input('x', ElementType.FLOAT, [3, 8]);
      const turned = builder.node('Transpose', ['x'], { perm: [1, 0] });
      builder.output(builder.node(type, [turned]), ElementType.FLOAT, [8, 3]);
      const modelPath = join(folder, `${type}.onnx`);
      await writeModel(builder.build(), modelPath);
      const coverage = await client.register({ key: type, modelPath, shapes: shaped({ x: [3, 8] }) });
      await client.stage(type);
      const plan = loadingAll(coverage);
      kinds.push((await client.check(type, { gpu: 0, plan, inputs: [x] })).kind);
      for (let run = 0; run < 4; run++) ({ graph } = await client.run(type, [x], { gpu: 0, plan }));
    }
    return { kinds, graph, lines };
  } finally {
    await client.stop();
  }
}

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
      ['peer-copies', 'kernel softmax', 'registered-memory'],
      ['peer-copies', 'events-across-devices', 'registered-memory'],
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

  it('a wrong kernel costs only the function that uses it, which its check finds', async () => {
    const found = await checked(['kernel softmax'], ['Softmax', 'Relu']);
    expect(found).toEqual({ kinds: ['disagreed', 'agreed'], graph: true, lines: [] });
  });

  it('what the settings leave out is not used, though the self-test finds nothing', async () => {
    expect(await checked([], ['Relu'], { without: ['graphs'] })).toEqual({
      kinds: ['agreed'],
      graph: false,
      lines: [],
    });
  });
});
