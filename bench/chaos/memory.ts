/**
 * Hosts in control groups that are small for their functions: the kernel must end no process, and every answer must be
 * right.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as ort from 'onnxruntime-node';
import { buildArchitecture, writeModel, type SettingValue } from '../../src/onnx/index.ts';
import { divideMemory, sessionsThatFit } from '../../src/hardware/index.ts';
import { buildEmulatedDriver } from '../../test/emulated-driver/build.ts';
import { emulatedEnvironment } from '../../test/support/emulator.ts';
import type { BenchmarkOptions, BenchmarkResult } from '../benchmark.ts';
import { MemoryLimit } from '../overload/memory-limit.ts';
import { Servers } from '../servers.ts';
import { attempt } from './answers.ts';

interface Scene {
  readonly name: string;
  readonly limitBytes: number;
  /** Cores' worth of time; undefined: all. */
  readonly cores?: number;
  readonly architecture: string;
  readonly settings: Readonly<Record<string, SettingValue>>;
  readonly models: number;
  readonly clients: number;
  readonly calls: number;
  readonly seconds: number;
  readonly gpuBytes?: number;
}

/** Functions of a model's size that must be loaded at the end; told to the bytes that a host has for them. */
interface Warm {
  readonly found: number;
  readonly wanted: number;
}

export interface MemoryPiece {
  readonly scene: 'memory';
  readonly rows: readonly {
    readonly name: string;
    /** How the limit was set, or why there is none. */
    readonly means: string;
    readonly published: number;
    readonly right: number;
    readonly wrong: number;
    readonly failed: number;
    readonly cold: number;
    readonly kills: number;
    readonly warm: Warm;
    /** The first answers that were not right. */
    readonly problems: readonly string[];
  }[];
}

const mebibyte = 2 ** 20;

function scenesOf(small: boolean, minutes: number): Scene[] {
  const seconds = small ? 5 : minutes * 60;
  const gpuModels = small ? 8 : 30;
  return [
    {
      name: `${gpuModels} models of 33 MB, a GPU of 256 MiB, 1.2 GB`,
      limitBytes: 1_258_291_200,
      architecture: 'mlp',
      settings: {},
      models: gpuModels,
      clients: 3,
      calls: Infinity,
      seconds,
      gpuBytes: 256 * mebibyte,
    },
    {
      name: 'three ResNet-50, 700 MiB, half a core',
      limitBytes: 700 * mebibyte,
      cores: 0.5,
      architecture: 'resnet50',
      settings: {},
      models: 3,
      clients: 1,
      calls: small ? 6 : 36,
      seconds: Infinity,
    },
  ];
}

export async function runMemory({ small, minutes = 5, progress }: BenchmarkOptions): Promise<MemoryPiece> {
  const rows: MemoryPiece['rows'][number][] = [];
  for (const scene of scenesOf(small, minutes)) rows.push(await runScene(scene, progress));
  return { scene: 'memory', rows };
}

interface Subject {
  readonly name: string;
  readonly body: string;
  readonly expected: Float32Array;
  readonly bytes: number;
}

