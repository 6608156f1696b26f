/**
 * Recurrent functions with plan variants over a GPU and a CPU core, with one host over real HTTP, on the emulated
 * driver.
 */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { fitKeptProfiles } from '../../../bench/chrion/fitted-profiles.ts';
import { placedText } from '../../../src/cli/ps.ts';
import type { FunctionsAnswer } from '../../../src/host/dashboard/index.ts';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { buildArchitecture, ElementType, GraphBuilder, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { Xoshiro } from '../../../src/replay/index.ts';
import type { GpuOffer, Start } from '../../../src/schedule/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../../support/run-program.ts';
import { wave } from '../../support/unrolling.ts';
import { unrolledNetwork } from '../../support/unrolled-networks.ts';

const { FLOAT } = ElementType;
const connections = 6;
const invocations = 120;
/** Inputs of each function. */
const examples = 2;
const mebibyte = 2 ** 20;
/** About half of all weights, and what runs need beside them. */
const gpuMemory = '3MiB';

interface Kind {
  readonly name: string;
  readonly model: () => ModelProto;
  readonly input: string;
  readonly shape: readonly number[];
}

/** Two of the same weights would share them. */
const seedOf = (name: string): number =>
  Buffer.from(name).reduce((hash, byte) => (Math.imul(hash, 31) + byte) >>> 0, 7);

const recurrent = (name: string, architecture: 'lstm' | 'gru', settings: RecurrentSettings): Kind => ({
  name,
  model: () => buildArchitecture(architecture, { batch: 1, ...settings }, seedOf(name)).model,
  input: 'input',
  shape: [1, settings.sequence, settings.hidden],
});

interface RecurrentSettings {
  readonly layers: number;
  readonly hidden: number;
  readonly sequence: number;
}

/** Two layers of two directions as PyTorch exports them, batch first at both ends. */
function bidirectional(width: number, steps: number): ModelProto {
  const graph = new GraphBuilder('main_graph');
  let x = graph.node('Transpose', [graph.input('input', FLOAT, [1, steps, width])], { perm: [1, 0, 2] });
  for (const layer of [0, 1]) {
    x = graph.scope(`layer.${layer}`, () => {
      const columns = layer === 0 ? width : 2 * width;
      const weight = (name: string, shape: readonly number[]): string =>
        graph.weight(name, shape, wave(shape, layer + 1, 0.2));
      const matrices = [weight('w', [2, 4 * width, columns]), weight('r', [2, 4 * width, width])];
      const attributes = { hidden_size: width, direction: 'bidirectional' };
      const [y] = graph.node('LSTM', [x, ...matrices], attributes, { outputs: 3 });
      const beside = graph.node('Transpose', [y], { perm: [0, 2, 1, 3] });
      return graph.node('Reshape', [beside, graph.constant({ ints: [0, 0, -1] })]);
    });
  }
  graph.output(graph.node('Transpose', [x], { perm: [1, 0, 2] }), FLOAT, [1, steps, 2 * width], 'output');
  return graph.build();
}

/** The engine has no Normalizer. */
function withNormalizer(width: number): ModelProto {
  const graph = new GraphBuilder('odd');
  const x = graph.input('input', FLOAT, [2, width]);
  const weight = (name: string, seed: number): string =>
    graph.weight(name, [width, width], wave([width, width], seed, 0.3));
  const odd = graph.node(
    'Normalizer',
    [graph.node('MatMul', [x, weight('before', 1)])],
    { norm: 'L2' },
    { domain: 'ai.onnx.ml' },
  );
  graph.output(graph.node('MatMul', [odd, weight('behind', 2)]), FLOAT, [2, width], 'output');
  return graph.build();
}

const base = { layers: 4, hidden: 64, sequence: 6 };
const wide = { layers: 3, hidden: 96, sequence: 4 };
const kinds: readonly Kind[] = [
  recurrent('lstm-base', 'lstm', base),
  recurrent('lstm-other', 'lstm', base),
  recurrent('lstm-wide', 'lstm', wide),
  // 24 steps are twice as many as cells: each has two.
  recurrent('lstm-long', 'lstm', { layers: 3, hidden: 64, sequence: 24 }),
  {
    name: 'lstm-cells',
    model: () => unrolledNetwork('lstm', { layers: 4, input: 64, hidden: 64, sequence: 5, batch: 1 }, 'cells', 7),
    input: 'input',
    shape: [1, 5, 64],
  },
  recurrent('gru-base', 'gru', { ...wide, hidden: 112 }),
  recurrent('gru-other', 'gru', { ...wide, hidden: 112 }),
  { name: 'both-ways', model: () => bidirectional(64, 4), input: 'input', shape: [1, 4, 64] },
  { name: 'hardmax', model: () => withNormalizer(256), input: 'input', shape: [2, 256] },
];
/** Functions of one structure are measured once. */
const structures = 7;
const isRecurrent = ({ name }: Kind): boolean => name !== 'hardmax';
const names = kinds.map(({ name }) => name);

interface Example {
  readonly body: string;
  readonly expected: ReadonlyMap<string, readonly number[]>;
}

interface Reply {
  readonly outputs: readonly { readonly name: string; readonly data: readonly number[] }[];
}

const random = new Xoshiro(Number(process.env['TURNTABLE_SEED'] ?? 1));
let folder: string;
let host: RunningHost;
let fitted: number;
const examplesOf = new Map<string, readonly Example[]>();

const numbersOf = ({ data }: Tensor): number[] => [
  ...new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4),
];

