/** `turntable plan chrion <function>`: on the emulated driver, with an estimated GPU, and with times from a file. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { PlanReport } from '../../src/host/index.ts';
import { savedIn } from '../support/saved-report.ts';
import { isSpoken } from '../../src/cli/error.ts';
import { planCommand } from '../../src/cli/plan.ts';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { parseGraphProfile } from '../../src/profile/index.ts';
import { buildEmulatedDriver } from '../emulated-driver/build.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';

let folder: string;
let network: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-plan-chrion-'));
  network = join(folder, 'network.onnx');
  const { model } = buildArchitecture('lstm', { layers: 2, input: 8, hidden: 16, sequence: 6 });
  await writeModel(model, network);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The output; rejects with the command's error. Runs in this process, which has the modules loaded. */
async function planChrion(words: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
  for (const [name, value] of Object.entries(env)) vi.stubEnv(name, value);
  try {
    await planCommand()
      .exitOverride()
      .parseAsync(['chrion', ...words], { from: 'user' });
    return log.mock.calls.map((line) => String(line[0])).join('\n');
  } finally {
    vi.unstubAllEnvs();
    vi.restoreAllMocks();
  }
}

interface PlanAnswer {
  readonly gpu_bytes: number;
  readonly latency_ms: number;
  readonly order: readonly string[];
  readonly device: Readonly<Record<string, 'gpu' | 'cpu'>>;
  readonly segments: readonly { readonly core: number; readonly operators: readonly string[] }[];
}

interface Answer {
  readonly provenance: string;
  readonly patterns: Readonly<Record<'gpu' | 'latency' | 'memory' | 'cpu', PlanAnswer>>;
  readonly ladder: readonly PlanAnswer[];
}

describe('turntable plan chrion <function>', () => {
  test.skipIf(emulatorMissing)(
    'times the operators here, stores the times, and makes the same plans from them',
    async () => {
      const { environment } = (await buildEmulatedDriver())!;
      const data = join(folder, 'measured');
      const page = join(folder, 'measured.html');
      const flags = ['--cells', '3', '--samples', '2', '--cores', '2', '--data', data];
      const first = await planChrion([network, ...flags, '--json', '--html', page], environment);
      const answer = JSON.parse(first) as Answer;
      expect(answer.provenance).toMatch(/^measured on an emulated GPU, whose times mean nothing, and on /);
      const { gpu, latency, memory, cpu } = answer.patterns;
      expect(gpu.order.filter((name) => /LSTM.*\/step/.test(name)).length).toBeGreaterThanOrEqual(6);
      expect(Object.values(gpu.device).every((device) => device === 'gpu')).toBe(true);
      expect(cpu.gpu_bytes).toBe(0);
      expect(memory.gpu_bytes).toBeLessThanOrEqual(latency.gpu_bytes);
      expect(latency.latency_ms).toBeLessThanOrEqual(gpu.latency_ms);
      for (const { order, device, segments } of [gpu, latency, memory, cpu, ...answer.ladder]) {
        expect([...order].sort()).toEqual([...gpu.order].sort());
        const onCpu = order.filter((name) => device[name] === 'cpu');
        expect(segments.flatMap(({ operators }) => operators).sort()).toEqual(onCpu.sort());
      }
      const { name: drawn, timelines } = savedIn(await readFile(page, 'utf8')) as PlanReport;
      expect([drawn, ...timelines.map((each) => each.name)]).toEqual([
        'network.onnx',
        'latency-optimal',
        'memory-optimal',
      ]);

      const [kept = ''] = await readdir(join(data, 'profiles'));
      expect(kept).toMatch(/^[0-9a-f]{16}-operators-gpu0\.json$/);
      const path = join(data, 'profiles', kept);
      const profile = parseGraphProfile(JSON.parse(await readFile(path, 'utf8')));
      expect(profile.nodes.map(({ name }) => name).sort()).toEqual([...gpu.order].sort());
      const again = await planChrion([network, '--profile', path, '--cores', '2', '--json']);
      expect((JSON.parse(again) as Answer).patterns).toEqual(answer.patterns);
    },
  );

  test("turntable plan chrion <function> takes the GPU's times from a machine, and says that they are estimated", async () => {
    const data = join(folder, 'estimated');
    const words = [network, '--estimate', 'h200', '--cells', '2', '--samples', '2', '--data', data];
    const stdout = await planChrion(words);
    expect(stdout).toMatch(/^PLAN +LATENCY +GPU MEMORY +CORES +ON GPU +ON CPU +CALLS +COPIES\nGPU alone /);
    expect(stdout).toMatch(/^OPERATOR +GPU +1 CORE .*LATENCY-OPTIMAL +MEMORY-OPTIMAL$/m);
    expect(stdout).toMatch(/step0-2 .* (GPU|core \d+) +\d+\.\d{3} to \d+\.\d{3}/);
    expect(stdout).toContain("the GPU's side is estimated for machine 'h200', the CPU's measured on ");
  });

  test.each([
    [['nobody'], 1, "there is no function 'nobody' in"],
    [['--estimate', 'h200'], 2, 'name a function, or give the times of its operators: --profile <file>'],
    [['network', '--alpha', '1'], 2, '--alpha and --pattern choose one plan of a profile'],
    [['network', '--estimate', 'no-machine'], 2, 'no-machine'],
    [['network', '--estimate', 'cpu-16'], 1, "machine 'cpu-16' has no GPU 0 to estimate operators for"],
    [['network', '--estimate', 'h200', '--cores', '100000'], 2, '--cores is 100000, but there '],
    [['network', '--estimate', 'h200', '--dim', 'steps=4'], 2, "the model has no open dimension 'steps'"],
    [
      ['network', '--estimate', 'h200', '--dim', 'batch'],
      2,
      "--dim takes name=size such as sequence=64, and 'batch' is not that",
    ],
    [
      ['network', '--estimate', 'h200', '--cores', '0'],
      2,
      '--cores is 0, and operators are timed on one core at least',
    ],
  ])('turntable plan chrion <function> refuses %j', async (words, exitCode, message) => {
    const given = words.map((word) => (word === 'network' ? network : word));
    const refused = await planChrion([...given, '--data', join(folder, 'refused')]).catch((error: unknown) => error);
    expect(refused).toSatisfy(isSpoken);
    expect(refused).toHaveProperty('message', expect.stringContaining(message));
    // An error without its own exit status ends the command with 1.
    expect((refused as { exitCode?: number }).exitCode ?? 1).toBe(exitCode);
  });

  test('turntable plan chrion <function> says what else to do if there is no GPU', async () => {
    const nowhere = { TURNTABLE_LIBCUDA: join(folder, 'no-library.so') };
    await expect(planChrion([network, '--data', join(folder, 'none')], nowhere)).rejects.toThrow(
      /^there is no GPU to time operators on: .*--estimate takes a machine to estimate its GPU for, such as h200$/,
    );
  });
});
