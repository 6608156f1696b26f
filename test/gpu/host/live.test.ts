/**
 * More functions than the GPUs hold, with one host over real HTTP: the scheduler and the GPU process, on the emulated
 * driver.
 */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { placedText } from '../../../src/cli/ps.ts';
import type { FunctionsAnswer } from '../../../src/host/dashboard/index.ts';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { placementText, type InvocationRecord } from '../../../src/host/calls/placement.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import type { ColdStartPlan } from '../../../src/plan/index.ts';
import { Xoshiro } from '../../../src/replay/index.ts';
import { policies, type Action } from '../../../src/schedule/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';
import { recordSchedulers, replaySteps, type SchedulerRecording } from '../../support/scheduler-recording.ts';

const functionsEach = 12;
const invocationsMax = 600;
const connections = 20;
const mebibyte = 2 ** 20;
/** Of each GPU: four functions, and what their runs need beside the weights. */
const gpuMemory = '4.6MiB';

interface Kind {
  readonly name: string;
  readonly architecture: string;
  readonly settings: Readonly<Record<string, number | string>>;
  readonly inputs: () => Tensor[];
}

/** Between 0 and 1, the same every time. */
const fraction = (index: number): number => ((index * 7919) % 1000) / 1000;
const floats = (name: string, shape: number[]): Tensor => {
  const count = shape.reduce((product, size) => product * size, 1);
  return tensorOf(
    name,
    'FP32',
    shape,
    Float32Array.from({ length: count }, (_, index) => fraction(index) - 0.5),
  );
};
const tokens = (name: string, at: (index: number) => number): Tensor =>
  tensorOf(
    name,
    'INT64',
    [1, 8],
    BigInt64Array.from({ length: 8 }, (_, index) => BigInt(at(index))),
  );

const kinds: readonly Kind[] = [
  {
    name: 'bert',
    architecture: 'bert-base',
    settings: { layers: 1, hidden: 128, heads: 2, vocabulary: 200, positions: 32, sequence: 8 },
    inputs: () => [
      tokens('input_ids', (index) => (index * 7) % 200),
      tokens('attention_mask', () => 1),
      tokens('token_type_ids', (index) => index % 2),
    ],
  },
  {
    name: 'resnet',
    architecture: 'resnet50',
    settings: { image: 16, width: 10, blocks: '1,1,1,1', classes: 10, batch: 1 },
    inputs: () => [floats('input', [1, 3, 16, 16])],
  },
  {
    name: 'lstm',
    architecture: 'lstm',
    settings: { layers: 2, input: 32, hidden: 128, sequence: 4, batch: 1 },
    inputs: () => [floats('input', [1, 4, 32])],
  },
];

const names = kinds.flatMap(({ name }) => Array.from({ length: functionsEach }, (_, index) => `${name}-${index}`));
const kindOf = (name: string): Kind => kinds.find((kind) => name.startsWith(`${kind.name}-`))!;

interface Reply {
  readonly outputs: readonly { readonly name: string; readonly data: readonly number[] }[];
}

const random = new Xoshiro(Number(process.env['TURNTABLE_SEED'] ?? 1));
let folder: string;
let host: RunningHost;
let recording: SchedulerRecording;
const records: InvocationRecord[] = [];
/** ONNX Runtime's answers, by function. */
const expected = new Map<string, ReadonlyMap<string, readonly number[]>>();
const bodies = new Map<string, string>();
const weightBytes = new Map<string, number>();

const numbersOf = ({ datatype, data }: Tensor): number[] => {
  if (datatype !== 'FP32') throw new Error(`an output of ${datatype}`);
  return [...new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4)];
};

async function addFunction(name: string, seed: number): Promise<void> {
  const { architecture, settings, inputs } = kindOf(name);
  const place = join(folder, 'functions', name);
  await mkdir(place, { recursive: true });
  const built = buildArchitecture(architecture, settings, seed);
  weightBytes.set(name, built.weightBytes);
  await writeModel(built.model, join(place, 'model.onnx'));
  await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '60s' }));
  const outputs = await runOnnxRuntime(join(place, 'model.onnx'), inputs());
  expected.set(name, new Map(outputs.map((output) => [output.name, numbersOf(output)])));
  const given = inputs().map(({ name: input, datatype, shape, data }) => ({
    name: input,
    datatype,
    shape,
    data:
      datatype === 'INT64'
        ? Array.from(new BigInt64Array(data.buffer, data.byteOffset, data.byteLength / 8), Number)
        : [...new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4)],
  }));
  bodies.set(name, JSON.stringify({ inputs: given }));
}

