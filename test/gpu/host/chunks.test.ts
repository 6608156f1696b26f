/** Versions that share chunks of their weights on the disk, published over HTTP, and run on a GPU of the emulated driver. */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';

const values = Float32Array.from({ length: 512 }, (_, index) => Math.sin(index));
const body = JSON.stringify({
  inputs: [{ name: 'input', datatype: 'FP32', shape: [1, 512], data: Array.from(values) }],
});

let folder: string;
let host: RunningHost;

describe.skipIf(emulatorMissing)('versions in chunks', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-chunks-'));
    await mkdir(join(folder, 'functions'));
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '2',
        'cpu.profiling': 'off',
        'gpu.profileIterations': '1',
        'gpu.hybrid': 'off',
      },
    });
    host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
  });
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test('run on the GPU as the models that were published run in ONNX Runtime', async () => {
    const first = buildArchitecture('mlp', { layers: 6, input: 512, hidden: 512, output: 10, batch: 1 }, 1).model;
    await writeModel(first, join(folder, 'first.onnx'));
    const bytes = await readFile(join(folder, 'first.onnx'));
    // A weight of the last layer: bytes of a number in the midst of a tensor may be any.
    const other = Buffer.from(bytes);
    other.writeFloatLE(0.75, bytes.byteLength - 10_000);
    const models = [bytes, other];
    for (const [index, model] of models.entries()) {
      const reply = await fetch(`${host.url}/functions/net?slo=60s`, { method: 'PUT', body: model });
      expect([index, reply.status]).toEqual([index, 201]);
      await host.gpus!.planned(`net@${index + 1}`);
    }
    const stored = await readdir(join(folder, 'data', 'functions', 'net', '2'), { recursive: true });
    expect(stored.filter((name) => name.startsWith('weights')).length).toBeGreaterThan(3);
    for (const [index, model] of models.entries()) {
      const path = join(folder, `${index}.onnx`);
      await writeFile(path, model);
      const [expected] = await runOnnxRuntime(path, [tensorOf('input', 'FP32', [1, 512], values)]);
      const reply = await fetch(`${host.url}/v2/models/net/versions/${index + 1}/infer`, { method: 'POST', body });
      expect(reply.headers.get('x-turntable-placement')).toMatch(/^gpu0/);
      const { outputs } = (await reply.json()) as { readonly outputs: readonly { readonly data: readonly number[] }[] };
      const wanted = new Float32Array(expected!.data.slice().buffer);
      for (const [at, value] of wanted.entries()) expect(outputs[0]!.data[at]).toBeCloseTo(value, 3);
    }
  });
});
