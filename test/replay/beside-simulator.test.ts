/**
 * `turntable replay --live` against a host whose emulated GPUs hold part of its functions, compared with the simulator.
 */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { replayCommand } from '../../src/cli/replay.ts';
import type { SchedulerAnswer } from '../../src/host/gpu/index.ts';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/logger.ts';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import type { LiveReport } from '../../src/replay/index.ts';
import { buildEmulatedDriver } from '../emulated-driver/build.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { startReluHost } from '../support/relu-host.ts';

const mebibyte = 2 ** 20;
const names = Array.from({ length: 10 }, (_, index) => `bert-${index}`);
const requests = 120;
const load = ['--poisson', '30', '--requests', String(requests), '--zipf', '0.6', '--seed', '4'];

/** The output of the command. */
async function replay(...words: readonly string[]): Promise<string> {
  let printed = '';
  vi.spyOn(console, 'log').mockImplementation((text: string) => {
    printed += `${text}\n`;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
  try {
    await replayCommand()
      .exitOverride()
      .configureOutput({ writeErr: () => undefined })
      .parseAsync(['--live', ...words], { from: 'user' });
  } finally {
    vi.restoreAllMocks();
  }
  return printed;
}

const requestsOf = ({ functions }: Pick<LiveReport, 'functions'>): Record<string, number> =>
  Object.fromEntries(functions.map((row) => [row.function, row.requests]));

describe.skipIf(emulatorMissing)('a replay compared with the simulator', () => {
  let folder: string;
  let host: RunningHost;
  let text: string;
  let report: LiveReport;
  let csv: string;
  let page: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-beside-'));
    const device = { memoryBytes: 64 * mebibyte };
    const driver = await buildEmulatedDriver();
    const environment = { ...driver!.environment, TURNTABLE_EMULATOR: JSON.stringify({ devices: [device, device] }) };
    for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value);
    const settings = { layers: 1, hidden: 128, heads: 2, vocabulary: 200, positions: 32, sequence: 8 };
    for (const [seed, name] of names.entries()) {
      const place = join(folder, 'functions', name);
      await mkdir(place, { recursive: true });
      await writeModel(buildArchitecture('bert-base', settings, seed).model, join(place, 'model.onnx'));
      await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '5s' }));
    }
    const { config } = loadConfig({
      flags: {
        'listen.port': '0',
        dataDir: join(folder, 'data'),
        functionsDir: join(folder, 'functions'),
        'cpu.cores': '2',
        'cpu.profiling': 'off',
        'gpu.memory': '3.5MiB',
        'gpu.hostMemory': '64MiB',
        'gpu.profileIterations': '1',
      },
    });
    host = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
    await host.gpus!.settled();
    const files = ['json', 'csv', 'html'].map((kind) => join(folder, `report.${kind}`));
    const words = ['--json', files[0]!, '--csv', files[1]!, '--html', files[2]!, '--varying-size', '8'];
    text = await replay('--url', host.url, ...load, ...words);
    [report, csv, page] = await Promise.all([
      readFile(files[0]!, 'utf8').then((json) => JSON.parse(json) as LiveReport),
      readFile(files[1]!, 'utf8'),
      readFile(files[2]!, 'utf8'),
    ]);
  });
  afterAll(async () => {
    await host?.stop();
    vi.unstubAllEnvs();
    await rm(folder, { recursive: true, force: true });
  });

  test('measures and simulates the same requests', () => {
    const beside = report.beside_simulator!;
    expect(report).toMatchObject({
      measured: true,
      requests,
      failed: 0,
      settings: { plan: 'interleave', policy: 'best' },
    });
    expect(beside.simulated).toMatchObject({ simulated: true, requests, failed: 0, settings: { policy: 'best' } });
    expect(requestsOf(beside.simulated)).toEqual(requestsOf(report));
    expect(beside.steps.map((step) => step.requests)).toEqual([requests, requests, requests]);
  });

  test('counts starts and evictions like the live scheduler', () => {
    const { differences, gpu_evictions: evictions } = report.beside_simulator!;
    const { starts, evictions: byCause } = host.gpus!.live.counts;
    const measured = Object.fromEntries(differences.service.map((row) => [row.start, row.measured]));
    expect(measured).toMatchObject({ ...starts });
    expect(evictions.measured).toEqual(Object.fromEntries(byCause));
    // More functions than fit: otherwise the test would show nothing.
    expect(starts.cold).toBeGreaterThan(0);
    expect([...byCause.values()].reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0);
  });

  test('explains the whole difference between the mean latencies', () => {
    const { latency } = report.beside_simulator!.differences;
    const parts = Object.values(latency.difference);
    expect(parts.every((part) => part !== null)).toBe(true);
    const sum = parts.reduce<number>((total, part) => total + (part ?? 0), 0);
    expect(sum).toBeCloseTo(latency.measured_mean_ms! - latency.simulated_mean_ms!, 2);
  });

  test('says of every figure that the GPUs are emulated', () => {
    expect(report.machine).toMatch(/emulated GPUs: times mean nothing/);
    expect(report.beside_simulator!.simulated.machine).toMatch(/emulated GPUs: times mean nothing/);
    expect(text).toMatch(/^measured on the host at http.* \(emulated GPUs: times mean nothing\)/);
    expect(text).toMatch(/The GPUs of this host are emulated on its CPU: times mean nothing, decisions do\./);
    expect(page).toMatch(/emulated GPUs: times mean nothing/);
  });

  test('shows both side by side as text, CSV and page', () => {
    expect(text).toMatch(/^ +MEASURED +SIMULATED +AS SENT +AS SERVED$/m);
    for (const row of ['goodput', 'p99', 'cold on a GPU', 'evictions from GPUs', 'placed otherwise']) {
      expect(text).toMatch(new RegExp(`^${row} .*\\d`, 'm'));
    }
    expect(text).toMatch(/^Why measurement and simulation differ:\n- /m);
    expect(text).toMatch(/^- Requests left the client .* late at the median/m);
    expect(csv).toMatch(/^total,,measured,/m);
    expect(csv).toMatch(/^total,,simulated,/m);
    expect(page).toContain('the simulator');
    expect(page).toMatch(/<h2>Why measurement and simulation differ<\/h2>\n<ul><li>/);
  });

  test('begins the next replay with the layers on the GPUs, and reading the host does not change it', async () => {
    const before = (await (await fetch(`${host.url}/api/scheduler`)).json()) as SchedulerAnswer;
    const resident = before.functions.filter(({ residents }) => residents.length > 0);
    expect(resident.length).toBeGreaterThan(0);
    const file = join(folder, 'again.json');
    const counts = host.gpus!.live.counts;
    await replay('--url', host.url, '--poisson', '20', '--requests', '1', '--json', file);
    const again = JSON.parse(await readFile(file, 'utf8')) as LiveReport;
    expect(again.beside_simulator).toMatchObject({ resident_at_start: resident.length });
    const after = host.gpus!.live.counts;
    const sum = ({ starts }: typeof counts): number => starts.cold + starts.partial + starts.warm;
    expect(sum(after) - sum(counts)).toBe(1);
  });

  test('only measures on request', async () => {
    const file = join(folder, 'alone.json');
    await replay('--url', host.url, '--poisson', '20', '--requests', '2', '--no-beside-simulator', '--json', file);
    const alone = JSON.parse(await readFile(file, 'utf8')) as LiveReport;
    expect(alone.beside_simulator).toBeUndefined();
    expect(alone.machine).toMatch(/emulated GPUs/);
  });
});

describe('a host without GPUs', () => {
  test('is only measured, and a simulation of it is refused', async () => {
    await using host = await startReluHost(['relu']);
    const words = ['--url', host.url, '--poisson', '50', '--requests', '3'];
    const text = await replay(...words);
    expect(text).toMatch(/^measured on the host at http:\S+: 3 requests/);
    expect(text).not.toMatch(/simulated/);
    await expect(replay(...words, '--beside-simulator')).rejects.toThrow(
      `there is nothing to simulate beside the host at ${host.url}: this host drives no GPU`,
    );
  });
});