/** Undefined if the answer is that of ONNX Runtime. */
function wrongWith(name: string, status: number, text: string): string | undefined {
  if (status !== 200) return `${name}: ${status} ${text.slice(0, 300)}`;
  const { outputs } = JSON.parse(text) as Reply;
  for (const [output, wanted] of expected.get(name)!) {
    const found = outputs.find((each) => each.name === output)?.data;
    if (found?.length !== wanted.length) return `${name}: ${output} has ${found?.length} elements`;
    const size = Math.max(...wanted.map(Math.abs));
    const difference = Math.max(...wanted.map((value, index) => Math.abs(value - found[index]!)));
    if (!(difference <= 1e-4 * size)) return `${name}: ${output} is off by ${difference} of ${size}`;
  }
  return undefined;
}

interface ModelStatistics {
  readonly inference_stats: { readonly success: { readonly count: number } };
  readonly turntable: unknown;
}

interface Burst {
  readonly wrong: readonly string[];
  /** Placements other than GPUs, in full: they give the reason. */
  readonly elsewhere: readonly string[];
  /** By the first two words of the placement. */
  readonly placements: ReadonlyMap<string, number>;
  readonly answered: number;
}

/** Invokes random functions, one after another on each of the connections. */
async function invokeAtRandom(count: number, afterEach?: (answered: number) => void): Promise<Burst> {
  const wrong: string[] = [];
  const elsewhere: string[] = [];
  const placements = new Map<string, number>();
  let started = 0;
  let answered = 0;
  const connection = async (): Promise<void> => {
    while (started < count) {
      started++;
      const name = names[random.below(names.length)]!;
      const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body: bodies.get(name)! });
      const problem = wrongWith(name, reply.status, await reply.text());
      if (problem !== undefined) wrong.push(problem);
      const told = reply.headers.get('x-turntable-placement') ?? '';
      if (!told.startsWith('gpu')) elsewhere.push(`${name}: ${told}`);
      const placement = told.split(' ').slice(0, 2).join(' ');
      placements.set(placement, (placements.get(placement) ?? 0) + 1);
      answered++;
      afterEach?.(answered);
    }
  };
  await Promise.all(Array.from({ length: connections }, connection));
  return { wrong, elsewhere, placements, answered };
}

async function samples(): Promise<ReadonlyMap<string, number>> {
  const text = await (await fetch(`${host.url}/metrics`)).text();
  return new Map(
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  );
}

/** The share of each GPU's engine memory that is weights. */
const weightShares = async (): Promise<readonly number[]> =>
  (await host.gpus!.state())!.memory.map(({ weightBytes, limitBytes }) => weightBytes / limitBytes);

const sumOf = (all: ReadonlyMap<string, number>, matching: RegExp): number =>
  [...all].filter(([series]) => matching.test(series)).reduce((sum, [, value]) => sum + value, 0);

