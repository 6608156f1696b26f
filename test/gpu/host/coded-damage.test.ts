/**
 * Bits of coded layers that change on their way, through a host over HTTP and its GPU process on the emulated driver: each
 * answer is right, and each layer that arrived wrong was loaded once as it is, and counted. And versions that share layers
 * share what was coded.
 */
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import {
  elementBytes,
  forms,
  groupElements,
  header,
  headerWords,
  planeWords,
  tableWords,
  unitWords,
  type Form,
} from '../../../src/coding/form.ts';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { ElementType, GraphBuilder, serializeModel } from '../../../src/onnx/index.ts';
import { Xoshiro } from '../../../src/replay/index.ts';
import { fp16ToNumber, singlesToFp16 } from '../../../src/tensor/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { trainedLike } from '../../support/trained-like.ts';

/** A weight is a little more than a MiB, and no multiple of what a unit holds. */
const [columns, hidden] = [64, 4100];
/** By layer: floats as training leaves them, and such as were made from fewer bits. */
const kinds = ['FP32', 'FP32', 'BF16', 'FP32', 'FP16', 'FP32'] as const;
const body = JSON.stringify({
  inputs: [
    {
      name: 'x',
      datatype: 'FP32',
      shape: [1, columns],
      data: Array.from({ length: columns }, (_, at) => Math.cos(at)),
    },
  ],
});

function weightOf(kind: (typeof kinds)[number], inputs: number, seed: number): Float32Array {
  const elements = columns * hidden;
  const bytes = trainedLike({ datatype: 'FP32', elements, deviation: 1 / Math.sqrt(inputs), seed });
  const words = new Uint32Array(bytes.buffer);
  if (kind === 'BF16') for (let at = 0; at < elements; at++) words[at]! &= 0xffff0000;
  const values = new Float32Array(bytes.buffer);
  if (kind !== 'FP16') return values;
  const halves = new Uint16Array(elements);
  singlesToFp16(words, halves);
  return Float32Array.from(halves, fp16ToNumber);
}

/** Products one after the other; the last layer's weights are of the head's seed. */
function modelOf(head: number): Uint8Array {
  const graph = new GraphBuilder('products');
  let value = graph.input('x', ElementType.FLOAT, [1, columns]);
  for (const [layer, kind] of kinds.entries()) {
    const shape = layer % 2 === 0 ? ([columns, hidden] as const) : ([hidden, columns] as const);
    const seed = layer === kinds.length - 1 ? head : layer;
    const weight = graph.weight(`w${layer}`, shape, weightOf(kind, shape[0], seed));
    // Exponents of all sizes gain nothing: they stand in units that are not coded.
    const bias = Float32Array.from({ length: shape[1] }, (_, at) => Math.cos(at) * 2 ** -((at * 37) % 120));
    value = graph.node('Gemm', [value, weight, graph.weight(`b${layer}`, [shape[1]], bias)]);
    if (layer < kinds.length - 1) value = graph.node('Relu', [value]);
  }
  graph.output(value, ElementType.FLOAT, [1, columns], 'y');
  return serializeModel(graph.build());
}

/** Bits of a coded file, from the first to before the last, by what they hold. */
function bitsOf(file: Buffer): ReadonlyMap<string, readonly [number, number]> {
  const words = new Uint32Array(file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength));
  const found = new Map<string, readonly [number, number]>();
  const add = (name: string, firstWord: number, count: number): void => {
    if (count > 0) found.set(name, [32 * firstWord, 32 * (firstWord + count)]);
  };
  for (const [name, word] of Object.entries(header)) add(`header: ${name}`, word, 1);
  const units = words[header.units]!;
  const tablesAt = headerWords + units * unitWords;
  for (const [field, name] of ['form', 'count', 'place', 'offset', 'codes', 'check', 'check of these'].entries())
    add(`unit: ${name}`, headerWords + unitWords * (units >> 1) + (field === 6 ? unitWords - 1 : field), 1);
  add('code table', tablesAt, words[header.tables]! * tableWords);
  for (let unit = 0; unit < units; unit++) {
    const at = headerWords + unit * unitWords;
    const form = (words[at]! & 255) as Form;
    const [count, , firstWord, halfWords] = [words[at + 1]!, words[at + 2]!, words[at + 3]!, words[at + 4]!] as const;
    if (form === forms.raw) {
      add('not coded', firstWord, Math.floor(count / 4));
      continue;
    }
    const groups = count / groupElements;
    const planes = planeWords(form, groups);
    const isWhole = count * elementBytes(form) >= 8192 * elementBytes(form);
    const part = isWhole ? '' : 'last part: ';
    // The lowest bit of a group's first word is its first element's sign.
    found.set(`${part}sign`, [32 * firstWord, 32 * firstWord + 1]);
    found.set(`${part}mantissa`, [32 * firstWord + 1, 32 * firstWord + 8]);
    add(`${part}signs and mantissas`, firstWord, planes);
    add(`${part}exponents`, firstWord + planes, Math.floor(halfWords / 2));
    const filler = 32 * (firstWord + planes) + 16 * halfWords;
    if (halfWords % 2 === 1) found.set('filler', [filler, filler + 16]);
  }
  const end = 32 * words[header.words]!;
  if (8 * file.byteLength > end) found.set('padding', [end, 8 * file.byteLength]);
  return found;
}

