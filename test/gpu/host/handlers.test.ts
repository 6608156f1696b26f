/**
 * Functions with a handler on GPUs, over HTTP: the handler runs in an instance of the CPU pool, its model on the
 * emulated driver.
 */
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { ElementType, GraphBuilder, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { writeReluModel } from '../../support/models.ts';

const shipped = join(import.meta.dirname, '../../../functions');
const shippedNames = ['language-id', 'digit-reader', 'accent-restorer'];

let folder: string;
/** The same functions on both: one host has GPUs, the other has none. */
let onGpus: RunningHost;
let onCpus: RunningHost;

const isNeeded = (path: string): boolean => !['_training', 'train.ts'].includes(basename(path));

const numbersIn = `const data = [...JSON.parse(request.text()), 0, 0, 0].slice(0, 4); return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data }];`;
const marker = (name: string): string => JSON.stringify(join(folder, name));

async function addFunction(name: string, handler: string, settings: object = {}, model?: ModelProto): Promise<void> {
  const place = join(folder, 'functions', name);
  await mkdir(place, { recursive: true });
  await (model === undefined ? writeReluModel(place) : writeModel(model, join(place, 'relu.onnx')));
  await writeFile(join(place, 'handler.ts'), handler);
  await writeFile(
    join(place, 'function.json'),
    JSON.stringify({
      model: 'relu.onnx',
      handler: 'handler.ts',
      slo: '60s',
      timeouts: { handler: '20s' },
      ...settings,
    }),
  );
}

/** Names that an object's keys would reorder or lose. */
const outputNames = ['b', '10', '2', '__proto__', 'a'];

function ordered(): ModelProto {
  const graph = new GraphBuilder('ordered');
  const x = graph.input('x', ElementType.FLOAT, [1, 4]);
  for (const [index, name] of outputNames.entries()) {
    const addend = graph.constant({ floats: [index], shape: [1] });
    graph.output(graph.node('Add', [x, addend]), ElementType.FLOAT, [1, 4], name);
  }
  return graph.build();
}

const handlerOf = (before: string, after: string): string => `
  import { existsSync, writeFileSync } from 'node:fs';
  export function preprocess(request: { text(): string }) { ${before} ${numbersIn} }
  export function postprocess(tensors: { data: ArrayLike<number> }[], request: { text(): string }) {
    ${after} return { values: Array.from(tensors[0]!.data), pid: process.pid };
  }`;

async function start(name: string, flags: Record<string, string>): Promise<RunningHost> {
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, name),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      'cpu.profiling': 'off',
      'gpu.memory': '3MiB',
      'gpu.hostMemory': '32MiB',
      'gpu.profileIterations': '1',
      ...flags,
    },
  });
  return await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
}

interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly headers: Headers;
  readonly placement: string;
}

/** With an SLO that the emulated GPU meets on a busy machine: otherwise late calls go to the CPU pool. */
async function call(host: RunningHost, name: string, body: string | Uint8Array): Promise<Answer> {
  const request = { method: 'POST', headers: { 'X-Turntable-SLO': '60s' }, body: Buffer.from(body) };
  const reply = await fetch(`${host.url}/function/${name}`, request);
  const text = await reply.text();
  const isJson = reply.headers.get('content-type')?.includes('json') === true;
  const placement = reply.headers.get('x-turntable-placement') ?? '';
  return { status: reply.status, body: isJson ? JSON.parse(text) : text, headers: reply.headers, placement };
}

/** Where two answers differ by more than the last digits of sums in another order. */
function differences(one: unknown, other: unknown, path = ''): string[] {
  if (typeof one === 'number' && typeof other === 'number') {
    return Math.abs(one - other) <= 2e-4 ? [] : [`${path}: ${one} and ${other}`];
  }
  if (typeof one === 'object' && one !== null && typeof other === 'object' && other !== null) {
    const others = new Map(Object.entries(other));
    const names = [...new Set([...Object.keys(one), ...others.keys()])];
    const ones = new Map(Object.entries(one));
    return names.flatMap((name) => differences(ones.get(name), others.get(name), `${path}/${name}`));
  }
  return one === other ? [] : [`${path}: ${String(one)} and ${String(other)}`];
}

async function requestsOf(name: string): Promise<(string | Uint8Array)[]> {
  if (name === 'digit-reader') {
    const examples = join(shipped, name, 'examples');
    return await Promise.all((await readdir(examples)).map((file) => readFile(join(examples, file))));
  }
  if (name === 'language-id') return ['Where is the library?', 'Où est la bibliothèque ?', '{"text": "Wo ist sie?"}'];
  return ['Ma soeur prefere le the.', 'Ou etes-vous alle hier ?'];
}

