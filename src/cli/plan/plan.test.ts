import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { savedIn } from '../../../test/support/saved-report.ts';
import type { PlanReport } from '../../host/index.ts';
import { liveStack } from '../../../test/support/graph-profiles.ts';
import { predictService, loadChrion } from '../../plan/index.ts';
import { planCommand } from '../plan.ts';
import { lstmCells } from '../../../test/support/lstm-cells.ts';

const { planChrion } = await loadChrion();

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-plan-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
  vi.restoreAllMocks();
});

/** Runs `turntable plan` and returns what it printed. */
async function plan(...argv: string[]): Promise<string> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
  try {
    const command = planCommand();
    for (const each of [command, ...command.commands]) each.exitOverride();
    await command.parseAsync(argv, { from: 'user' });
    return log.mock.calls.map((line) => String(line[0])).join('\n');
  } finally {
    vi.restoreAllMocks();
  }
}

function fileOf(name: string, json: unknown): string {
  const file = join(folder, name);
  writeFileSync(file, typeof json === 'string' ? json : JSON.stringify(json));
  return file;
}

const bert = join(import.meta.dirname, '../../../test/reference/packrat-bert.json');
const pool = { unit: 'ms', threads: [2, 3], batches: [1, 2], latency: [[5, 8], [9, 20]] }; // prettier-ignore
const service = {
  unit: 'ms',
  configurations: [
    { concurrency: 1, threads: 8, nodes: 1, serviceTime: [100] },
    { concurrency: 4, threads: 2, serviceTime: [250, 260, 280, 300] },
  ],
};
const graph = lstmCells({ layers: 6, batch: 8, ioSize: 64, sequence: 12 });

describe('turntable plan packrat', () => {
  test('turntable plan packrat answers with the documented JSON', async () => {
    const answer: unknown = JSON.parse(
      await plan('packrat', '--profile', bert, '--threads', '14', '--batches', '16,73', '--exact', '--json'),
    );
    expect(answer).toEqual([
      { batch: 16, latency_ms: 51.555027, instances: [[1, 14, 16]] },
      { batch: 73, latency_ms: expect.any(Number) as number, instances: expect.any(Array) as number[] },
    ]);
  });

  test('turntable plan packrat answers null when no instances add up', async () => {
    const json = await plan('packrat', '--profile', bert, '--threads', '1', '--batches', '145', '--json');
    expect(JSON.parse(json)).toEqual([{ batch: 145, latency_ms: null, instances: [] }]);
    expect(await plan('packrat', '--profile', bert, '--threads', '1', '--batches', '145')).toContain('infeasible');
  });

  test('turntable plan packrat leaves threads idle unless told otherwise, and keeps sockets apart', async () => {
    const profile = fileOf('pool.json', pool);
    const args = ['packrat', '--profile', profile, '--threads', '3', '--batches', '2', '--json'];
    expect(JSON.parse(await plan(...args))).toEqual([{ batch: 2, latency_ms: 8, instances: [[1, 2, 2]] }]);
    expect(JSON.parse(await plan(...args, '--exact'))).toMatchObject([{ latency_ms: 20 }]);
    expect(JSON.parse(await plan(...args, '--threads-per-socket', '1'))).toMatchObject([{ latency_ms: null }]);
  });

  test('turntable plan packrat plans for the whole profile when no batches are named', async () => {
    const table = await plan('packrat', '--profile', fileOf('pool.json', pool));
    expect(table.split('\n')).toEqual([
      'BATCH  LATENCY  ITEMS/S  IDLE THREADS  INSTANCES',
      '    1     5 ms      200             1  1 x (2 threads, batch 1)',
      '    2     8 ms      250             1  1 x (2 threads, batch 2)',
    ]);
  });
});

