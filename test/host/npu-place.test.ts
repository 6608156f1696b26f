/** A real host that has a place of a kind that it does not know: the neural processor of docs/extend.md. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { InferenceSession, Tensor as OrtTensor } from 'onnxruntime-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { tensorOf, type Tensor } from '../../src/tensor/index.ts';
import { writeScaleModel } from '../support/models.ts';
import { DeviceError, NpuPlace, type NpuDevice } from '../support/npu-place.ts';

/** ONNX Runtime stands in for the device. It has one model at a time, in 32-bit floats. */
class Device implements NpuDevice {
  readonly #models: ReadonlyMap<string, string>;
  #current: { readonly key: string; readonly session: InferenceSession } | undefined;
  /** Versions whose runs it was asked for. */
  readonly asked: string[] = [];
  isBroken = false;

  constructor(models: ReadonlyMap<string, string>) {
    this.#models = models;
  }

  /** Less than any run on a CPU takes, so that the verdict does not depend on the machine. */
  runMs(key: string): number | undefined {
    return this.#models.has(key) ? 1e-6 : undefined;
  }

  hasModelOf(key: string): boolean {
    return this.#current?.key === key;
  }

  async run(key: string, inputs: readonly Tensor[]): Promise<readonly Tensor[]> {
    this.asked.push(key);
    if (this.isBroken) throw new DeviceError('its clock has stopped');
    if (!this.hasModelOf(key)) {
      await this.#current?.session.release();
      this.#current = { key, session: await InferenceSession.create(this.#models.get(key)!, { intraOpNumThreads: 1 }) };
    }
    const { session } = this.#current!;
    const feeds = Object.fromEntries(
      inputs.map(({ name, shape, data }) => [
        name,
        new OrtTensor(new Float32Array(Uint8Array.from(data).buffer), shape),
      ]),
    );
    const outputs = await session.run(feeds);
    return session.outputNames.map((name) => {
      const { data, dims } = outputs[name]!;
      return tensorOf(name, 'FP32', [...dims], data);
    });
  }

  async release(): Promise<void> {
    await this.#current?.session.release();
  }
}

let folder: string;
let host: RunningHost;
let device: Device;
let npu: NpuPlace;

const factors = { double: 2, triple: 3, handled: 4, elsewhere: 5 } as const;
type Name = keyof typeof factors;

const handler = `
  export const preprocess = (request) => [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: JSON.parse(request.text()) }];
  export const postprocess = ([y]) => [...y.data].join(' ');
`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-npu-'));
  const models = new Map<string, string>();
  for (const [name, factor] of Object.entries(factors)) {
    const place = join(folder, 'functions', name);
    await mkdir(place, { recursive: true });
    const path = await writeScaleModel(place, factor);
    if (name !== 'elsewhere') models.set(`${name}@1`, path);
    const isHandled = name === 'handled';
    if (isHandled) await writeFile(join(place, 'handler.ts'), handler);
    const settings = { model: `scale-${factor}.onnx`, slo: '60s', ...(isHandled && { handler: 'handler.ts' }) };
    await writeFile(join(place, 'function.json'), JSON.stringify(settings));
  }
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '1',
      'cpu.profiling': 'off',
    },
  });
  device = new Device(models);
  npu = new NpuPlace(device, 1e-6);
  host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }), places: [npu] });
});

afterAll(async () => {
  await host?.stop();
  await device?.release();
  await rm(folder, { recursive: true, force: true });
});

/** The four numbers times the function's factor, and where that was computed. */
async function call(name: Name, data = [1, 2, 3, 4]): Promise<string> {
  const body = JSON.stringify({ inputs: [{ name: 'x', datatype: 'FP32', shape: [1, 4], data }] });
  const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body });
  const { outputs } = (await reply.json()) as { outputs: { data: number[] }[] };
  expect(outputs[0]!.data).toEqual(data.map((each) => each * factors[name]));
  return reply.headers.get('x-turntable-placement')!;
}

/** A first run on the CPU tells how long one takes there. */
async function known(name: Name): Promise<void> {
  while (!(await call(name)).startsWith('npu'));
}

test('calls of two functions run in turns on the NPU, and header and metrics say so', async () => {
  for (const name of ['double', 'triple'] as const) await known(name);
  const before = device.asked.length;
  for (let turn = 0; turn < 5; turn++)
    for (const name of ['double', 'triple'] as const)
      expect(await call(name)).toMatch(/^npu cold overflow: cpu pool would finish in .* ms, here in [\d.]+ ms$/);
  expect(await call('triple')).toMatch(/^npu overflow: /);
  expect(device.asked.length).toBe(before + 11);
  const metrics = await (await fetch(`${host.url}/metrics`)).text();
  const counts = [...metrics.matchAll(/^turntable_overflow_total\{.*from="cpu",to="npu",reason="earlier"\} (\d+)$/gm)];
  expect(counts.reduce((sum, [, count]) => sum + Number(count), 0)).toBe(device.asked.length);
});

test('a function that was not compiled for the NPU runs on the CPU', async () => {
  for (let at = 0; at < 3; at++) expect(await call('elsewhere')).toMatch(/^cpu pool (?:cold|warm)$/);
  expect(device.asked).not.toContain('elsewhere@1');
});

test('a call that the NPU refuses is answered by the CPU, which says why', async () => {
  await known('double');
  device.isBroken = true;
  expect(await call('double')).toMatch(/^cpu pool warm/);
  expect(device.asked.at(-1)).toBe('double@1');
  device.isBroken = false;
  expect(await call('double')).toMatch(/^npu/);
});

test('while the NPU is gone the CPU has its calls', async () => {
  await known('double');
  npu.isThere(false);
  const before = device.asked.length;
  expect(await call('double')).toBe('cpu pool warm');
  expect(device.asked.length).toBe(before);
  npu.isThere(true);
  expect(await call('double')).toMatch(/^npu/);
});

test('a handler runs in its instance, and its model on the NPU', async () => {
  for (let at = 0; at < 3; at++) {
    const reply = await fetch(`${host.url}/function/handled`, { method: 'POST', body: '[1, 2, 3, 4]' });
    expect(await reply.text()).toBe('4 8 12 16');
  }
  expect(device.asked).toContain('handled@1');
});
