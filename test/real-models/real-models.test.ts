/**
 * Models by others, called over HTTP: each answer is ONNX Runtime's, on the CPU and on the emulated GPU, where each model
 * runs in the end. TURNTABLE_TEST_MODELS=1 fetches them (160 MB, once) and runs these tests; they take minutes.
 */
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { tolerances } from '../../src/gpu/index.ts';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { describeModel, readModel, shapesWith, type Sizes } from '../../src/onnx/index.ts';
import {
  bytesOfNumbers,
  elementCount,
  elementDifference,
  elements,
  type DataType,
  type Tensor,
} from '../../src/tensor/index.ts';
import { emulateGpus } from '../support/emulate-gpus.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { runOnnxRuntime } from '../support/run-program.ts';
import { modelFile, models, type RealModel } from './models.ts';

const isWanted = process.env['TURNTABLE_TEST_MODELS'] === '1';
const files = new Map<string, string>();
if (isWanted) {
  for (const model of models) {
    const path = await modelFile(model);
    if (path !== undefined) files.set(model.name, path);
  }
}
const there = models.filter(({ name }) => files.has(name));

/** Between -1 and 1, others for each seed. */
function drawn(datatype: DataType, count: number, integer: number, seed: number): Uint8Array {
  if (datatype === 'BYTES') throw new Error('no model here takes texts');
  const isWhole = datatype.includes('INT');
  let state = seed + 1;
  const next = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state / 2 ** 32) * 2 - 1;
  };
  return bytesOfNumbers(
    datatype,
    Array.from({ length: count }, () => (isWhole ? integer : next())),
  );
}

/** A picture with a line of dark strokes. */
function strokes([, channels = 1, height = 1, width = 1]: readonly number[], seed: number): Uint8Array {
  const pixel = (x: number, y: number): number => {
    const isLine = y > 20 && y < 44 && x > 8 && x < width - 8;
    return isLine && (x >> 2) % 2 === seed % 2 ? -3 : 3;
  };
  const plane = Array.from({ length: height * width }, (_, at) => pixel(at % width, Math.floor(at / width)));
  return bytesOfNumbers('FP32', Array.from({ length: channels }, () => plane).flat());
}

async function inputsOf(model: RealModel, sizes: Sizes, seed: number): Promise<Tensor[]> {
  const { name, integer = 1, hasStrokes } = model;
  const { inputs } = describeModel(await readModel(files.get(name)!));
  const shapes = shapesWith(inputs, sizes);
  return inputs.map(({ name: input, datatype }, index) => {
    const { shape } = shapes[index]!;
    const data = hasStrokes ? strokes(shape, seed) : drawn(datatype, elementCount(shape), integer, seed);
    return { name: input, datatype, shape, data };
  });
}

async function startWith(folder: string, served: readonly RealModel[], flags: Record<string, string>) {
  for (const { name } of served) {
    const place = join(folder, 'functions', name);
    await mkdir(place, { recursive: true });
    await copyFile(files.get(name)!, join(place, 'model.onnx'));
    await writeFile(
      join(place, 'function.json'),
      JSON.stringify({ slo: '300s', timeouts: { load: '300s', infer: '300s' } }),
    );
  }
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      'cpu.profiling': 'off',
      ...flags,
    },
  });
  return await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
}

interface Answer {
  readonly outputs: readonly {
    readonly name: string;
    readonly datatype: DataType;
    readonly shape: readonly number[];
    readonly parameters: { readonly binary_data_size: number };
  }[];
}

/** The outputs of a call with binary tensors, and where it ran. */
async function infer(host: RunningHost, { name, outputs = [] }: RealModel, inputs: readonly Tensor[]) {
  const header = JSON.stringify({
    inputs: inputs.map((input) => ({
      name: input.name,
      datatype: input.datatype,
      shape: input.shape,
      parameters: { binary_data_size: input.data.byteLength },
    })),
    ...(outputs.length === 0 ? {} : { outputs: outputs.map((each) => ({ name: each })) }),
    parameters: { binary_data_output: true },
  });
  const reply = await fetch(`${host.url}/v2/models/${name}/infer`, {
    method: 'POST',
    headers: { 'inference-header-content-length': String(Buffer.byteLength(header)) },
    body: Buffer.concat([Buffer.from(header), ...inputs.map(({ data }) => data)]),
  });
  const bytes = new Uint8Array(await reply.arrayBuffer());
  expect(reply.status, Buffer.from(bytes.subarray(0, 500)).toString()).toBe(200);
  let at = Number(reply.headers.get('inference-header-content-length'));
  const answer = JSON.parse(Buffer.from(bytes.subarray(0, at)).toString()) as Answer;
  const tensors = answer.outputs.map((output): Tensor => {
    const data = bytes.slice(at, (at += output.parameters.binary_data_size));
    return { name: output.name, datatype: output.datatype, shape: output.shape, data };
  });
  return { tensors, placement: reply.headers.get('x-turntable-placement') ?? '' };
}