async function addFunction({ name, model, input, shape }: Kind): Promise<void> {
  const place = join(folder, 'functions', name);
  await mkdir(place, { recursive: true });
  await writeModel(model(), join(place, 'model.onnx'));
  await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '60s' }));
  const made: Example[] = [];
  for (let number = 0; number < examples; number++) {
    const tensor = tensorOf(input, 'FP32', shape, wave(shape, number + 5));
    const outputs = await runOnnxRuntime(join(place, 'model.onnx'), [tensor]);
    made.push({
      body: JSON.stringify({ inputs: [{ name: input, datatype: 'FP32', shape, data: numbersOf(tensor) }] }),
      expected: new Map(outputs.map((output) => [output.name, numbersOf(output)])),
    });
  }
  examplesOf.set(name, made);
}

async function start(): Promise<RunningHost> {
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      'cpu.profiling': 'off',
      'gpu.memory': gpuMemory,
      'gpu.hostMemory': '32MiB',
      'gpu.profileIterations': '1',
      'gpu.hybrid': 'memory',
      'gpu.hybridCores': '1',
    },
  });
  const level = process.env['TURNTABLE_TEST_LOG'] === '1' ? 'info' : 'silent';
  const started = await startHost(config, { logger: createLogger({ level, format: 'json' }) });
  await started.gpus!.settled();
  return started;
}

/** Undefined if the answer is that of ONNX Runtime. */
function wrongWith(name: string, expected: Example['expected'], status: number, text: string): string | undefined {
  if (status !== 200) return `${name}: ${status} ${text.slice(0, 300)}`;
  const { outputs } = JSON.parse(text) as Reply;
  for (const [output, wanted] of expected) {
    const found = outputs.find((each) => each.name === output)?.data;
    if (found?.length !== wanted.length) return `${name}: ${output} has ${found?.length} elements`;
    const size = Math.max(...wanted.map(Math.abs));
    const difference = Math.max(...wanted.map((value, index) => Math.abs(value - found[index]!)));
    if (!(difference <= 1e-4 * size)) return `${name}: ${output} is off by ${difference} of ${size}`;
  }
  return undefined;
}

interface Answer {
  readonly name: string;
  readonly placement: string;
  readonly problem: string | undefined;
}

async function invoke(name: string): Promise<Answer> {
  const { body, expected } = examplesOf.get(name)![random.below(examples)]!;
  const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
  const problem = wrongWith(name, expected, reply.status, await reply.text());
  return { name, placement: reply.headers.get('x-turntable-placement') ?? '', problem };
}

