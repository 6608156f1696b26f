/** Shared weights: less memory, faster starts, and no harm from corrupted files. */
import { readFileSync } from 'node:fs';
import { mkdtemp, open, readdir, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { poolLimits } from '../../../test/support/cpu-pools.ts';
import { writeReluModel } from '../../../test/support/models.ts';
import { ElementType, GraphBuilder, readModel, writeModel, type GraphProto } from '../../onnx/index.ts';
import { elements, tensorOf } from '../../tensor/index.ts';
import { createCpuPools, type CpuPools, type PoolInput, type PoolResult } from '../index.ts';

/** A layer's weights are a little more than what is worth sharing. */
const width = 1088;
const mebibyte = 1024 * 1024;
const weightBytesOf = (layers: number): number => layers * width * width * 4;
const weightBytes = weightBytesOf(1);
/** So many layers that a quarter of their bytes is several times what the memory of like processes differs by (2 MB). */
const large = 12;

let folder: string;
let modelPath: string;
/** A cache that several tests begin with, and what its model answers. */
let keptFolder: string;
let keptAnswers: number[][];
let pools: CpuPools;
let logged: string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-weights-'));
  modelPath = await writeWide('wide.onnx', 1);
  keptFolder = cache('kept');
  start(keptFolder);
  ({ answers: keptAnswers } = await one());
  await pools.stop(0);
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(() => pools.stop(0));

/** @param head the seed of a last layer of ten outputs; left out: there is none */
async function writeWide(name: string, layers: number, head?: number): Promise<string> {
  const path = join(folder, name);
  const graph = new GraphBuilder('wide');
  let x = graph.input('x', ElementType.FLOAT, ['batch', width]);
  for (let layer = 0; layer < layers; layer++) {
    const weights = new Float32Array(width * width);
    let seed = layer + 1;
    for (let i = 0; i < weights.length; i++) {
      seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
      weights[i] = (seed / 0x7fffffff - 0.5) * 0.1;
    }
    x = graph.node('Relu', [graph.node('MatMul', [x, graph.weight(`w${layer}`, [width, width], weights)])]);
  }
  if (head !== undefined) {
    const weights = Float32Array.from({ length: width * 10 }, (_, at) => Math.sin(at + head) / 10);
    x = graph.node('MatMul', [x, graph.weight('head', [width, 10], weights)]);
  }
  graph.output(x, ElementType.FLOAT, ['batch', head === undefined ? width : 10], 'y');
  await writeModel(graph.build(), path);
  return path;
}

/** Pools with one function, `f`, that shares its weights in this cache, or shares none. */
function start(cacheFolder: string | undefined, path = modelPath): void {
  logged = [];
  pools = createCpuPools({
    cores: 2,
    logicalCores: [0, 1].map((id) => ({ id, socket: 0, core: id })),
    blankInstances: 0,
    memoryBytes: 4e9,
    log: (_pid, _key, line) => logged.push(line),
    ...(cacheFolder === undefined ? {} : { cacheFolder }),
  });
  pools.register({ key: 'f', modelPath: path, threads: 1, modelIdentity: path }, { ...poolLimits, instancesMax: 1 });
}

const numbers = (count: number): Float32Array => new Float32Array(count).map((_, at) => (at % 97) / 9700);

const cache = (name: string): string => join(folder, name);

const input: PoolInput = {
  kind: 'tensors',
  tensors: [
    tensorOf(
      'x',
      'FP32',
      [1, width],
      Float32Array.from({ length: width }, (_, i) => Math.sin(i)),
    ),
  ],
};

function values({ output }: PoolResult): number[] {
  const [tensor] = output.kind === 'tensors' ? output.tensors : [];
  return tensor === undefined ? [] : Array.from(elements(tensor) as Float32Array);
}

/** The answers of so many instances, and what each holds of memory once it has run. */
async function answersOf(
  instances: number,
): Promise<{ answers: number[][]; privateBytes: number[]; sharedBytes: number[] }> {
  const outcome = await pools.configure('f', { groups: [{ instances, threads: 1, batch: 1 }] }, 'test');
  expect(outcome).toMatchObject({ state: 'done' });
  const results = await Promise.all(Array.from({ length: instances }, () => pools.invoke('f', input)));
  const pids = results.map(({ instancePid }) => instancePid);
  expect(new Set(pids).size).toBe(instances);
  return {
    answers: results.map(values),
    privateBytes: pids.map((pid) => memory(pid, 'Private_Clean') + memory(pid, 'Private_Dirty')),
    sharedBytes: pids.map((pid) => memory(pid, 'Rss') - memory(pid, 'Private_Clean') - memory(pid, 'Private_Dirty')),
  };
}

const one = (): ReturnType<typeof answersOf> => answersOf(1);
const two = (): ReturnType<typeof answersOf> => answersOf(2);

function memory(pid: number, field: string): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  return Number(new RegExp(`^${field}:\\s*(\\d+) kB`, 'm').exec(text)?.[1]) * 1024;
}