const random = new Xoshiro(Number(process.env['TURNTABLE_SEED'] ?? 1));
let folder: string;
let host: RunningHost;

const coded = (): string => join(folder, 'data', 'cache', 'gpu', 'coded');

/** The files of layers that are coded, by path. */
async function codedFiles(): Promise<ReadonlyMap<string, Buffer>> {
  const paths = (await readdir(coded())).map((name) => join(coded(), name));
  return new Map(await Promise.all(paths.map(async (path) => [path, await readFile(path)] as const)));
}

/** By path, what changes when a file is written again. */
async function written(): Promise<ReadonlyMap<string, number>> {
  const paths = [...(await codedFiles()).keys()];
  return new Map(await Promise.all(paths.map(async (path) => [path, (await stat(path)).ino] as const)));
}

async function call(): Promise<{ readonly placement: string; readonly y: string }> {
  const reply = await fetch(`${host.url}/v2/models/products/infer`, { method: 'POST', body });
  const text = await reply.text();
  expect([reply.status, text]).toEqual([200, expect.any(String)]);
  const { outputs } = JSON.parse(text) as { outputs: readonly [{ readonly data: readonly number[] }] };
  return { placement: reply.headers.get('x-turntable-placement') ?? '', y: JSON.stringify(outputs[0].data) };
}

/** The first answer of a GPU; what the CPU answers while weights come from the disk may differ in its last bits. */
async function callOnGpu(): Promise<string> {
  return await vi.waitUntil(gpuAnswer, { interval: 10 });
}

async function gpuAnswer(): Promise<string | undefined> {
  const { placement, y } = await call();
  return placement.startsWith('gpu0') ? y : undefined;
}

async function publish(head: number): Promise<void> {
  const reply = await fetch(`${host.url}/functions/products?slo=60s`, { method: 'PUT', body: modelOf(head) });
  expect([reply.status, await reply.text()]).toEqual([201, expect.any(String)]);
  await host.gpus!.settled();
}

async function wrongLayers(): Promise<number> {
  const text = await (await fetch(`${host.url}/metrics`)).text();
  return Number(/^turntable_gpu_coded_layers_wrong_total (\d+)$/m.exec(text)![1]);
}

/** Neither the GPU nor host memory has weights: the next run reads them from their files. */
async function forgetWeights(key: string): Promise<void> {
  const gpus = host.gpus!;
  await gpus.live.gpusIdle();
  await gpus.live.functions.unload(key);
  gpus.setHostBytes(0);
  await vi.waitUntil(async () => (await gpus.state())?.host.usedBytes === 0, { interval: 10 });
  gpus.setHostBytes(32 * 2 ** 20);
}

describe.skipIf(emulatorMissing)('coded layers behind HTTP', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-coded-damage-'));
    await mkdir(join(folder, 'functions'));
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '2',
        'cpu.profiling': 'off',
        'gpu.memory': '32MiB',
        'gpu.hostMemory': '32MiB',
        'gpu.profileIterations': '1',
        'gpu.hybrid': 'off',
        // All layers are on the GPU.
        'gpu.mode': 'pipeswitch',
        'gpu.coding': 'auto',
      },
    });
    host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
    await publish(100);
  });
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test('a flipped bit of any kind is found before an answer leaves, and its layer is loaded once as it is', async () => {
    const right = await callOnGpu();
    const files = await codedFiles();
    expect(files.size).toBe(kinds.length);
    const kindsOfBits = new Map([...files].map(([path, file]) => [path, bitsOf(file)] as const));
    const left = new Set([...kindsOfBits.values()].flatMap((bits) => Array.from(bits.keys())));
    expect([...left]).toEqual(
      expect.arrayContaining(['not coded', 'code table', 'sign', 'last part: exponents', 'filler', 'padding']),
    );
    let wrong = await wrongLayers();
    expect(wrong).toBe(0);
    while (left.size > 0) {
      // In each layer a bit of a kind that has not been flipped yet, where it has any.
      const flipped: string[] = [];
      for (const [path, file] of files) {
        const bits = kindsOfBits.get(path)!;
        const kind = [...bits.keys()].find((each) => left.has(each)) ?? 'header: magic';
        left.delete(kind);
        const [first, end] = bits.get(kind)!;
        const bit = first + random.below(end - first);
        const damaged = Buffer.from(file);
        damaged[bit >> 3]! ^= 1 << (bit & 7);
        await writeFile(path, damaged);
        flipped.push(`${kind}, bit ${bit}`);
      }
      await forgetWeights('products@1');
      expect([flipped, await callOnGpu()]).toEqual([flipped, right]);
      // What stands behind a pack is copied with it, and nothing reads it.
      const harmful = flipped.filter((text) => !text.startsWith('padding')).length;
      expect([flipped, (await wrongLayers()) - wrong]).toEqual([flipped, harmful]);
      wrong += harmful;
      expect([await callOnGpu(), await wrongLayers()]).toEqual([right, wrong]);
    }
    for (const [path, file] of files) await writeFile(path, file);
    await forgetWeights('products@1');
    expect([await callOnGpu(), await wrongLayers()]).toEqual([right, wrong]);
  });

  test('a second version with another head has its head coded, and nothing else', async () => {
    const before = await written();
    await publish(200);
    const after = await written();
    expect(after.size).toBe(before.size + 1);
    expect([...after].filter(([path]) => before.has(path))).toEqual([...before]);
    expect(await callOnGpu()).not.toBe('');
  });
});
