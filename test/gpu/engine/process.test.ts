/** The GPU process on the emulated driver, from the host's side. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  GpuError,
  startGpuProcess,
  type GpuClient,
  type GpuCoverage,
  type GpuProcessOptions,
} from '../../../src/gpu/index.ts';
import { gpuProcessesHere } from '../../../src/hardware/index.ts';
import { buildArchitecture, ElementType, GraphBuilder, writeModel } from '../../../src/onnx/index.ts';
import type { ColdStartPlan } from '../../../src/plan/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { GpuProcesses } from '../../support/gpu-processes.ts';
import { relativeError, runOnnxRuntime } from '../../support/run-program.ts';
import { shaped } from '../../support/shapes.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

let folder: string;
let modelPath: string;
let environment: Readonly<Record<string, string>> = {};

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-process-'));
  modelPath = join(folder, 'bert.onnx');
  const settings = { layers: 1, hidden: 32, heads: 4, vocabulary: 50, positions: 40 };
  await writeModel(buildArchitecture('bert-base', settings).model, modelPath);
  environment = (await buildEmulatedDriver())?.environment ?? {};
});
afterAll(async () => {
  await processes.stop();
  await rm(folder, { recursive: true, force: true });
});

const ids = (rows: number, length: number, seed = 3): Tensor[] => {
  const count = rows * length;
  const tokens = (name: string, at: (index: number) => number): Tensor =>
    tensorOf(
      name,
      'INT64',
      [rows, length],
      BigInt64Array.from({ length: count }, (_, index) => BigInt(at(index))),
    );
  return [
    tokens('input_ids', (index) => (index * 7 + seed) % 50),
    tokens('attention_mask', () => 1),
    tokens('token_type_ids', (index) => index % 2),
  ];
};

type Covered = GpuCoverage & { covered: true };

function planOf({ layers }: Covered, mode: 'pipeswitch' | 'dha' = 'pipeswitch', primary = 0): ColdStartPlan {
  const isLoaded = ({ kind, bytes }: Covered['layers'][number]): boolean =>
    bytes > 0 && !(mode === 'dha' && kind === 'embedding');
  return {
    mode,
    primary,
    secondaries: [],
    bytesGpu: layers.reduce((sum, layer) => sum + (isLoaded(layer) ? layer.bytes : 0), 0),
    layers: layers.map((layer) => ({
      name: layer.name,
      method: isLoaded(layer) ? 'load' : 'dha',
      link: isLoaded(layer) ? primary : null,
    })),
  };
}

let lines: string[] = [];
const processes = new GpuProcesses(() => ({
  hostBytes: 2 ** 24,
  slabBytes: 2 ** 20,
  gpuBytes: 2 ** 26,
  cacheFolder: join(folder, 'cache'),
  environment,
  log: (line) => lines.push(line),
}));

async function withProcess(
  change: Partial<GpuProcessOptions> | undefined,
  test: (client: GpuClient) => Promise<void>,
): Promise<void> {
  lines = [];
  await processes.use(test, change);
  expect(lines).toEqual([]);
}

async function register(client: GpuClient, key = 'bert@1', isStaged = true): Promise<Covered> {
  const coverage = await client.register({ key, modelPath, shapes: shapesOf(ids(1, 6)) });
  if (!coverage.covered) throw new Error(coverage.obstacles.map(({ reason }) => reason).join());
  if (isStaged) await client.stage(key);
  return coverage;
}

const hostOf = (bytes: number) => [{ key: 'bert@1', host: { bytes, filledBytes: bytes }, sharedBytes: 0 }];

async function codeOf(attempt: Promise<unknown>): Promise<string> {
  try {
    await attempt;
    return 'none';
  } catch (error) {
    return error instanceof GpuError ? error.code : String(error);
  }
}

async function expectAnswer(outputs: readonly Tensor[], inputs: readonly Tensor[]): Promise<void> {
  for (const expected of await runOnnxRuntime(modelPath, inputs)) {
    const actual = outputs.find(({ name }) => name === expected.name)!;
    expect(relativeError(actual, expected)).toBeLessThan(1e-4);
  }
}

describe.skipIf(emulatorMissing)('the GPU process', () => {
  it('the GPU process answers cold, warm, and for new shapes', async () => {
    await withProcess(undefined, async (client) => {
      const info = await client.ready;
      expect(info.devices[0]).toMatchObject({ index: 0, limitBytes: 2 ** 26 });
      const plan = planOf(await register(client));
      const inputs = ids(1, 6);
      const cold = await client.run('bert@1', inputs, { gpu: 0, plan, trace: true });
      expect(cold).toMatchObject({ start: 'cold', loadedBytes: plan.bytesGpu });
      expect(cold.timeline?.layers).toHaveLength(plan.layers.length);
      await expectAnswer(cold.outputs, inputs);
      const longer = ids(1, 9);
      const warm = await client.run('bert@1', longer, { gpu: 0, plan });
      expect(warm).toMatchObject({ start: 'warm', loadedBytes: 0 });
      await expectAnswer(warm.outputs, longer);
    });
  });

  it('the GPU process says before the outputs of a run come that the next one should be ordered', async () => {
    await withProcess(undefined, async (client) => {
      const plan = planOf(await register(client));
      const inputs = ids(1, 6);
      const heard: string[] = [];
      for (const name of ['first', 'second', 'third']) {
        const { outputs } = await client.run('bert@1', inputs, { gpu: 0, plan, onLaneFree: () => heard.push(name) });
        heard.push('outputs');
        await expectAnswer(outputs, inputs);
      }
      expect(heard).toEqual(['first', 'outputs', 'second', 'outputs', 'third', 'outputs']);
    });
  });

  it('the GPU process reports residency and host memory, and frees them', async () => {
    await withProcess(undefined, async (client) => {
      const coverage = await register(client, 'bert@1', false);
      const tiers = async () => (await client.state()).host.functions;
      expect(await tiers()).toEqual(hostOf(0));
      const { weightBytes, layers } = coverage;
      expect(await client.stage('bert@1')).toMatchObject({ kind: 'staged', bytes: weightBytes });
      expect(await tiers()).toEqual(hostOf(weightBytes));
      expect(await client.drop('bert@1', [...layers.keys()])).toBe(weightBytes);
      expect(await tiers()).toEqual(hostOf(0));
      await client.stage('bert@1');
      const plan = planOf(coverage);
      const [before] = (await client.state()).links;
      expect((await client.load('bert@1', { gpu: 0, plan })).bytes).toBeGreaterThan(0);
      const state = await client.state();
      expect(state.residencies).toEqual([
        expect.objectContaining({ key: 'bert@1', gpu: 0, bytes: plan.bytesGpu, loading: false }),
      ]);
      expect(state.memory[0]!.weightBytes).toBe(plan.bytesGpu);
      const [link] = state.links;
      expect(link!.fromHost - before!.fromHost).toBe(plan.bytesGpu);
      expect(link!.toHost).toBe(before!.toHost);
      expect(await client.trim('bert@1', 0, 2)).toBeGreaterThan(0);
      expect((await client.state()).residencies[0]!.layers).toHaveLength(2);
      await client.evict('bert@1', 0);
      await client.unregister('bert@1');
      const after = await client.state();
      expect(after).toMatchObject({ residencies: [], host: { pinnedBytes: 0, usedBytes: 0, functions: [] } });
      expect(after.memory[0]!.freeBytes).toBe(after.memory[0]!.limitBytes);
      expect(await codeOf(client.run('bert@1', ids(1, 6), { gpu: 0, plan }))).toBe('unknown-function');
    });
  });

  it('the GPU process names the operators that it lacks before it loads anything', async () => {
    const graph = new GraphBuilder('odd');
    const x = graph.input('x', ElementType.FLOAT, [2, 4]);
    graph.output(
      graph.node('Normalizer', [x], { norm: 'L2' }, { domain: 'ai.onnx.ml' }),
      ElementType.FLOAT,
      [2, 4],
      'z',
    );
    const odd = join(folder, 'odd.onnx');
    await writeModel(graph.build(), odd);
    await withProcess(undefined, async (client) => {
      const coverage = await client.register({ key: 'odd@1', modelPath: odd, shapes: shaped({ x: [2, 4] }) });
      expect(coverage).toMatchObject({
        covered: false,
        obstacles: expect.arrayContaining([expect.objectContaining({ operator: 'ai.onnx.ml.Normalizer' })]),
      });
      expect(await codeOf(client.register({ key: 'no@1', modelPath: join(folder, 'none.onnx'), shapes: [] }))).toBe(
        'invalid',
      );
    });
  });

  it('the GPU process uses its own kernels for products that the library has no algorithm for', async () => {
    const machine = JSON.stringify({ devices: [{}], defects: ['products'] });
    await withProcess({ environment: { ...environment, TURNTABLE_EMULATOR: machine } }, async (client) => {
      const plan = planOf(await register(client));
      for (const inputs of [ids(1, 6), ids(1, 9)]) {
        const { outputs } = await client.run('bert@1', inputs, { gpu: 0, plan });
        expect(outputs.length).toBeGreaterThan(0);
        await expectAnswer(outputs, inputs);
      }
    });
  });

  it('the GPU process measures each layer, and the bandwidths of the GPUs', async () => {
    await withProcess(undefined, async (client) => {
      const coverage = await register(client);
      const profile = await client.measure('bert@1', { gpu: 0, iterations: 3 });
      expect(profile.layers.map(({ name }) => name)).toEqual(coverage.layers.map(({ name }) => name));
      for (const [index, { bytes, load, exec, dha }] of profile.layers.entries()) {
        expect(bytes).toBe(coverage.layers[index]!.bytes);
        expect([load, exec, dha].every((ms) => Number.isFinite(ms) && ms >= 0)).toBe(true);
        expect(load > 0).toBe(bytes > 0);
        const { minMs, medianMs, maxMs } = profile.spread[index]!.exec;
        expect(minMs <= medianMs && medianMs <= maxMs).toBe(true);
      }
      expect(profile.warm.medianMs).toBeGreaterThan(0);
      const topology = await client.topology(2 ** 16);
      expect(topology.gpus[0]!.loadGBps).toBeGreaterThan(0);
      // The measured function still answers correctly.
      const inputs = ids(1, 6);
      const { outputs, start } = await client.run('bert@1', inputs, { gpu: 0, plan: planOf(coverage) });
      expect(start).toBe('warm');
      await expectAnswer(outputs, inputs);
    });
  });

  it("the GPU process that is killed rejects requests in flight with 'died', and works again after a restart", async () => {
    await withProcess(undefined, async (client) => {
      const plan = planOf(await register(client), 'dha');
      const inputs = ids(1, 6);
      await client.run('bert@1', inputs, { gpu: 0, plan });
      const down = new Promise<string>((resolve) => client.onDown(resolve));
      // `turntable doctor --measure` copies nothing beside it.
      expect(gpuProcessesHere()).toContain(client.pid);
      // Stopped, so that no request is answered before the kill.
      process.kill(client.pid, 'SIGSTOP');
      const inFlight = Promise.all([1, 2, 3].map(() => codeOf(client.run('bert@1', inputs, { gpu: 0, plan }))));
      process.kill(client.pid, 'SIGKILL');
      expect(await inFlight).toEqual(['died', 'died', 'died']);
      expect(await down).toMatch(/SIGKILL|socket/);
      expect(client.status).toBe('dead');
      expect(await codeOf(client.state())).toBe('died');
      await client.reopen();
      await client.registerAgain('bert@1');
      await client.stage('bert@1');
      expect(client.status).toBe('up');
      const again = await client.run('bert@1', inputs, { gpu: 0, plan });
      expect(again.start).toBe('cold');
      await expectAnswer(again.outputs, inputs);
    });
  });

  it("the GPU process that hangs is ended: its requests are rejected with 'died', and the next process serves", async () => {
    await withProcess({ silenceMsMax: 3000 }, async (client) => {
      const plan = planOf(await register(client));
      const inputs = ids(1, 6);
      const down = new Promise<string>((resolve) => client.onDown(resolve));
      process.kill(client.pid, 'SIGSTOP');
      expect(await codeOf(client.run('bert@1', inputs, { gpu: 0, plan }))).toBe('died');
      expect(await down).toBe('it has not answered for 3 s');
      await client.reopen();
      await client.registerAgain('bert@1');
      await client.stage('bert@1');
      await expectAnswer((await client.run('bert@1', inputs, { gpu: 0, plan })).outputs, inputs);
    });
  });

  it('the GPU process refuses with a code if GPU memory, host memory, inputs or the GPU do not fit', async () => {
    await withProcess({ gpuBytes: 2 ** 14 }, async (client) => {
      const plan = planOf(await register(client));
      expect(await codeOf(client.run('bert@1', ids(1, 6), { gpu: 0, plan }))).toBe('out-of-memory');
      expect(await codeOf(client.run('bert@1', ids(1, 6).slice(1), { gpu: 0, plan }))).toBe('invalid');
      expect(await codeOf(client.evict('bert@1', 7))).toBe('unknown-gpu');
      expect((await client.state()).memory[0]!.weightBytes).toBe(0);
    });
    await withProcess({ hostBytes: 2 ** 12, slabBytes: 2 ** 12 }, async (client) => {
      const plan = planOf(await register(client, 'bert@1', false));
      expect(await client.stage('bert@1')).toEqual({ kind: 'refused', largestFreeBytes: 2 ** 12 });
      expect(await codeOf(client.run('bert@1', ids(1, 6), { gpu: 0, plan }))).toBe('host-memory');
    });
  });

  it('the GPU process without a driver names the libraries that it tried', async () => {
    const client = startGpuProcess({
      hostBytes: 2 ** 20,
      cacheFolder: join(folder, 'cache'),
      environment: { ...environment, TURNTABLE_LIBCUDA: join(folder, 'no-such.so') },
    });
    await expect(client.ready).rejects.toThrow(/no-such\.so/);
    expect(await codeOf(client.ready)).toBe('unavailable');
    await client.stop();
  });
});