async function entryOf(cacheFolder: string): Promise<string> {
  const name = (await readdir(cacheFolder)).find((each) => /^[0-9a-f]{32}$/.test(each));
  return join(cacheFolder, name ?? 'none');
}

test.skipIf(process.platform !== 'linux')(
  'instances share the memory of their weights, and answer as before',
  async () => {
    const path = await writeWide('large.onnx', large);
    const largeBytes = weightBytesOf(large);
    // Memory of a Node process with ONNX Runtime and no model: the same configuration with a model of a few bytes.
    start(undefined, await writeReluModel(folder, width));
    const own = await one();
    await pools.stop(0);
    start(undefined, path);
    const alone = await one();
    await pools.stop(0);
    start(cache('shared'), path);
    const shared = await two();
    for (const answer of shared.answers) expect([answer]).toEqual(alone.answers);
    const [ownPrivateBytes = 0] = own.privateBytes;
    const [ownSharedBytes = 0] = own.sharedBytes;
    for (const bytes of alone.privateBytes) expect(bytes - ownPrivateBytes).toBeGreaterThan(0.75 * largeBytes);
    // The load's own copies of the weights are gone.
    for (const bytes of alone.privateBytes) expect(bytes - ownPrivateBytes).toBeLessThan(1.5 * largeBytes);
    for (const bytes of shared.privateBytes) expect(bytes - ownPrivateBytes).toBeLessThan(largeBytes / 4);
    for (const bytes of shared.sharedBytes) expect(bytes - ownSharedBytes).toBeGreaterThan(0.75 * largeBytes);
  },
);

test.skipIf(process.platform !== 'linux')(
  'versions with other heads map the layers that they share from one file each, and answer as before',
  async () => {
    const versions = await Promise.all(Array.from({ length: 6 }, (_, head) => writeWide(`head-${head}.onnx`, 2, head)));
    const mapped: ReadonlyMap<string, number>[] = [];
    for (const path of versions) {
      start(undefined, path);
      const alone = await one();
      await pools.stop(0);
      start(cache('family'), path);
      expect((await one()).answers).toEqual(alone.answers);
      mapped.push(mappedFiles((await pools.invoke('f', input)).instancePid, cache('family')));
      await pools.stop(0);
    }
    const oneBytes = totalOf(mapped[0]!);
    expect(oneBytes).toBeGreaterThan(weightBytesOf(2));
    for (const files of mapped) expect(totalOf(files)).toBe(oneBytes);
    expect(totalOf(new Map(mapped.flatMap((files) => Array.from(files))))).toBeLessThan(1.1 * oneBytes);
  },
);

/** The files below a folder that a process maps: bytes of the largest map, by inode. */
function mappedFiles(pid: number, below: string): ReadonlyMap<string, number> {
  const files = new Map<string, number>();
  for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
    // From and to, permissions, offset, device, inode, path.
    const [range = '', , , , inode = '', path = ''] = line.split(/ +/);
    if (!path.startsWith(below)) continue;
    const [from = 0, to = 0] = range.split('-').map((digits) => Number.parseInt(digits, 16));
    files.set(inode, Math.max(files.get(inode) ?? 0, to - from));
  }
  return files;
}

const totalOf = (files: ReadonlyMap<string, number>): number =>
  [...files.values()].reduce((sum, bytes) => sum + bytes, 0);

test.skipIf(process.platform !== 'linux')(
  'weights of sizes that are no multiple of a vector are shared too, and answer as before',
  async () => {
    const oddPath = join(folder, 'odd.onnx');
    // ONNX Runtime aligns what is larger than 1 MiB by itself.
    const odd = 301;
    const graph = new GraphBuilder('odd');
    let x = graph.input('x', ElementType.FLOAT, ['batch', width]);
    for (const [layer, rows] of [width, ...Array.from({ length: 12 }, () => odd)].entries())
      x = graph.node('MatMul', [x, graph.weight(`w${layer}`, [rows, odd], numbers(rows * odd))]);
    graph.output(x, ElementType.FLOAT, ['batch', odd], 'y');
    await writeModel(graph.build(), oddPath);
    start(undefined, oddPath);
    const alone = await one();
    await pools.stop(0);
    start(cache('odd'), oddPath);
    expect((await one()).answers).toEqual(alone.answers);
    const { graph: prepared } = await readModel(join(await entryOf(cache('odd')), 'model.onnx'));
    const entries = prepared.initializer.flatMap(({ externalData = [] }) => externalData);
    const offsets = entries.flatMap(({ key, value }) =>
      key === 'offset' ? [value] : key.startsWith('prepacked_') ? value.split('|').slice(1) : [],
    );
    expect(offsets.length).toBeGreaterThan(3);
    expect(offsets.map((text) => Number.parseInt(text, 10) % 64)).toEqual(offsets.map(() => 0));
  },
);