describe('turntable plan serf', () => {
  test('turntable plan serf answers with the documented JSON, null where everything is overloaded', async () => {
    const profile = fileOf('service.json', service);
    const answer = JSON.parse(await plan('serf', '--profile', profile, '--rates', '1,12,20', '--json')) as unknown[];
    const expected = predictService([100], 1);
    expect(answer[0]).toMatchObject({
      rate: 1,
      best: { concurrency: 1, threads: 8, nodes: 1 },
      latency_ms: expected.state === 'stable' ? expected.latencyMs : undefined,
    });
    expect(answer[1]).toMatchObject({
      rate: 12,
      best: { concurrency: 4, threads: 2, nodes: 1 },
      all: [{ concurrency: 1, latency_ms: null, wait_ms: null, utilisation: 1.2 }, { concurrency: 4 }],
    });
    expect(answer[2]).toMatchObject({ rate: 20, best: null, latency_ms: null });
  });

  test('turntable plan serf finds the least resources for an SLO', async () => {
    const profile = fileOf('service.json', service);
    const args = ['serf', '--profile', profile, '--rates', '12', '--machines', '4', '--slo', '150ms'];
    const [answer] = JSON.parse(await plan(...args, '--json')) as [{ least: object }];
    expect(answer.least).toMatchObject({ concurrency: 1, threads: 8, nodes: 1, units: 3, machines: 3 });
    const [none] = JSON.parse(await plan(...args, '--slo', '50ms', '--json')) as [{ least: null }];
    expect(none.least).toBeNull();
    expect(await plan(...args)).toMatch(/LEAST FOR 150 ms\n.*1 at once x 8 threads on 3 machines$/);
  });

  test('turntable plan serf has ten load levels when none are named', async () => {
    const table = await plan('serf', '--profile', fileOf('service.json', service));
    expect(table.split('\n')).toHaveLength(11);
    expect(table).toMatch(/4 at once x 2 threads$/);
  });
});

describe('turntable plan chrion', () => {
  test('turntable plan chrion answers with the documented JSON', async () => {
    const profile = fileOf('graph.json', graph);
    const answer: unknown = JSON.parse(
      await plan('chrion', '--profile', profile, '--alpha', '0.2', '--cores', '5', '--json'),
    );
    const expected = planChrion(graph, { alpha: 0.2, cores: 5 });
    expect(answer).toEqual({
      latency_ms: expected.latencyMs,
      gpu_bytes: expected.gpuBytes,
      cores: expected.cores,
      order: expected.operators.map(({ name }) => name),
      device: Object.fromEntries(expected.operators.map(({ name, device }) => [name, device])),
      segments: expected.segments.map(({ core, operators }) => ({ core, operators })),
    });
  });

  test('turntable plan chrion draws its plan with its calls and copies', async () => {
    const stack = liveStack({ layers: 4, cells: 8, gpuMs: 0.1, cpuMs: 0.5, callMs: 0.05 });
    const page = join(folder, 'calls.html');
    const table = await plan('chrion', '--profile', fileOf('stack.json', stack), '--alpha', '0.1', '--html', page);
    expect(table).toMatch(/^PLAN .* CALLS .*\nchosen .*\nA copy .*a call on a core 0\.05 ms beside its operators\.$/s);
    const { cores, segments, operators, copies, latencyMs } = planChrion(stack, { alpha: 0.1 });
    const { timelines } = savedIn(readFileSync(page, 'utf8')) as PlanReport;
    const { lanes, ...drawn } = timelines[0]!;
    expect([drawn.latencyMs, segments.length > 0]).toEqual([latencyMs, true]);
    expect(lanes.map((lane) => lane.name)).toEqual(['GPU', 'core 1', 'core 2', 'core 3'].slice(0, cores + 1));
    const looks = lanes.flatMap(({ bars }) => bars.map(({ look }) => look));
    const countOf = (...wanted: string[]): number => looks.filter((look) => wanted.includes(look)).length;
    expect(countOf('call')).toBe(segments.length);
    expect(countOf('gpu', 'cpu')).toBe(operators.length);
    expect(countOf('to-gpu', 'to-cpu')).toBe(copies.length);
    expect(drawn.note).toMatch(/^the GPU, \d cores? in \d+ calls?, \d+ MB of GPU memory$/);
  });

  test('turntable plan chrion compares its plan with the GPU and the CPU alone, and draws the timeline', async () => {
    const page = join(folder, 'timeline.html');
    const profile = fileOf('graph.json', graph);
    const table = await plan('chrion', '--profile', profile, '--pattern', 'memory', '--html', page);
    expect(table).toMatch(
      /^PLAN .*\nchosen .*\nGPU alone +3\.69 ms .* 0 +72 +0 +0 +0\nCPU alone .*\nA copy .*11\.05 GB\/s/,
    );
    const { timelines, provenance } = savedIn(readFileSync(page, 'utf8')) as PlanReport;
    expect(provenance).toBe('predicted from the profile');
    expect(timelines).toMatchObject([{ name: 'chosen', note: 'the GPU, 81.1 MB of GPU memory' }]);
    expect(timelines[0]!.lanes.map(({ name }) => name)).toEqual(['GPU']);
  });

  test('turntable plan chrion keeps within a latency limit, or says that no plan does', async () => {
    const profile = fileOf('graph.json', graph);
    const args = ['chrion', '--profile', profile, '--pattern', 'memory', '--json'];
    const tight = JSON.parse(await plan(...args, '--limit', '4ms')) as { latency_ms: number; gpu_bytes: number };
    const loose = JSON.parse(await plan(...args, '--limit', '1s')) as { latency_ms: number; gpu_bytes: number };
    expect(tight.latency_ms).toBeLessThanOrEqual(4);
    expect(loose.gpu_bytes).toBe(0);
    await expect(plan(...args, '--limit', '1ms')).rejects.toThrow('no plan that was found takes 1 ms or less');
  });
});