describe.skipIf(emulatorMissing)('a function with a handler', () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-handlers-'));
    await cp(shipped, join(folder, 'functions'), { recursive: true, filter: isNeeded });
    await addFunction('numbers', handlerOf('', ''));
    await addFunction('throws', handlerOf("if (request.text() === '[7]') throw Object.assign(new Error('no sevens'), { status: 422 });", "if (request.text() === '[8]') throw new Error('eights are too much');")); // prettier-ignore
    await addFunction('hangs', handlerOf("while (request.text() === '[7]');", "while (request.text() === '[8]');"), { timeouts: { handler: '800ms' } }); // prettier-ignore
    await addFunction('dies', handlerOf('', "if (request.text() === '[7]') process.kill(process.pid, 'SIGKILL');"));
    await addFunction('dies-once', handlerOf('', `if (!existsSync(${marker('died')})) { writeFileSync(${marker('died')}, ''); process.kill(process.pid, 'SIGKILL'); }`)); // prettier-ignore
    await addFunction('grows', `export const preprocess = (request: { text(): string }) => {
        const rows = Number(request.text());
        return [{ name: 'x', datatype: 'FP32', shape: [rows, 4], data: new Float32Array(4 * rows) }];
      };
      export const postprocess = (tensors: { shape: number[] }[]) => ({ rows: tensors[0]!.shape[0] });`); // prettier-ignore
    await addFunction('ordered', `export const preprocess = (request: { text(): string }) => { ${numbersIn} };
      export const postprocess = (tensors: { name: string; data: ArrayLike<number> }[]) => tensors.map(({ name, data }) => [name, data[0]]);`, {}, ordered()); // prettier-ignore
    await addFunction('named-otherwise', handlerOf('', '').replace("name: 'x'", "name: 'zz'"));
    await emulateGpus([{ memoryBytes: 64 * 2 ** 20 }]);
    [onGpus, onCpus] = await Promise.all([start('gpus', {}), start('cpus', { 'gpu.use': 'off' })]);
    await onGpus.gpus!.settled();
  });
  afterAll(async () => {
    await Promise.all([onGpus?.stop(), onCpus?.stop()]);
    await rm(folder, { recursive: true, force: true });
  });

  test.each(shippedNames)('%s answers from a GPU as it does from the CPU pool', async (name) => {
    expect(onGpus.gpus!.record(`${name}@1`)?.state.kind).toMatch(/planned|resident/);
    for (const body of await requestsOf(name)) {
      // Its inputs may have a shape for which the first call triggers a program.
      await call(onGpus, name, body);
      await onGpus.gpus!.settled();
      const [gpu, cpu] = await Promise.all([call(onGpus, name, body), call(onCpus, name, body)]);
      expect(gpu.status).toBe(200);
      expect(gpu.placement).toMatch(/^gpu0 /);
      expect(gpu.headers.get('x-compute-type')).toBe('gpu');
      expect(cpu.placement).toMatch(/^cpu pool /);
      expect(differences(gpu.body, cpu.body)).toEqual([]);
    }
  });

  test('a function with a handler says that its weights and its handler were cold, then that everything was warm', async () => {
    const body = 'Ou etes-vous alle hier ?';
    // The host may still be timing joined calls of the function, which brings the weights back.
    const first = await vi.waitFor(async () => {
      await fetch(`${onGpus.url}/v2/repository/models/accent-restorer/unload`, { method: 'POST' });
      const reply = await call(onGpus, 'accent-restorer', body);
      expect(reply.placement).toMatch(/^gpu0 cold .+, handler cold$/);
      return reply;
    });
    expect(first.headers.get('x-model-cold-start')).toBe('true');
    expect(Number(first.headers.get('x-model-load-time'))).toBeGreaterThan(0);
    const second = await call(onGpus, 'accent-restorer', body);
    expect(second.placement).toBe('gpu0 warm');
    expect(second.headers.get('x-model-cold-start')).toBe('false');
    expect(second.body).toEqual(first.body);
  });

  test("sees its tensors in the model's declared order, wherever the model runs", async () => {
    const [gpu, cpu] = await Promise.all([call(onGpus, 'ordered', '[5]'), call(onCpus, 'ordered', '[5]')]);
    expect([gpu.placement, cpu.placement]).toEqual([
      expect.stringMatching(/^gpu0 /) as string,
      expect.stringMatching(/^cpu/) as string,
    ]);
    expect(gpu.body).toEqual(outputNames.map((name, index) => [name, 5 + index]));
    expect(cpu.body).toEqual(gpu.body);
  });

  test('a function with a handler keeps no copy of its model in the CPU pool', async () => {
    await call(onGpus, 'language-id', 'Where is it?');
    const { host } = (await (await fetch(`${onGpus.url}/api/memory`)).json()) as {
      readonly host: { readonly sessions: readonly { readonly functionName: string; readonly why: string }[] };
    };
    const own = host.sessions.filter(({ functionName }) => functionName === 'language-id');
    expect(own).not.toEqual([]);
    for (const { why } of own) expect(why).toContain('with the handler alone');
    const pinned = onGpus.gpus!.lastState!.host.functions.find(({ key }) => key === 'language-id@1')?.host;
    expect(pinned?.filledBytes).toBeGreaterThan(0);
  });

  test.each([
    ['that throws with a status in its first half', 'throws', '[7]'],
    ['that throws in its second half', 'throws', '[8]'],
    ['that never comes back from its first half', 'hangs', '[7]'],
    ['that never comes back from its second half', 'hangs', '[8]'],
    ['whose second half ends the process each time', 'dies', '[7]'],
    ['that gives an input which the model does not have', 'named-otherwise', '[1]'],
  ])('%s fails on the GPU as it does on the CPU pool', async (_what, name, body) => {
    const [gpu, cpu] = await Promise.all([call(onGpus, name, body), call(onCpus, name, body)]);
    expect(gpu.status).toBeGreaterThanOrEqual(400);
    expect({ status: gpu.status, body: gpu.body }).toEqual({ status: cpu.status, body: cpu.body });
    if (name === 'named-otherwise') return;
    const after = await call(onGpus, name, '[5]');
    expect(after).toMatchObject({ status: 200, body: { values: [5, 0, 0, 0] }, placement: expect.stringMatching(/^gpu0 /) as string }); // prettier-ignore
  });

  test('whose process ends between its halves is answered anyway', async () => {
    const [one, other] = await Promise.all([call(onGpus, 'dies-once', '[1]'), call(onGpus, 'dies-once', '[2]')]);
    expect([one, other]).toMatchObject([
      { status: 200, body: { values: [1, 0, 0, 0] } },
      { status: 200, body: { values: [2, 0, 0, 0] } },
    ]);
  });

  test('a function with a handler is counted once for each call, in the metrics and in its statistics', async () => {
    for (let index = 0; index < 6; index++) await call(onGpus, 'numbers', `[${index}]`);
    const reply = (await (await fetch(`${onGpus.url}/v2/models/numbers/stats`)).json()) as {
      readonly model_stats: readonly [
        {
          readonly inference_stats: Readonly<Record<string, { readonly count: number; readonly ns: number }>>;
          readonly turntable: { readonly hits: number; readonly cold_starts: number };
        },
      ];
    };
    const [{ inference_stats: stats, turntable }] = reply.model_stats;
    expect(turntable.hits + turntable.cold_starts).toBe(stats['success']!.count);
    expect(turntable.hits).toBeGreaterThanOrEqual(5);
    // Both halves of the handler count in Triton's parts.
    for (const part of ['compute_input', 'compute_infer', 'compute_output']) expect(stats[part]!.ns).toBeGreaterThan(0);
  });

  test('whose inputs need more than the whole GPU runs on the CPU pool, and on the GPU with others', async () => {
    const rows = 250_000;
    const answers: Answer[] = [];
    for (let run = 0; run < 3; run++) {
      answers.push(await call(onGpus, 'grows', String(rows)));
      await onGpus.gpus!.settled();
    }
    for (const answer of answers) expect(answer).toMatchObject({ status: 200, body: { rows } });
    expect(answers[0]!.placement).toMatch(/overflow: its program for inputs of x\[250000,4\] is not there yet$/);
    for (const { placement } of answers.slice(1))
      expect(placement).toMatch(/^cpu pool \w+ overflow: not for inputs of x\[250000,4\]: /);
    await call(onGpus, 'grows', '2');
    await onGpus.gpus!.settled();
    expect(await call(onGpus, 'grows', '2')).toMatchObject({
      body: { rows: 2 },
      placement: expect.stringMatching(/^gpu0 /) as string,
    });
    expect(onGpus.gpus!.record('grows@1')?.breaker).toBeUndefined();
  });

  test('a function with a handler goes to the CPU pool with its reason while the GPU process is away, and comes back', async () => {
    const gpus = onGpus.gpus!;
    process.kill(gpus.pid, 'SIGKILL');
    let placement: string;
    // The first calls may come before the host knows.
    do {
      const answer = await call(onGpus, 'numbers', '[6,-6]');
      expect(answer).toMatchObject({ status: 200, body: { values: [6, 0, 0, 0] } });
      ({ placement } = answer);
    } while (placement.startsWith('gpu') && gpus.restarts === 0);
    expect(placement).toMatch(/cpu pool \w+ overflow: (the GPU process is restarting|gpu0 failed)/);
    await vi.waitUntil(() => gpus.restarts === 1);
    await gpus.settled();
    expect((await call(onGpus, 'numbers', '[1]')).placement).toMatch(/^gpu0 /);
  });

  test('whose handler is loaded ahead with its weights is warm for its first caller', async () => {
    await fetch(`${onGpus.url}/v2/repository/models/numbers/unload`, { method: 'POST' });
    expect((await fetch(`${onGpus.url}/v2/repository/models/numbers/load`, { method: 'POST' })).status).toBe(200);
    expect((await call(onGpus, 'numbers', '[1]')).placement).toBe('gpu0 warm');
  });
});
