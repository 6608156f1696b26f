/** A host whose GPUs get coded layers, beside one whose GPUs get them as they are, on the emulated driver. */
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import type { LayerProfile } from '../../../src/profile/index.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { GpuProcesses } from '../../support/gpu-processes.ts';

const [columns, hidden] = [64, 4096];
/** Of each of the two products: the least that is coded. */
const layerBytes = 4 * columns * hidden;
const values = Array.from({ length: columns }, (_, at) => Math.cos(at));

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-coding-'));
  await mkdir(join(folder, 'functions'));
  const graph = new GraphBuilder('products');
  const x = graph.input('x', ElementType.FLOAT, [1, columns]);
  const weight = (name: string, shape: readonly [number, number]): string =>
    graph.weight(
      name,
      shape,
      Float32Array.from({ length: shape[0] * shape[1] }, (_, at) => 0.1 * Math.sin(at * 0.7)),
    );
  const inner = graph.node('Relu', [graph.node('MatMul', [x, weight('in', [columns, hidden])])]);
  graph.output(graph.node('MatMul', [inner, weight('out', [hidden, columns])]), ElementType.FLOAT, [1, columns], 'y');
  await writeModel(graph.build(), join(folder, 'products.onnx'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Seen {
  readonly y: string;
  readonly metrics: ReadonlyMap<string, number>;
  readonly profile: LayerProfile;
}

/** Publishes the model, and calls it until a GPU answers. */
async function served(host: RunningHost, dataDir: string): Promise<Seen> {
  const body = await readFile(join(folder, 'products.onnx'));
  const published = await fetch(`${host.url}/functions/products?slo=60s`, { method: 'PUT', body });
  expect([published.status, await published.text()]).toEqual([201, expect.any(String)]);
  const call = async (): Promise<{ readonly placement: string; readonly y: string }> => {
    const reply = await fetch(`${host.url}/v2/models/products/infer`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'X-Turntable-SLO': '60s' },
      body: JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, columns], data: values }] }),
    });
    expect(reply.status).toBe(200);
    const { outputs } = (await reply.json()) as { outputs: readonly [{ readonly data: readonly number[] }] };
    return { placement: reply.headers.get('x-turntable-placement') ?? '', y: JSON.stringify(outputs[0].data) };
  };
  await expect.poll(async () => (await call()).placement).toMatch(/^gpu0/);
  const { y } = await call();
  const text = await (await fetch(`${host.url}/metrics`)).text();
  const metrics = new Map(
    [...text.matchAll(/^(\w+)(?:\{[^}]*\})? (\S+)$/gm)].map(([, name, value]) => [name!, Number(value)]),
  );
  const profiles = join(dataDir, 'plans', 'profiles');
  const file = (await readdir(profiles, { recursive: true })).find((name) => name.endsWith('.json'));
  return {
    y,
    metrics,
    profile: (JSON.parse(await readFile(join(profiles, file!), 'utf8')) as { profile: LayerProfile }).profile,
  };
}

async function hostWith(coding: 'off' | 'auto'): Promise<Seen> {
  await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
  const dataDir = join(folder, coding);
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir,
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      'cpu.profiling': 'off',
      'gpu.memory': '16MiB',
      'gpu.hostMemory': '32MiB',
      'gpu.profileIterations': '1',
      'gpu.hybrid': 'off',
      'gpu.coding': coding,
    },
  });
  const host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
  try {
    return await served(host, dataDir);
  } finally {
    await host.stop();
  }
}

test.skipIf(emulatorMissing)(
  'a host with gpu.coding answers with the same bits, and has fewer bytes in host memory; the profile tells of them',
  async () => {
    const plain = await hostWith('off');
    const coded = await hostWith('auto');
    expect(coded.y).toBe(plain.y);
    expect(plain.metrics.get('nv_pinned_memory_pool_used_bytes')).toBe(2 * layerBytes);
    expect(coded.metrics.get('nv_pinned_memory_pool_used_bytes')).toBeLessThan(0.9 * 2 * layerBytes);
    expect(coded.metrics.get('turntable_gpu_coded_layers_wrong_total')).toBe(0);
    expect(plain.profile.layers.some((layer) => layer.coded !== undefined)).toBe(false);
    for (const layer of coded.profile.layers.filter(({ bytes }) => bytes > 0)) {
      expect(layer.bytes).toBe(layerBytes);
      expect(layer.coded!.bytes).toBeLessThan(0.9 * layerBytes);
      expect(layer.coded!.decode).toBeGreaterThan(0);
    }
  },
);

test.skipIf(emulatorMissing)(
  'a function whose layers come partly as they are, as its planner has chosen, moves these bytes and answers with the same bits',
  async () => {
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    const processes = new GpuProcesses(() => ({
      hostBytes: 2 ** 25,
      slabBytes: 2 ** 20,
      gpuBytes: 2 ** 25,
      cacheFolder: join(folder, 'process'),
      coding: 'auto',
    }));
    const input = tensorOf('x', 'FP32', [1, columns], Float32Array.from(values));
    const of = {
      key: 'products',
      modelPath: join(folder, 'products.onnx'),
      shapes: [{ name: 'x', shape: [1, columns] }],
    };
    await processes.use(async (client) => {
      const answers = new Set<string>();
      let loaded = [0];
      for (const which of [[], [0], [1], [0, 1]]) {
        const asTheyAre = which.map((rank) => loaded[rank]!);
        const coverage = await client.register({ ...of, settings: { precision: 'exact', asTheyAre } });
        if (!coverage.covered) throw new Error('the model is not covered');
        const { layers } = coverage;
        loaded = layers.flatMap(({ bytes }, layer) => (bytes > 0 ? [layer] : []));
        expect(loaded.map((layer) => layers[layer]!.codedBytes === undefined)).toEqual(
          loaded.map((_, rank) => which.includes(rank)),
        );
        await client.stage(of.key);
        const moved = async (): Promise<number> => (await client.state()).links[0]!.fromHost;
        const before = await moved();
        const plan = {
          mode: 'pipeswitch',
          primary: 0,
          secondaries: [],
          bytesGpu: coverage.weightBytes,
          layers: layers.map(({ name, bytes }) =>
            bytes > 0 ? ({ name, method: 'load', link: 0 } as const) : ({ name, method: 'dha', link: null } as const),
          ),
        } as const;
        const { outputs } = await client.run(of.key, [input], { gpu: 0, plan });
        const heldBytes = layers.reduce((sum, { bytes, codedBytes }) => sum + (codedBytes ?? bytes), 0);
        expect((await moved()) - before - input.data.byteLength).toBe(heldBytes);
        expect((await client.state()).host.usedBytes).toBe(heldBytes);
        answers.add(Buffer.from(outputs[0]!.data).toString('hex'));
        await client.unregister(of.key);
      }
      expect(answers.size).toBe(1);
    });
    await processes.stop();
  },
);