/** Invokes random functions, one after another on each of the connections. */
async function invokeAtRandom(count: number, afterEach?: (answers: readonly Answer[]) => void): Promise<Answer[]> {
  const answers: Answer[] = [];
  let started = 0;
  const connection = async (): Promise<void> => {
    while (started < count) {
      started++;
      answers.push(await invoke(names[random.below(names.length)]!));
      afterEach?.(answers);
    }
  };
  await Promise.all(Array.from({ length: connections }, connection));
  return answers;
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
const changes = (name: string, direction: string): string =>
  `turntable_plan_changes_total{function="${name}",direction="${direction}"}`;

const timesOf = (shrinks: number): string =>
  shrinks === 0 ? '' : shrinks === 1 ? ', shrunk once' : `, shrunk ${shrinks} times`;

interface ModelStatistics {
  readonly inference_stats: { readonly success: { readonly count: number } };
  readonly turntable: unknown;
}

const weightBytes = async (): Promise<number> => (await host.gpus!.state())!.memory[0]!.weightBytes;
const evictedFor = (cause: 'profiling'): number => host.gpus!.live.counts.evictions.get(cause) ?? 0;
const problemsIn = (answers: readonly Answer[]): string[] => answers.flatMap(({ problem }) => problem ?? []);

function variantsOf(name: string): GpuOffer[] {
  const variants: GpuOffer[] = [];
  let offer = host.gpus!.live.sheetOf(`${name}@1`)?.gpus[0] ?? undefined;
  for (; offer !== undefined; offer = offer.smaller) variants.push(offer);
  return variants;
}
const bytesOf = ({ prefixBytes }: GpuOffer): number => prefixBytes.at(-1)!;
const startsIn = ({ cold, partial, warm, disk }: Readonly<Record<Start, number>>): number =>
  cold + partial + warm + disk;

describe.skipIf(emulatorMissing)('a host whose GPU holds half of nine functions that have variants', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-variants-'));
    await emulateGpus([{ memoryBytes: 64 * mebibyte }]);
    for (const kind of kinds) await addFunction(kind);
    // The first host measures; with the kernel times of the emulated driver no plan would use the GPU. The second finds
    // the times of a machine with a GPU instead.
    await (await start()).stop();
    fitted = await fitKeptProfiles(join(folder, 'data', 'plans', 'profiles'), () => 1);
    host = await start();
  });
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test('every function is planned, recurrent ones from everything on the GPU down to less than half', () => {
    expect(fitted).toBe(structures);
    const standings = names.map((name) => [name, host.gpus!.record(`${name}@1`)?.state.kind]);
    expect(standings).toEqual(names.map((name) => [name, 'planned']));
    for (const { name } of kinds.filter(isRecurrent)) {
      const variants = variantsOf(name);
      expect(variants.length, name).toBeGreaterThanOrEqual(2);
      expect(variants[0]).toMatchObject({ plan: 'gpu', cores: 0 });
      for (const { plan, cores } of variants.slice(1)) {
        expect(plan).toMatch(/^hybrid-\d$/);
        expect(cores).toBe(1);
      }
      expect(bytesOf(variants.at(-1)!), name).toBeLessThan(bytesOf(variants[0]!) / 2);
      for (const [index, variant] of variants.slice(1).entries())
        expect(bytesOf(variant)).toBeLessThan(bytesOf(variants[index]!));
    }
    expect(variantsOf('hardmax').map(({ plan }) => plan)).toEqual(['hybrid-1']);
    const bytes = names.reduce((sum, name) => sum + bytesOf(variantsOf(name)[0]!), 0);
    const { capacityBytes } = host.gpus!.live.gpus[0]!;
    expect(capacityBytes / bytes).toBeGreaterThan(0.4);
    expect(capacityBytes / bytes).toBeLessThan(0.6);
  });

  test('a function that runs only over GPU and CPU says so before its first call', async () => {
    const { functions } = (await (await fetch(`${host.url}/api/functions`)).json()) as FunctionsAnswer;
    const plans = Object.fromEntries(functions.map(({ name, plan }) => [name, plan]));
    expect(plans).toMatchObject({ hardmax: 'hybrid-1 (dha, 1 link: one GPU)', 'lstm-base': 'dha, 1 link: one GPU' });
  });

  test('called one after another, functions change to smaller plans and none is evicted', async () => {
    const answers: Answer[] = [];
    for (const name of [...names, ...names]) answers.push(await invoke(name));
    expect(problemsIn(answers)).toEqual([]);
    expect(answers.map(({ placement }) => placement.slice(0, 4))).toEqual(answers.map(() => 'gpu0'));
    const { starts, shrinks, growths, evictions } = host.gpus!.live.counts;
    expect(evictions).toEqual(new Map());
    expect(shrinks).toBeGreaterThan(0);
    // No start loaded anything a second time.
    // A check or a measurement has read some of them before.
    const { cold, disk, ...others } = starts;
    expect(cold + disk).toBe(names.length);
    expect(others).toEqual({ partial: 0, warm: names.length });
    expect(growths).toBeLessThanOrEqual(shrinks);
    expect(host.gpus!.live.resident('hardmax@1', 0).variant).toBe('hybrid-1');
  });

  test('a host whose GPU holds half of nine functions that have variants answers as ONNX Runtime does, and the GPU never holds more than its limit', async () => {
    const gpus = host.gpus!;
    const before = gpus.live.counts.starts;
    const seen: Promise<number>[] = [];
    const answers = await invokeAtRandom(invocations, ({ length }) => {
      if (length % 10 === 0) seen.push(weightBytes());
    });
    expect(problemsIn(answers)).toEqual([]);
    const { starts } = gpus.live.counts;
    expect(startsIn(starts) - startsIn(before)).toBe(invocations);
    const { capacityBytes } = gpus.live.gpus[0]!;
    expect(Math.max(...(await Promise.all(seen)))).toBeLessThanOrEqual(capacityBytes);
    // Layers leave only for those of another function.
    expect(await weightBytes()).toBeGreaterThan(0.5 * capacityBytes);
  });

  test('`turntable ps`, the statistics of the models and /metrics agree on plans, their changes, and evictions', async () => {
    const { functions } = (await (await fetch(`${host.url}/api/functions`)).json()) as FunctionsAnswer;
    const scraped = await samples();
    const shell = host.gpus!.live;
    const lines = placedText({ functions }, Date.now()).split('\n');
    for (const { name, hits, coldStarts, evictions, gpuBytes, plan } of functions) {
      const reply = await (await fetch(`${host.url}/v2/models/${name}/stats`)).json();
      const [stats] = (reply as { model_stats: readonly [ModelStatistics] }).model_stats;
      expect(stats.turntable).toMatchObject({ hits, cold_starts: coldStarts, evictions });
      expect(stats.inference_stats.success.count).toBe(hits + coldStarts);
      const { bytes, variant } = shell.resident(`${name}@1`, 0);
      expect(gpuBytes).toBe(bytes);
      const { shrinks, growths } = shell.planChanges(`${name}@1`);
      expect(scraped.get(changes(name, 'smaller')) ?? 0).toBe(shrinks);
      expect(scraped.get(changes(name, 'larger')) ?? 0).toBe(growths);
      // A single plan other than that of the GPU alone is named wherever the function is.
      const named = variantsOf(name).length > 1 ? variant : 'hybrid-1';
      const variants = named === undefined ? 'dha, 1 link: one GPU' : `${named} (dha, 1 link: one GPU)`;
      expect(plan).toBe(variants + timesOf(shrinks));
      const line = lines.find((each) => each.startsWith(`${name}@1 `));
      expect(line).toContain(` ${plan} `);
      expect(line).toMatch(new RegExp(` ago +${hits} +${coldStarts}[ ,]`));
    }
    const sumOf = (series: string): number =>
      [...scraped].filter(([key]) => key.startsWith(series)).reduce((sum, [, value]) => sum + value, 0);
    const { shrinks, starts, evictions } = shell.counts;
    expect(sumOf('turntable_plan_changes_total{')).toBeGreaterThanOrEqual(shrinks);
    expect(functions.reduce((sum, { name }) => sum + shell.planChanges(`${name}@1`).shrinks, 0)).toBe(shrinks);
    expect(functions.reduce((sum, { coldStarts }) => sum + coldStarts, 0)).toBe(
      starts.cold + starts.partial + starts.disk,
    );
    const evicted = [...evictions.values()].reduce((sum, count) => sum + count, 0);
    expect(sumOf('turntable_evictions_total{')).toBe(evicted);
    // The engine counts its own bytes; the scheduler those that it believes to be there.
    expect(sumOf('turntable_gpu_weight_bytes{')).toBe(functions.reduce((sum, { gpuBytes }) => sum + gpuBytes, 0));
  });

  test('a function published while others fill the GPU is timed in their room, and planned', async () => {
    const { capacityBytes } = host.gpus!.live.gpus[0]!;
    const { model } = buildArchitecture('lstm', { layers: 5, hidden: 96, sequence: 2, batch: 1 }, 3);
    const path = join(folder, 'late.onnx');
    await writeModel(model, path);
    for (const name of names) await invoke(name);
    expect(capacityBytes - host.gpus!.live.residentBytes(0)).toBeLessThan(5 * 290_000);
    const reply = await fetch(`${host.url}/functions/late?slo=60s`, { method: 'PUT', body: await readFile(path) });
    expect(reply.status).toBe(201);
    await host.gpus!.settled();
    expect(host.gpus!.record('late@1')?.state.kind).toMatch(/planned|resident/);
    expect(evictedFor('profiling')).toBeGreaterThan(0);
    expect(problemsIn(await invokeAtRandom(30))).toEqual([]);
  });

  test('loses no request when the GPU process is killed, and the plan variants are back afterwards', async () => {
    const gpus = host.gpus!;
    const before = names.map((name) => variantsOf(name).map(({ plan }) => plan));
    const answers = await invokeAtRandom(40, ({ length }) => {
      if (length === 20) process.kill(gpus.pid, 'SIGKILL');
    });
    expect(problemsIn(answers)).toEqual([]);
    expect(answers).toHaveLength(40);
    await vi.waitUntil(() => gpus.restarts === 1 && gpus.status === 'up');
    await gpus.settled();
    expect(names.map((name) => variantsOf(name).map(({ plan }) => plan))).toEqual(before);
    const { shrinks } = gpus.live.counts;
    const after = await invokeAtRandom(50);
    expect(problemsIn(after)).toEqual([]);
    expect(after.filter(({ placement }) => !placement.startsWith('gpu0'))).toEqual([]);
    expect(gpus.live.counts.shrinks).toBeGreaterThan(shrinks);
  });

  test('ten twins cost the bytes of one, versions those of their own layers, and these alone shrink', async () => {
    const { live } = host.gpus!;
    const [lstm] = kinds as [Kind];
    const twins = Array.from({ length: 10 }, (_, index) => `twin-${index}`);
    const versions = Array.from({ length: 4 }, (_, index) => `version-${index}`);
    const publish = async (name: string, seed: number, ownSeed: number): Promise<void> => {
      const { model } = buildArchitecture('lstm', { batch: 1, ...base }, seed);
      const weights = model.graph.initializer;
      const others = buildArchitecture('lstm', { batch: 1, ...base }, ownSeed).model.graph.initializer;
      weights.splice(weights.length / 2, Infinity, ...others.slice(weights.length / 2));
      await addFunction({ ...lstm, name, model: () => model });
      const file = await readFile(join(folder, 'functions', name, 'model.onnx'));
      const published = await fetch(`${host.url}/functions/${name}?slo=60s`, { method: 'PUT', body: file });
      expect([name, published.status]).toEqual([name, 201]);
    };
    for (const name of twins) await publish(name, 5, 5);
    // The GPU's parts of plans are compiled for a graph, as whole programs are.
    const compiled: number[] = [];
    for (const [index, name] of versions.entries()) {
      await publish(name, 6, 7 + index);
      await host.gpus!.settled();
      compiled.push((await readdir(join(folder, 'data', 'cache', 'gpu', 'programs'))).length);
    }
    expect(compiled).toEqual(versions.map(() => compiled[0]));
    const before = live.counts.starts;
    for (const name of twins) expect(problemsIn([await invoke(name)])).toEqual([]);
    const { cold, disk, partial, warm } = live.counts.starts;
    expect([cold + disk - before.cold - before.disk, partial - before.partial]).toEqual([1, 0]);
    expect(warm - before.warm).toBe(twins.length - 1);
    const whole = bytesOf(variantsOf('lstm-base')[0]!);
    for (const name of twins) {
      const { bytes, shared } = live.resident(`${name}@1`, 0);
      expect([bytes, shared?.bytes, shared?.keys.length]).toEqual([whole, whole, twins.length - 1]);
    }
    for (const name of versions) {
      expect(problemsIn([await invoke(name)])).toEqual([]);
      expect(live.resident(`${name}@1`, 0).shared!.bytes).toBeGreaterThan(whole / 4);
      expect(variantsOf(name).length).toBeGreaterThanOrEqual(2);
    }
    const { shrinks } = live.counts;
    const all = [...names, ...versions, ...twins];
    const shrunk = (): number => versions.reduce((sum, name) => sum + live.planChanges(`${name}@1`).shrinks, 0);
    // Which of the others shrink first is drawn.
    for (let call = 0; call < 80 || (shrunk() === 0 && call < 800); call++) {
      const answer = await invoke(all[random.below(all.length)]!);
      expect(problemsIn([answer])).toEqual([]);
      await live.gpusIdle();
      await vi.waitFor(async () => expect(await weightBytes()).toBe(live.residentBytes(0)), { interval: 20 });
    }
    expect(live.counts.shrinks).toBeGreaterThan(shrinks);
    expect(shrunk()).toBeGreaterThan(0);
    for (const name of twins) expect(live.planChanges(`${name}@1`)).toMatchObject({ shrinks: 0 });
  });
});
