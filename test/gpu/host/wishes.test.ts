/**
 * Calls that are late everywhere, on the emulated driver: what is brought for the calls behind them, to the GPU and to the
 * CPU, and who is refused where one function asks for too much. Times measured on the emulator mean nothing, so the
 * scheduler is offered those of a slow machine, so long that no verdict goes by the speed of this one.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { placedText } from '../../../src/cli/ps.ts';
import type { FunctionsAnswer } from '../../../src/host/dashboard/api-types.ts';
import { loadConfig, startHost, type RunningHost } from '../../../src/host/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import { Scheduler, type GpuOffer, type LoadOption, type OfferSheet } from '../../../src/schedule/index.ts';
import { emulateGpus } from '../../support/emulate-gpus.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';

/** What the scheduler is told of a run, and of a start that finds nothing. */
const warmMs = 200_000;
const coldMs = 40_000_000;
const settings = { layers: 2, input: 8, hidden: 192, sequence: 48, batch: 1 };
const body = JSON.stringify({
  inputs: [
    {
      name: 'input',
      datatype: 'FP32',
      shape: [1, settings.sequence, settings.input],
      data: Array.from({ length: settings.sequence * settings.input }, (_, index) => (index % 100) / 100 - 0.5),
    },
  ],
});

let folder: string;
let host: RunningHost;
let slowed: Disposable;

async function addFunction(name: string, seed: number, admission: 'shed' | 'best-effort'): Promise<void> {
  const place = join(folder, 'functions', name);
  await mkdir(place, { recursive: true });
  await writeModel(buildArchitecture('lstm', settings, seed).model, join(place, 'model.onnx'));
  await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '60s', admission }));
}

/** Calls run one by one: joined runs would be as fast as they are here. */
function offered({ batches: _, ...offer }: GpuOffer): GpuOffer {
  const share = (prefix: number): number => 1 - prefix / (offer.prefixBytes.length - 1);
  const [first, ...others] = offer.ways.map((way): LoadOption => {
    const [own, ...lent] = way.transfers.map((transfer) => ({
      ...transfer,
      ms: transfer.ms.map((_ms, prefix) => coldMs * share(prefix)),
    }));
    return {
      ...way,
      coldMs: way.coldMs.map((_ms, prefix) => warmMs + (coldMs - warmMs) * share(prefix)),
      transfers: [own!, ...lent],
    };
  });
  return { ...offer, warmMs, ways: [first!, ...others] };
}
const slowMachine = (sheet: OfferSheet): OfferSheet => ({
  ...sheet,
  gpus: sheet.gpus.map((offer) => offer && offered(offer)),
  // A run there is in time where one on the GPU is late, once its session has been made.
  cpu: sheet.cpu && { ...sheet.cpu, latencyMs: warmMs / 4, loadMs: coldMs },
});

/** From now on schedulers are told of a slow machine. */
function slowDown(): Disposable {
  // oxlint-disable-next-line typescript/unbound-method -- called with its scheduler below
  const { handle } = Scheduler.prototype;
  const spy = vi.spyOn(Scheduler.prototype, 'handle').mockImplementation(function (this: Scheduler, event, atMs) {
    const isSheet = event.kind === 'function-added' || event.kind === 'sheet-changed';
    return handle.call(this, isSheet ? { ...event, sheet: slowMachine(event.sheet) } : event, atMs);
  });
  return { [Symbol.dispose]: () => spy.mockRestore() };
}

interface Told {
  readonly status: number;
  readonly placement: string;
}

async function call(name: string, sloMs: number): Promise<Told> {
  const headers = { 'X-Turntable-SLO': `${sloMs}ms` };
  const reply = await fetch(`${host.url}/v2/models/${name}/infer`, { method: 'POST', body, headers });
  await reply.arrayBuffer();
  return { status: reply.status, placement: reply.headers.get('x-turntable-placement') ?? '' };
}

async function sample(series: string): Promise<number> {
  const lines = (await (await fetch(`${host.url}/metrics`)).text()).split('\n');
  return Number(lines.find((line) => line.startsWith(`${series} `))?.slice(series.length + 1) ?? 0);
}

async function instancesOf(name: string): Promise<number | undefined> {
  const { functions } = (await (await fetch(`${host.url}/api/functions`)).json()) as FunctionsAnswer;
  return functions.find((row) => row.name === name)?.instances;
}

const toCpu = (name: string, reason: string): string =>
  `turntable_overflow_total{function="${name}",from="gpu",to="cpu",reason="${reason}"}`;

const psText = async (): Promise<string> =>
  placedText(await (await fetch(`${host.url}/api/functions`)).json(), Date.now());

async function start(
  names: readonly string[],
  admission: 'shed' | 'best-effort',
  flags: Readonly<Record<string, string>>,
): Promise<void> {
  folder = await mkdtemp(join(tmpdir(), 'turntable-wishes-'));
  await emulateGpus([{ memoryBytes: 256 * 2 ** 20 }]);
  for (const [index, name] of names.entries()) await addFunction(name, index, admission);
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      'cpu.profiling': 'off',
      'gpu.mode': 'pipeswitch',
      'gpu.profileIterations': '1',
      ...flags,
    },
  });
  slowed = slowDown();
  host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
  await host.gpus!.settled();
}