test.skipIf(process.platform !== 'linux')(
  'a prepared model that cannot be loaded is not prepared for each instance again',
  async () => {
    const branch = (name: string): GraphProto => {
      const body = new GraphBuilder(name, { captures: ['x'] });
      const weight = body.weight(`${name}_weight`, [width, width], numbers(width * width));
      body.output(body.node('MatMul', ['x', weight], {}, { name }), ElementType.FLOAT, ['batch', width], `${name}_y`);
      return body.buildGraph();
    };
    const graph = new GraphBuilder('branches');
    const x = graph.input('x', ElementType.FLOAT, ['batch', width]);
    const sum = graph.node('ReduceSum', [x], { keepdims: 0 });
    const isPositive = graph.node('Greater', [sum, graph.constant({ floats: 0 })]);
    const branches = { then_branch: { graph: branch('then') }, else_branch: { graph: branch('else') } };
    graph.output(graph.node('If', [isPositive], branches), ElementType.FLOAT, ['batch', width], 'y');
    const path = join(folder, 'branches.onnx');
    await writeModel(graph.build(), path);
    start(undefined, path);
    const alone = await one();
    await pools.stop(0);
    start(cache('branches'), path);
    for (let load = 0; load < 2; load++) {
      expect((await one()).answers).toEqual(alone.answers);
      await pools.evict('f');
    }
    expect(logged.filter((line) => line.includes('weights'))).toEqual([
      expect.stringMatching(/^its weights are not shared between instances: .*initializer name is not unique/),
    ]);
  },
);

test.skipIf(process.platform !== 'linux')(
  'the prepared weights are kept over a restart, and instances on demand use them too',
  async () => {
    const entry = await entryOf(keptFolder);
    const before = await stat(join(entry, 'weights/0'));
    start(keptFolder);
    await one();
    expect((await stat(join(entry, 'weights/0'))).ino).toBe(before.ino);
    await pools.unload('f');
    const { instancePid } = await pools.invoke('f', input);
    const mapped = readFileSync(`/proc/${instancePid}/maps`, 'utf8').includes(join(entry, 'weights/0'));
    expect(mapped).toBe(true);
  },
);

test.skipIf(process.platform !== 'linux')(
  'a model that is loaded again into a shared process is prepared behind the call, and mapped from then on',
  async () => {
    start(cache('again'));
    const first = values(await pools.invoke('f', input));
    expect(await readdir(cache('again')).catch(() => [])).toEqual([]);
    await pools.evict('f');
    expect(values(await pools.invoke('f', input))).toEqual(first);
    const isPrepared = async (): Promise<void> => {
      expect(await readdir(await entryOf(cache('again')))).toContain('manifest.json');
    };
    await vi.waitFor(isPrepared);
    const isMapped = async (): Promise<void> => {
      await pools.evict('f');
      const again = await pools.invoke('f', input);
      values(again).forEach((value, at) => expect(value).toBeCloseTo(first[at]!, 4));
      expect(readFileSync(`/proc/${again.instancePid}/maps`, 'utf8')).toContain(
        join(await entryOf(cache('again')), 'weights/0'),
      );
    };
    // The process that wrote the file has not reported yet.
    await vi.waitFor(isMapped);
  },
);

test.each<[string, (entry: string) => Promise<void>]>([
  ['cut short', async (entry) => truncate(join(entry, 'weights/0'), mebibyte)],
  ['changed in one byte', async (entry) => {
    const file = await open(join(entry, 'weights/0'), 'r+');
    // Of a float, the byte with its sign and most of its exponent.
    await file.write(Buffer.of(0xff), 0, 1, 3 * mebibyte + 3);
    await file.close();
  }],
  ['with a model that is none', async (entry) => writeFile(join(entry, 'model.onnx'), 'nothing')],
  // The last, because a running host does not make it anew.
  ['without its manifest', async (entry) => rm(join(entry, 'manifest.json'))],
])('a cache file that is %s is noticed and made anew', async (_what, spoil) => {
  const entry = await entryOf(keptFolder);
  expect(await readdir(entry)).toContain('manifest.json');
  await spoil(entry);
  start(keptFolder);
  expect((await one()).answers).toEqual(keptAnswers);
  expect((await stat(join(entry, 'weights/0'))).size).toBeGreaterThanOrEqual(weightBytes);
  // The same while the host runs, for later instances.
  await pools.unload('f');
  await spoil(entry);
  expect((await one()).answers).toEqual(keptAnswers);
}); // prettier-ignore

test('a model of few bytes is loaded directly, and nothing is kept of it', async () => {
  start(cache('small'), await writeReluModel(folder, width));
  await one();
  expect(await readdir(cache('small'))).toEqual([]);
});

test('weights that cannot be prepared are loaded by each instance, and the log says why', async () => {
  await writeFile(cache('a-file'), '');
  start(cache('a-file'));
  const { answers } = await one();
  expect(answers[0]?.some((value) => value > 0)).toBe(true);
  expect(logged.join('\n')).toContain('its weights are not shared between instances');
});