describe.skipIf(emulatorMissing)('a host with two GPUs that hold eight of 36 functions', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-live-'));
    const device = { memoryBytes: 64 * mebibyte };
    await emulateGpus([device, device]);
    for (const [index, name] of names.entries()) await addFunction(name, index);
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '2',
        'cpu.profiling': 'off',
        'gpu.memory': gpuMemory,
        'gpu.hostMemory': '128MiB',
        'gpu.profileIterations': '1',
      },
    });
    recording = recordSchedulers();
    host = await startHost(config, {
      logger: createLogger({ level: process.env['TURNTABLE_TEST_LOG'] === '1' ? 'info' : 'silent', format: 'json' }),
      recorder: { record: (record) => records.push(record) },
    });
    await host.gpus!.settled();
  });
  afterAll(async () => {
    await host?.stop();
    recording?.[Symbol.dispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('every function is planned, and eight of them fit', () => {
    const functions = names.map((name) => host.gpus!.record(`${name}@1`));
    expect(functions.filter((record) => record?.state.kind !== 'planned')).toEqual([]);
    const bytes = [...weightBytes.values()];
    for (const { capacityBytes } of host.gpus!.live.gpus) {
      expect(4 * Math.max(...bytes)).toBeLessThanOrEqual(capacityBytes);
      expect(5 * Math.min(...bytes)).toBeGreaterThan(capacityBytes);
    }
  });

  test('the plan of every function can be read', async () => {
    for (const name of names) {
      const text = await readFile(join(folder, 'data', 'plans', `${name}@1.json`), 'utf8');
      const written = JSON.parse(text) as { readonly gpus: readonly { readonly plan: ColdStartPlan }[] };
      expect(written).toMatchObject({ function: `${name}@1`, mode: 'interleave' });
      expect(written.gpus.map(({ plan }) => plan.primary)).toEqual([0, 1]);
      expect(written.gpus[0]!.plan.layers.some(({ method }) => method === 'load')).toBe(true);
    }
    // Functions of one structure were measured once.
    expect(await readdir(join(folder, 'data', 'plans', 'profiles'))).toHaveLength(kinds.length);
  });

  test("a host with two GPUs that hold eight of 36 functions answers 600 invocations as ONNX Runtime does, and all counts agree with the scheduler's", async () => {
    const gpus = host.gpus!;
    const shares: Promise<readonly number[]>[] = [];
    const burst = await invokeAtRandom(invocationsMax, (answered) => {
      if (answered % 10 === 0) shares.push(weightShares());
    });
    expect(burst.wrong).toEqual([]);
    expect(burst.elsewhere).toEqual([]);
    const counts = gpus.live.counts;
    const { cold, partial, warm, disk } = counts.starts;
    expect(cold + partial + warm + disk).toBe(invocationsMax);
    const scraped = await samples();
    const coldStarts = sumOf(scraped, /^turntable_cold_starts_total\{.*plan="(?!cpu)/);
    expect(coldStarts).toBe(cold + partial + disk);
    const evictions = [...counts.evictions.values()].reduce((sum, count) => sum + count, 0);
    expect(sumOf(scraped, /^turntable_evictions_total\{.*cause="gpu /)).toBe(evictions);
    expect(Math.max(...(await Promise.all(shares)).flat())).toBeLessThanOrEqual(0.85);
    // Layers are removed only for another function, so both GPUs stay full once they have been.
    expect(Math.min(...(await weightShares()))).toBeGreaterThan(0.5);
  });

  test('places, starts and evicts exactly like a scheduler that gets the same arrivals and completions', async () => {
    const { live } = host.gpus!;
    await live.gpusIdle();
    const { steps } = recording;
    const { gpus } = live;
    const cpu = { cores: 2, memoryBytes: Infinity };
    const hostTier = { capacityBytes: 128 * mebibyte, diskGBps: 1 };
    const { scheduler, actions } = replaySteps(steps, { gpus, policy: policies.best, cpu, host: hostTier });
    expect(actions).toEqual(steps.map((step) => step.actions));
    // Its orders match the replies, /metrics and the engine: nothing is lost, and nothing is made up.
    const ordered = actions.flat().map((text) => JSON.parse(text) as Action);
    const nameOf = new Map(names.map((name) => [live.placeOf(`${name}@1`)!.index, name]));
    const runs = ordered.flatMap((action) =>
      action.kind === 'run' ? [`${nameOf.get(action.functionIndex)} gpu${action.gpu} ${action.start}`] : [],
    );
    const answered = records.slice(0, invocationsMax).map(({ functionName, ran }) => {
      const [gpu, start] = placementText(ran!.placement).split(' ');
      return `${functionName} ${gpu} ${start}`;
    });
    expect(runs.toSorted()).toEqual(answered.toSorted());
    const evicted = new Map<string, number>();
    for (const action of ordered) {
      // A plan that changes while functions are measured is not an eviction for room.
      if (action.kind !== 'evict' || action.cause === 'plan-changed') continue;
      const series = `turntable_evictions_total{function="${nameOf.get(action.functionIndex)}",cause="gpu ${action.cause}"}`;
      evicted.set(series, (evicted.get(series) ?? 0) + 1);
    }
    expect(evicted.size).toBeGreaterThan(functionsEach);
    const scraped = await samples();
    expect([...evicted.keys()].map((series) => [series, scraped.get(series)])).toEqual([...evicted]);
    const expectedBytes = names.flatMap((name) =>
      gpus.map((_, gpu) => {
        const { index } = live.placeOf(`${name}@1`)!;
        const bytes = scheduler.residentOffer(index, gpu)?.prefixBytes[scheduler.residentPrefix(index, gpu)] ?? 0;
        return `${name}@1 gpu${gpu}: ${bytes}`;
      }),
    );
    const residencies = (await host.gpus!.state())!.residencies;
    const engineBytes = names.flatMap((name) =>
      gpus.map((_, gpu) => {
        const own = residencies.find((each) => each.key === `${name}@1` && each.gpu === gpu);
        return `${name}@1 gpu${gpu}: ${own?.bytes ?? 0}`;
      }),
    );
    expect(engineBytes).toEqual(expectedBytes);
  });

  test('/metrics, the statistics of the models, the API and `turntable ps` say the same', async () => {
    const { functions } = (await (await fetch(`${host.url}/api/functions`)).json()) as FunctionsAnswer;
    const scraped = await samples();
    const text = placedText({ functions }, Date.now());
    for (const { name, hits, coldStarts, evictions, gpuBytes, hostBytes, plan, gpuState } of functions) {
      const reply = await (await fetch(`${host.url}/v2/models/${name}/stats`)).json();
      const [stats] = (reply as { model_stats: readonly [ModelStatistics] }).model_stats;
      expect(stats.turntable).toMatchObject({ hits, cold_starts: coldStarts, evictions });
      expect(stats.inference_stats.success.count).toBe(hits + coldStarts);
      expect(sumOf(scraped, new RegExp(`^turntable_cold_starts_total\\{function="${name}"`))).toBe(coldStarts);
      for (const [cause, count] of Object.entries(evictions)) {
        expect(scraped.get(`turntable_evictions_total{function="${name}",cause="${cause}"}`)).toBe(count);
      }
      expect(plan).toBe('dha, 1 link: no NVLink found');
      expect(gpuState).toEqual({ kind: gpuBytes > 0 ? 'resident' : 'planned', whyNot: null });
      expect(hostBytes).toBeGreaterThan(0);
      const residents = host.gpus!.live.gpus.map((_, gpu) => host.gpus!.live.resident(`${name}@1`, gpu).bytes);
      expect(gpuBytes).toBe(residents.reduce((sum, bytes) => sum + bytes, 0));
      expect(text).toMatch(new RegExp(`^${name}@1 +\\w+ .* ago +${hits} +${coldStarts} `, 'm'));
    }
    // The engine counts its own bytes; the scheduler those that it believes to be there.
    const weightBytes = sumOf(scraped, /^turntable_gpu_weight_bytes\{/);
    expect(weightBytes).toBe(functions.reduce((sum, { gpuBytes }) => sum + gpuBytes, 0));
    expect(sumOf(scraped, /^nv_gpu_memory_used_bytes\{gpu_uuid=/)).toBeGreaterThanOrEqual(weightBytes);
    expect(sumOf(scraped, /^nv_gpu_memory_total_bytes\{gpu_uuid=/)).toBe(
      host.gpus!.info!.devices.reduce((sum, { limitBytes }) => sum + limitBytes, 0),
    );
    expect([...scraped.keys()].filter((series) => series.startsWith('nv_gpu_utilization{'))).toHaveLength(2);
    // Each weight came over a link, and some more than once; each answer went back.
    expect(sumOf(scraped, /^turntable_gpu_link_bytes_total\{.*"from_host"/)).toBeGreaterThanOrEqual(weightBytes);
    expect(sumOf(scraped, /^turntable_gpu_link_bytes_total\{.*"to_host"/)).toBeGreaterThan(0);
    expect(scraped.get('nv_pinned_memory_pool_used_bytes')).toBe(
      functions.reduce((sum, { hostBytes }) => sum + hostBytes, 0),
    );
    expect(scraped.get('nv_pinned_memory_pool_total_bytes')).toBe(128 * mebibyte);
    expect(sumOf(scraped, /^turntable_gpu_prediction_error_ratio_count\{/)).toBe(invocationsMax);
  });

  test('a scrape does not count as use, an unload frees the bytes, and a load brings them back', async () => {
    const gpus = host.gpus!;
    const name = 'bert-3';
    const path = `${host.url}/v2/repository/models/${name}`;
    const bytesOf = async (): Promise<number> => {
      const residencies = (await gpus.state())?.residencies ?? [];
      return residencies.filter(({ key }) => key === `${name}@1`).reduce((sum, { bytes }) => sum + bytes, 0);
    };
    expect((await fetch(`${path}/load`, { method: 'POST' })).status).toBe(200);
    const lastUse = async (): Promise<number | undefined> => {
      const { functions } = (await (await fetch(`${host.url}/api/functions`)).json()) as FunctionsAnswer;
      return functions.find((each) => each.name === name)?.lastUseMs;
    };
    const before = await lastUse();
    expect(await bytesOf()).toBeGreaterThan(0);
    await samples();
    expect(await lastUse()).toBe(before);
    expect((await fetch(`${path}/unload`, { method: 'POST' })).status).toBe(200);
    expect(await bytesOf()).toBe(0);
    expect(gpus.live.resident(`${name}@1`, 0).bytes + gpus.live.resident(`${name}@1`, 1).bytes).toBe(0);
  });

  test('loses no request when the GPU process is killed, and gets the GPUs back', async () => {
    const gpus = host.gpus!;
    const burst = await invokeAtRandom(100, (answered) => {
      if (answered === 40) process.kill(gpus.pid, 'SIGKILL');
    });
    expect(burst.wrong).toEqual([]);
    expect(burst.answered).toBe(100);
    await vi.waitUntil(() => gpus.restarts === 1 && gpus.status === 'up');
    await gpus.settled();
    expect(names.map((name) => gpus.whyNot(`${name}@1`)?.words).filter((reason) => reason !== undefined)).toEqual([]);
    const after = await invokeAtRandom(40);
    expect(after.wrong).toEqual([]);
    expect([...after.placements.keys()].filter((placement) => placement.startsWith('cpu'))).toEqual([]);
  });
});