async function stop(): Promise<void> {
  await host?.stop();
  slowed?.[Symbol.dispose]();
  await rm(folder, { recursive: true, force: true });
}

describe.skipIf(emulatorMissing)('a host that sheds, with one GPU', () => {
  beforeAll(async () => await start(['slow', 'loud', 'quiet'], 'shed', { 'gpu.offload': 'never' }));
  afterAll(stop);

  test('lets one late call bring its function where only a warm run meets the SLO, and says so everywhere', async () => {
    const sloMs = coldMs / 2;
    expect(await call('slow', sloMs)).toMatchObject({
      status: 200,
      placement: expect.stringMatching(/^gpu0 cold .*, for the calls behind it$/),
    });
    expect(await call('slow', sloMs)).toEqual({ status: 200, placement: 'gpu0 warm' });
    // Even a run that finds its function there would be late: refused, and nothing is brought.
    expect(await call('slow', warmMs / 2)).toMatchObject({ status: 503 });
    expect(await sample('turntable_brought_total{function="slow"}')).toBe(1);
    expect(await psText()).toContain(
      'slow@1 starts too slowly for its SLO: 1 late calls ran so that those behind them find it there',
    );
  });

  test('refuses calls of the function that asks for too much, and none of a quiet one beside it', async () => {
    for (const name of ['loud', 'quiet']) expect(await call(name, 2 * coldMs)).toMatchObject({ status: 200 });
    // One runs and two wait; a fourth is refused. In its turn a quiet call ends as the third.
    const sloMs = 3.5 * warmMs;
    const count = 24;
    const loud = Array.from({ length: count }, () => call('loud', sloMs));
    // Until the first is refused.
    await Promise.any(loud.map(async (told) => expect((await told).status).toBe(503)));
    const quiet: Told[] = [];
    for (let turn = 0; turn < 4; turn++) quiet.push(await call('quiet', sloMs));
    expect(quiet).toEqual(Array.from({ length: 4 }, () => ({ status: 200, placement: 'gpu0 warm' })));
    const statuses = (await Promise.all(loud)).map(({ status }) => status);
    const shed = statuses.filter((status) => status === 503).length;
    expect(new Set(statuses)).toEqual(new Set([200, 503]));
    expect(await sample('turntable_goodput_total{function="loud",outcome="shed"}')).toBe(shed);
    expect(await sample('turntable_goodput_total{function="quiet",outcome="shed"}')).toBe(0);
    // It is there, and has too much to do: no call of it was let through.
    expect(await sample('turntable_brought_total{function="loud"}')).toBe(0);
  });
});

describe.skipIf(emulatorMissing)('a host whose CPU takes what a GPU would answer late', () => {
  beforeAll(async () => await start(['spilled', 'neighbour'], 'best-effort', {}));
  afterAll(stop);

  test('has a late call make the session that takes longer than the SLO, and another function one ahead', async () => {
    const sloMs = warmMs / 2;
    // Late on the GPU, and here as well, where its session takes longer to make than the SLO.
    expect(await call('spilled', sloMs)).toEqual({
      status: 200,
      placement: expect.stringMatching(
        /^cpu pool cold overflow: gpu0 .*, late as well; the calls behind it find its session here$/,
      ),
    });
    const overflow = expect.stringMatching(
      /^cpu pool warm overflow: gpu0 would finish in \d+ ms, after the SLO of \d+ ms$/,
    );
    expect(await call('spilled', sloMs)).toEqual({ status: 200, placement: overflow });
    // In time on the GPU. Its session is made meanwhile, since its calls may be late next.
    expect(await call('neighbour', 2 * coldMs)).toMatchObject({
      status: 200,
      placement: expect.stringMatching(/^gpu0 cold/),
    });
    await vi.waitFor(async () => expect(await instancesOf('neighbour')).toBe(1));
    expect(await call('neighbour', sloMs)).toEqual({ status: 200, placement: overflow });
    expect(await sample('turntable_brought_total{function="spilled"}')).toBe(1);
    expect(await sample('turntable_brought_total{function="neighbour"}')).toBe(0);
    expect(await sample('turntable_cold_starts_total{function="spilled",plan="cpu"}')).toBe(1);
    expect(await sample('turntable_cold_starts_total{function="neighbour",plan="cpu"}')).toBe(0);
    expect(await sample(toCpu('spilled', 'bringing'))).toBe(1);
    expect(await sample(toCpu('spilled', 'slo'))).toBe(1);
    expect(await sample(toCpu('neighbour', 'slo'))).toBe(1);
    const text = await psText();
    expect(text).toContain('spilled@1 starts too slowly for its SLO: 1 late calls ran');
    expect(text).not.toContain('neighbour@1 starts too slowly');
  });
});