async function runScene(scene: Scene, progress: BenchmarkOptions['progress']): Promise<MemoryPiece['rows'][number]> {
  using limit = new MemoryLimit(scene.limitBytes, scene.cores);
  await using servers = await Servers.create();
  const driver = scene.gpuBytes === undefined ? undefined : await buildEmulatedDriver();
  const environment = driver && emulatedEnvironment(driver, [{ memoryBytes: scene.gpuBytes! }]);
  const flags = driver === undefined ? ['--gpu-use', 'off'] : [];
  const host = await servers.startHost(flags, environment, limit.through);
  const subjects: Subject[] = [];
  const problems: string[] = [];
  for (let seed = 1; seed <= scene.models; seed++) {
    progress(`${scene.name}: publishes model ${seed} of ${scene.models}`);
    const made = await makeSubject(servers, scene, seed);
    const { model, ...subject } = made;
    const reply = await attempt(`${host.url}/functions/${subject.name}`, { method: 'PUT', body: model });
    if ('status' in reply && reply.status === 201) subjects.push(subject);
    else problems.push(`PUT ${subject.name}: ${JSON.stringify(reply).slice(0, 200)}`);
  }
  const counts = { right: 0, wrong: 0, failed: 0, cold: 0 };
  const endMs = performance.now() + scene.seconds * 1000;
  let calls = 0;
  await Promise.all(
    Array.from({ length: scene.clients }, async () => {
      while (calls < scene.calls && performance.now() < endMs && subjects.length > 0) {
        const { name, body, expected } = subjects[calls++ % subjects.length]!;
        const reply = await attempt(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
        if (!('status' in reply) || reply.status !== 200) {
          counts.failed++;
          problems.push(`${name}: ${JSON.stringify(reply).slice(0, 200)}`);
          continue;
        }
        if (reply.isColdStart) counts.cold++;
        const { outputs } = JSON.parse(reply.text) as { outputs: { data: number[] }[] };
        if (isClose(outputs[0]?.data ?? [], expected)) counts.right++;
        else {
          counts.wrong++;
          problems.push(`${name}: another answer`);
        }
        progress(`${scene.name}: ${calls} calls, ${limit.kills} kills`);
      }
    }),
  );
  const listed = await attempt(`${host.url}/api/functions`);
  const { functions } = JSON.parse('text' in listed ? listed.text : '{}') as { functions: { instances: number }[] };
  const found = functions.filter(({ instances }) => instances > 0).length;
  const { parts } = divideMemory(scene.limitBytes, driver === undefined ? 'host' : 'host with GPUs');
  const wanted = driver === undefined ? sessionsThatFit(parts.sessions, subjects[0]?.bytes ?? Infinity) : 0;
  return {
    name: scene.name,
    means: limit.means,
    published: subjects.length,
    ...counts,
    kills: limit.kills,
    warm: { found, wanted: Math.min(wanted, subjects.length) },
    problems: problems.slice(0, 5),
  };
}

async function makeSubject(servers: Servers, { architecture, settings }: Scene, seed: number) {
  const name = `model-${seed}`;
  const path = join(await servers.makeFolder('models'), `${name}.onnx`);
  await writeModel(buildArchitecture(architecture, settings, seed).model, path);
  const session = await ort.InferenceSession.create(path);
  const [input] = session.inputMetadata;
  if (input === undefined || !input.isTensor) throw new Error(`${architecture} has no tensor as its input`);
  const shape = input.shape.map((size) => (typeof size === 'number' && size > 0 ? size : 1));
  const count = shape.reduce((product, size) => product * size, 1);
  const data = Float32Array.from({ length: count }, (_, index) => Math.round(100 * Math.sin(index + seed)) / 100);
  const outputs = await session.run({ [input.name]: new ort.Tensor('float32', data, shape) });
  const expected = Float32Array.from(Object.values(outputs)[0]!.data as Float32Array);
  await session.release();
  const model = await readFile(path);
  const body = JSON.stringify({ inputs: [{ name: input.name, datatype: 'FP32', shape, data: [...data] }] });
  return { name, body, expected, model, bytes: model.byteLength };
}

/** As near as a GPU's answers must be to ONNX Runtime's. */
function isClose(answer: readonly number[], expected: Float32Array): boolean {
  const largest = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return (
    answer.length === expected.length &&
    answer.every((value, index) => Math.abs(value - expected[index]!) <= 1e-3 * largest)
  );
}

export function reportMemory(pieces: readonly MemoryPiece[]): BenchmarkResult {
  const rows = pieces.flatMap((piece) => piece.rows);
  const limited = rows.filter(({ means }) => means.startsWith('cgroup'));
  const sumOf = (of: (row: (typeof rows)[number]) => number): number => rows.reduce((sum, row) => sum + of(row), 0);
  const bad = sumOf(({ wrong, failed }) => wrong + failed);
  const problems = rows.flatMap((row) => row.problems);
  const cold = limited.filter(({ warm }) => warm.found < warm.wanted);
  return {
    settings: { memoryScenes: rows.length },
    tables: [
      {
        title: 'hosts in control groups that are small for their functions',
        provenance: { kind: 'measured' },
        columns: [
          'SCENE',
          'LIMIT BY',
          '>PUBLISHED',
          '>RIGHT',
          '>WRONG',
          '>FAILED',
          '>COLD',
          '>LOADED AT THE END',
          '>KILLS',
        ],
        rows: rows.map(({ name, means, published, right, wrong, failed, cold: colds, warm, kills }) => [
          name,
          means,
          ...[published, right, wrong, failed, colds, warm.found, kills].map(String),
        ]),
      },
    ],
    figures: { memoryKills: sumOf(({ kills }) => kills), memoryRight: sumOf(({ right }) => right) },
    aims: [
      {
        aim: 'the kernel ends no process for memory',
        met: rows.every(({ kills }) => kills === 0),
        reached:
          limited.length === 0 ? `no limit could be set: ${rows[0]?.means}` : `${sumOf(({ kills }) => kills)} kills`,
      },
      {
        aim: 'every answer of a host that is short of memory is right',
        met: bad === 0,
        reached: `${sumOf(({ right }) => right)} right, ${bad} not${problems.length === 0 ? '' : `: ${problems.join('; ')}`}`,
      },
      {
        aim: 'as many models are loaded at the end as the host says that it has room for',
        met: cold.length === 0,
        reached: limited.map(({ warm }) => `${warm.found} of ${warm.wanted}`).join(', '),
      },
    ],
    limits: limited.length === rows.length ? [] : ['memory was not limited: no control group could be made'],
  };
}