describe('errors of the command line', () => {
  test.each([
    ['a missing file', ['packrat', '--profile', 'no-such.json'], 'cannot read the profile: ENOENT'],
    [
      'too many cores',
      ['chrion', '--profile', 'GRAPH', '--cores', '9'],
      'cores is 9, but must be a whole number from 0 to 8',
    ],
    [
      'a limit without a pattern',
      ['chrion', '--profile', 'GRAPH', '--limit', '9ms'],
      '--limit goes with --pattern memory',
    ],
    ['another kind of profile', ['serf', '--profile', 'POOL'], "the service profile has no field 'configurations'"],
    ['no JSON', ['serf', '--profile', 'TEXT'], 'is not JSON'],
  ])('%s is named in one sentence', async (_what, argv, sentence) => {
    const files = {
      GRAPH: fileOf('graph.json', graph),
      POOL: fileOf('pool.json', pool),
      TEXT: fileOf('text.json', 'threads: 1'),
    };
    const resolved = argv.map((word) => files[word as keyof typeof files] ?? word);
    await expect(plan(...resolved)).rejects.toThrow(sentence);
  });

  test.each([
    ['--batches', '8,x'],
    ['--batches', '8,,16'],
    ['--threads', '0'],
    ['--threads', '1.5'],
  ])('packrat %s %s is refused by name', async (flag, value) => {
    await expect(plan('packrat', '--profile', fileOf('pool.json', pool), flag, value)).rejects.toThrow(flag);
  });

  test('alpha and a pattern exclude each other', async () => {
    const profile = fileOf('graph.json', graph);
    await expect(plan('chrion', '--profile', profile, '--alpha', '1', '--pattern', 'memory')).rejects.toThrow('alpha');
  });

  test('a page that cannot be written is an error', async () => {
    const page = join(folder, 'none', 'timeline.html');
    await expect(plan('chrion', '--profile', fileOf('graph.json', graph), '--html', page)).rejects.toThrow(
      'cannot write the page',
    );
    expect(existsSync(page)).toBe(false);
  });
});
