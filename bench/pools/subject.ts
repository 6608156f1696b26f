/** The models for measuring pools, and a pool with one of them. */
import { createHash } from 'node:crypto';
import { createReadStream, existsSync } from 'node:fs';
import { mkdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import {
  createCpuPools,
  groupsText,
  makeInputs,
  measureCpu,
  poolSockets,
  type CpuPools,
  type CpuProfile,
  type PoolGroup,
} from '../../src/cpu/index.ts';
import { buildArchitecture, describeModel, readModel, writeModel, type TensorSpec } from '../../src/onnx/index.ts';
import type { Tensor } from '../../src/tensor/index.ts';
import { projectRoot } from '../servers.ts';

export type Size = 'full' | 'reduced' | 'small';

interface ModelSize {
  readonly settings: Readonly<Record<string, number>>;
  readonly sequence: number;
}

/** By architecture: the published size, and one that two cores run in a reasonable time. */
const models: Readonly<Record<string, { readonly full: ModelSize; readonly reduced: ModelSize }>> = {
  'bert-base': {
    full: { settings: {}, sequence: 128 },
    reduced: { settings: { layers: 1, vocabulary: 1000 }, sequence: 32 },
  },
  gpt2: {
    full: { settings: {}, sequence: 128 },
    reduced: { settings: { layers: 1, vocabulary: 1000 }, sequence: 32 },
  },
  resnet50: { full: { settings: {}, sequence: 1 }, reduced: { settings: { image: 32 }, sequence: 1 } },
  'inception-v3': { full: { settings: {}, sequence: 1 }, reduced: { settings: { image: 75 }, sequence: 1 } },
};
const smallModel: ModelSize = { settings: { layers: 1, hidden: 64, heads: 2, vocabulary: 100 }, sequence: 8 };

/** A model on disk, its profile on this machine, and a request of one row. */
export interface Subject {
  readonly name: string;
  readonly modelPath: string;
  readonly inputs: readonly TensorSpec[];
  readonly sequence: number;
  readonly profile: CpuProfile;
  readonly row: readonly Tensor[];
}

export function subjectNames(size: Size): string[] {
  return size === 'small' ? ['bert-base'] : Object.keys(models);
}

/** Makes the model unless it is in the cache, and measures it. */
export async function prepareSubject(
  name: string,
  size: Size,
  options: { readonly cores: number; readonly batchMax: number; readonly progress: (text: string) => void },
): Promise<Subject> {
  const known = models[name];
  if (known === undefined) throw new Error(`no model '${name}' is set up for this benchmark`);
  const { settings, sequence } = size === 'small' ? smallModel : known[size];
  const modelPath = await writeOnce(name, settings);
  const { inputs } = describeModel(await readModel(modelPath));
  const hash = createHash('sha256');
  await pipeline(createReadStream(modelPath), hash);
  const dimensions = inputs.some(({ dimensionNames }) => dimensionNames.includes('sequence')) ? { sequence } : {};
  const profile = await measureCpu({
    modelPath,
    modelSha256: hash.digest('hex'),
    inputs,
    dimensions,
    sockets: poolSockets(options.cores),
    batchMax: options.batchMax,
    samples: size === 'small' ? 3 : 10,
    onProgress: ({ done, total, label }) => options.progress(`${name}: measured ${done} of ${total}, now ${label}`),
  });
  return { name, modelPath, inputs, sequence, profile, row: makeInputs(inputs, 1, profile.dimensions, 1) };
}

async function writeOnce(name: string, settings: Readonly<Record<string, number>>): Promise<string> {
  const folder = join(projectRoot, '.cache', 'bench-pools');
  const key = createHash('sha256').update(JSON.stringify(settings)).digest('hex').slice(0, 12);
  const path = join(folder, `${name}-${key}.onnx`);
  if (existsSync(path)) return path;
  await mkdir(folder, { recursive: true });
  const part = `${path}.${process.pid}.part`;
  await writeModel(buildArchitecture(name, settings).model, part);
  await rename(part, path);
  return path;
}

/** One pool on `cores` cores, with configurations to choose. */
export class BenchPool implements AsyncDisposable {
  readonly pools: CpuPools;
  readonly key = 'bench@1';
  readonly #row: readonly Tensor[];

  constructor({ modelPath, row, name }: Subject, cores: number, batchMax: number) {
    this.#row = row;
    this.pools = createCpuPools({ cores, blankInstances: 1, memoryBytes: Infinity, log: () => undefined });
    this.pools.register(
      { key: this.key, modelPath, threads: 1, modelIdentity: name },
      {
        instancesMin: 0,
        instancesMax: cores,
        batchMax,
        batchDelayMs: 0,
        idleMs: 3_600_000,
        handlerTimeoutMs: 10_000,
        loadTimeoutMs: 120_000,
        inferTimeoutMs: 120_000,
      },
    );
  }

  async configure(groups: readonly PoolGroup[], batchTimeoutMs: number): Promise<void> {
    const outcome = await this.pools.configure(this.key, { groups, batchTimeoutMs }, 'benchmark');
    if (outcome.state === 'done') return;
    throw new Error(`${groupsText(groups)}: ${outcome.state}${'reason' in outcome ? `: ${outcome.reason}` : ''}`);
  }

  /** One request of one row; returns the milliseconds until its answer. */
  async request(): Promise<number> {
    return (await this.timedRequest()).latencyMs;
  }

  /** The same, with the milliseconds in which an instance had it. */
  async timedRequest(): Promise<{ readonly latencyMs: number; readonly serviceMs: number }> {
    const startMs = performance.now();
    const { timings } = await this.pools.invoke(this.key, { kind: 'tensors', tensors: this.#row });
    const latencyMs = performance.now() - startMs;
    return { latencyMs, serviceMs: latencyMs - timings.queueMs };
  }

  /** So many requests at once; returns the milliseconds until the last answer. */
  async batch(rows: number): Promise<number> {
    const startMs = performance.now();
    await Promise.all(Array.from({ length: rows }, async () => await this.request()));
    return performance.now() - startMs;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.pools.stop(0);
  }
}