/** Of an output with ties: elements that may be decided otherwise. */
const tiesMax = 0.001;

/** @returns where it ran @throws if the answer is not ONNX Runtime's within the tolerance */
async function call(
  host: RunningHost,
  model: RealModel,
  inputs: readonly Tensor[],
  tolerance: number,
): Promise<string> {
  const { name, outputs, tied } = model;
  const { tensors, placement } = await infer(host, model, inputs);
  const all = await runOnnxRuntime(files.get(name)!, inputs, 'all');
  const expected = all.filter((output) => outputs?.includes(output.name) !== false);
  expect(tensors.map((output) => output.name)).toEqual(expected.map((output) => output.name));
  for (const [index, wanted] of expected.entries()) {
    const actual = tensors[index]!;
    expect(actual).toMatchObject({ datatype: wanted.datatype, shape: wanted.shape });
    const isTied = placement.startsWith('gpu') && tied === wanted.name && shareBeyond(actual, wanted) < tiesMax;
    const found = isTied ? undefined : elementDifference(actual, wanted, tolerance);
    expect(found, `${name}, output ${wanted.name}`).toBeUndefined();
  }
  return placement;
}

/** The share of the elements that differ by more than a thousandth of the largest. */
function shareBeyond(actual: Tensor, expected: Tensor): number {
  const [a, b] = [actual, expected].map((tensor) => Array.from(elements(tensor) as Iterable<number>));
  const largest = b!.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return a!.filter((value, index) => Math.abs(value - b![index]!) > 1e-3 * largest).length / a!.length;
}

describe.skipIf(there.length === 0)('on the CPU', () => {
  let folder: string;
  let host: RunningHost;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-real-'));
    host = await startWith(folder, there, { 'gpu.use': 'off' });
  }, 600_000);
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test.each(there)('$name answers as ONNX Runtime does', { timeout: 900_000 }, async (model) => {
    for (const [seed, sizes] of model.calls.entries()) {
      const inputs = await inputsOf(model, sizes, seed);
      expect(await call(host, model, inputs, 1e-5)).toMatch(/^cpu pool/);
    }
  });
});

const onGpu = there.filter(({ cpuOnly }) => cpuOnly === undefined);

/** Calls until each size has a program, or is refused for a reason. */
const roundsMax = 8;

describe.skipIf(emulatorMissing || onGpu.length === 0)('on the emulated GPU', () => {
  let folder: string;
  let host: RunningHost;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-real-'));
    await emulateGpus([{ memoryBytes: 2 ** 30 }]);
    host = await startWith(folder, onGpu, {
      'gpu.hybridCores': '1',
      'gpu.profileIterations': '1',
      'gpu.recheckEvery': '2',
    });
    await host.gpus!.settled();
  }, 1_800_000);
  afterAll(async () => {
    await host?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  test.each(onGpu)(
    '$name answers as ONNX Runtime does, and comes to the GPU',
    { timeout: 1_800_000 },
    async (model) => {
      const { name, calls, staysFor } = model;
      const gpus = host.gpus!;
      const key = `${name}@1`;
      const tolerance = tolerances.fp32;
      let placements: string[] = [];
      for (let round = 0; round < roundsMax && !placements.some((each) => each.startsWith('gpu')); round++) {
        placements = [];
        for (const [index, sizes] of calls.entries()) {
          const inputs = await inputsOf(model, sizes, index + 10 * round);
          placements.push(await call(host, model, inputs, tolerance));
          await gpus.settled();
        }
      }
      const state = gpus.record(key)?.state;
      const found = staysFor === undefined ? placements.join('\n') : gpus.whyNot(key)?.words;
      expect(found, JSON.stringify(state)).toMatch(staysFor ?? /^gpu0/m);
      expect(state?.kind).not.toBe('refused');
    },
  );
});
