import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AnyCommand } from '../commander.ts';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { fourCoreProfile } from '../../../test/support/cpu-profile.ts';
import { ranOnCpu } from '../../../test/support/ran-on-cpu.ts';
import { savedIn } from '../../../test/support/saved-report.ts';
import { silentLog } from '../../../test/support/silent-log.ts';
import { openTrace } from '../../replay/index.ts';
import type { Comparison, Report, SweepReport } from '../../report/index.ts';
import { startRecording } from '../recording.ts';
import { replayCommand } from '../replay.ts';
import { valueFor, parseSlo } from './slo.ts';
import { parseDurationMs, parseFunctionGroups, parseFunctionRanges } from '../values.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-replay-'));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.restoreAllMocks());

/** What a command prints, and what it writes to standard output as it is. */
async function run(command: AnyCommand, ...words: readonly string[]): Promise<string> {
  let printed = '';
  vi.spyOn(console, 'log').mockImplementation((text: string) => {
    printed += `${text}\n`;
  });
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed += String(text);
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
  try {
    const silent = { writeErr: () => undefined, writeOut: () => undefined };
    await command
      .exitOverride()
      .configureOutput(silent)
      .parseAsync([...words], { from: 'user' });
  } finally {
    vi.restoreAllMocks();
  }
  return printed;
}

const replay = async (...words: readonly string[]): Promise<string> => await run(replayCommand(), ...words);
const sloOf = (text: string, name: string): number | undefined =>
  valueFor(parseSlo(text), { name, model: name.split('/')[0] ?? '', index: 0 });
const poisson = ['--poisson', '100', '--requests', '1500', '--functions', 'bert-base=140', '--seed', '1'] as const;

describe('turntable replay', () => {
  it('turntable replay gives the documented JSON, the same bytes for the same seed', async () => {
    const words = [
      ...poisson,
      '--machine',
      'p3.8xlarge',
      '--plan',
      'pipeswitch',
      '--policy',
      'artifact',
      '--json',
      '-',
    ];
    const first = await replay(...words);
    expect(await replay(...words)).toBe(first);
    const report = JSON.parse(first) as Report;
    expect(report).toMatchObject({
      simulated: true,
      machine: 'p3.8xlarge',
      seed: 1,
      requests: 1500,
      shed: 0,
      offloaded: 0,
      settings: { plan: 'pipeswitch', policy: 'artifact', routing: 'modulo', slo_ms: 100, functions: 'bert-base=140' },
    });
    expect(report.p99_ms).toBeGreaterThan(100);
    expect(report.goodput).toBeLessThan(1);
    expect(report.cold_start_rate).toBeGreaterThan(0.1);
    expect(report.evictions).toBe(report.evictions_by_cause['capacity']);
    const other = JSON.parse(await replay(...words.map((word) => (word === '1' ? '2' : word)))) as Report;
    expect(other.p99_ms).not.toBe(report.p99_ms);
  });

  it('turntable replay leaves the warm-up out, and takes single settings over those of the policy', async () => {
    const words = [
      '--plan',
      'dha',
      '--policy',
      'artifact',
      '--routing',
      'resident-first',
      '--warmup',
      '500',
      '--json',
      '-',
    ];
    const report = JSON.parse(await replay(...poisson, ...words)) as Report;
    expect(report).toMatchObject({
      requests: 1000,
      warmup_requests: 500,
      settings: { routing: 'resident-first', eviction: 'lru' },
    });
  });

  it('turntable replay takes a warm-up of nothing', async () => {
    const report = JSON.parse(await replay(...poisson, '--warmup', '0', '--json', '-')) as Report;
    expect(report).toMatchObject({ requests: 1500, warmup_requests: 0 });
  });

  it("turntable replay goes by a trace's own objectives, unless --slo says otherwise", async () => {
    const file = join(folder, 'own-slos.jsonl');
    const lines = Array.from({ length: 40 }, (_, index) =>
      JSON.stringify({ arrival_ms: index * 50, function: 'bert-base/0', slo_ms: index % 2 === 0 ? 5 : 500 }),
    );
    writeFileSync(file, ['{"format":"turntable-trace","version":1}', ...lines, ''].join('\n'));
    const own = JSON.parse(await replay('--trace', file, '--json', '-')) as Report;
    // 5 ms are less than a run takes.
    expect(own).toMatchObject({ goodput: 0.5, settings: { slo_ms: null, slo: "the trace's own" } });
    expect(own.slos).toMatchObject([
      { slo_ms: 5, requests: 20, goodput: 0 },
      { slo_ms: 500, requests: 20, goodput: 1 },
    ]);
    const given = JSON.parse(await replay('--trace', file, '--slo', '100ms', '--json', '-')) as Report;
    expect(given).toMatchObject({ goodput: 1, slos: [], settings: { slo_ms: 100 } });
  });

  it('turntable replay lists SLOs by share, and the error of predictions', async () => {
    const text = await replay(...poisson, '--slo', '20ms@50%,1s@50%');
    expect(text).toMatch(/SLO 20ms@50%,1s@50%/);
    expect(text).toMatch(/^ +SLO +REQUESTS +GOODPUT +SHED\n *20 ms +\d+ .*\n +1 s +\d+ +100\.0%/m);
    expect(text).toMatch(/^PREDICTED END +REQUESTS +MEAN ERROR/m);
    expect(text).toMatch(/^gpu cold +\d/m);
  });

  it('turntable replay says when the functions do not fit into host memory', async () => {
    const words = ['--poisson', '20', '--requests', '200', '--seed', '1', '--json', '-'];
    const over = JSON.parse(await replay(...words, '--machine', 'h200', '--functions', 'bert-base=2000')) as Report;
    expect(over.host_memory).toMatchObject({ exceeded: true, capacity_bytes: 112 * 2 ** 30 });
    expect(over.host_memory?.functions_bytes).toBeCloseTo(876e9, -10);
    const within = JSON.parse(await replay(...words, '--functions', 'bert-base=100')) as Report;
    expect(within.host_memory).toMatchObject({ exceeded: false, disk_reads: 0 });
    const text = await replay(...words.slice(0, 6), '--functions', 'bert-base=100', '--host-memory', '10GB');
    expect(text).toMatch(/^host memory is exceeded: the functions have 43\.\d GB of weights, host memory holds 10 GB/m);
  });

  it('replays a machine without GPUs: sessions in its memory, and workers', async () => {
    const words = ['--machine', 'cpu-16', '--functions', 'bert-base=1000', '--poisson', '2', '--requests', '300'];
    const cpu = ['--cpu', 'bert-base=180ms@8:1.2s:450MB', '--slo', '5s', '--seed', '1', '--json', '-'];
    const report = JSON.parse(await replay(...words, ...cpu)) as Report;
    expect(report).toMatchObject({ requests: 300, offloaded: 300, failed: 0, gpus: [] });
    // Most functions are called for the first time.
    expect(report.cold_starts).toBeGreaterThan(200);
    expect(report.p50_ms).toBeGreaterThanOrEqual(180);
    const small = JSON.parse(await replay(...words, ...cpu, '--cpu-memory', '4500MB')) as Report;
    expect(small.evictions).toBeGreaterThan(200);
    expect(small.settings).toMatchObject({ cpu_memory_bytes: 4.5e9 });
    const helped = JSON.parse(await replay(...words, ...cpu, '--workers', '16@20ms')) as Report;
    expect(helped.workers).toBeGreaterThan(0);
    expect((helped.workers ?? 0) + helped.offloaded).toBe(300);
  });

  const oneFunctionOnCpus = '--machine cpu-16 --functions bert-base=1 --requests 2000 --seed 1 --json -'.split(' ');
  const oneFunction = async (cpu: string, ratePerSecond: number, ...more: string[]): Promise<Report> =>
    JSON.parse(
      await replay(
        ...oneFunctionOnCpus,
        '--poisson',
        String(ratePerSecond),
        '--slo',
        '1s',
        '--cpu',
        `bert-base=${cpu}`,
        ...more,
      ),
    ) as Report;

  it('replays instances of a function that take calls in batches', async () => {
    // Two instances do 2 x 8 calls in 80 ms, 200 a second; one by one they would do some 70.
    const busy = await oneFunction('2x4x8@80ms/10ms', 180);
    expect(busy).toMatchObject({ requests: 2000, offloaded: 2000, failed: 0, cold_starts: 0 });
    expect(busy.p99_ms).toBeLessThan(500);
    const oneByOne = await oneFunction('2x4x1@28ms', 180);
    expect(oneByOne.p99_ms).toBeGreaterThan(5 * busy.p99_ms!);
    // An idle list: a call waits for others, and then runs for the time of one row.
    const quiet = await oneFunction('2x4x8@80ms/10ms', 1);
    expect(quiet.p50_ms).toBeCloseTo(10 + 80 * (0.3 + 0.7 / 8), 3);
  });

  it('replays instances on demand that join calls: more come where there are cores and memory for them', async () => {
    const joined = '28ms@4+8@80ms/10ms:300ms:450MB';
    // Four instances do 4 x 8 calls in 80 ms, 400 a second; one by one they would do 143.
    const busy = await oneFunction(joined, 300);
    expect(busy).toMatchObject({ requests: 2000, offloaded: 2000, failed: 0, cold_starts: 1 });
    expect(busy.goodput).toBeGreaterThan(0.95);
    expect((await oneFunction('28ms@4:300ms:450MB', 300)).goodput).toBeLessThan(0.6);
    // With memory for one session there is one instance, of 100 calls a second.
    const small = await oneFunction(joined, 300, '--cpu-memory', '500MB');
    expect(small.goodput).toBeLessThan(0.5);
    expect(small).toMatchObject({ offloaded: 2000, failed: 0, evictions: 0 });
    // An idle instance: a call waits for others, and then runs for the time of one row.
    const quiet = await oneFunction(joined, 1);
    expect(quiet.p50_ms).toBeCloseTo(38, 3);
    expect(quiet.settings).toMatchObject({ cpu: 'bert-base=28ms@4+8@80ms/10ms:300ms:450000000B' });
  });

  it('joins the calls of each function of a fleet by its own costs', async () => {
    const costs = '--cpu bert-base=20ms@4+8@80ms/10ms:300ms:450MB,gpt2=50ms@4+8@80ms/30ms:300ms:450MB';
    const words = `--functions bert-base=1,gpt2=1 --poisson 1 --requests 300 --warmup 20 --slo 5s --seed 3 --json - ${costs}`;
    const report = JSON.parse(await replay('--machine', 'cpu-16', '--hosts', '2', ...words.split(' '))) as Report;
    const p50 = (name: string) => report.functions.find((row) => row.function === name)?.p50_ms;
    // An idle instance: a call waits for others, and then runs alone.
    expect([p50('bert-base/0'), p50('gpt2/0')].map(Math.round as (ms: number | null | undefined) => number)).toEqual([
      30, 80,
    ]);
  });

  it('replays a function whose instances follow its load, by a profile of a machine', async () => {
    const file = join(folder, 'cpu.json');
    writeFileSync(file, JSON.stringify(fourCoreProfile));
    const following = await oneFunction(`${file}:300ms:450MB`, 60);
    expect(following).toMatchObject({
      requests: 2000,
      offloaded: 2000,
      failed: 0,
      list_changes: { done: 1, refused: 0 },
    });
    // One row takes 10 ms on a thread, and 3.8 ms on the four of the list.
    expect(following.p50_ms).toBeCloseTo(10 / 4 ** 0.7, 2);
    expect((await oneFunction('10ms@1:300ms:450MB', 60)).p50_ms).toBeCloseTo(10, 3);
    const small = await oneFunction(`${file}:300ms:450MB`, 60, '--cpu-memory', '500MB');
    expect(small.list_changes).toMatchObject({ done: 0 });
    expect(small.p50_ms).toBeGreaterThanOrEqual(10);
    expect(small.settings).toMatchObject({ cpu: `bert-base=${file}+1/0ms:300ms:450000000B` });
    const words = '--machine cpu-16 --functions bert-base=1 --poisson 100 --requests 3000'.split(' ');
    expect(await replay(...words, '--cpu', `bert-base=${file}+16/5ms`)).toMatch(
      /changed their list of instances \d+ times/,
    );
    await expect(replay(...words, '--cpu', 'bert-base=no-such.json')).rejects.toThrow(/cannot read the profile/);
    writeFileSync(file, '{}');
    await expect(replay(...words, '--cpu', `bert-base=${file}`)).rejects.toThrow(/cpu.json/);
  });

  it('turntable replay can evict by the known future of its load', async () => {
    const words = [...poisson, '--functions', 'bert-base=220', '--json', '-'];
    const report = JSON.parse(await replay(...words, '--eviction', 'oracle')) as Report;
    expect(report.settings).toMatchObject({ policy: 'best', eviction: 'oracle' });
    const best = JSON.parse(await replay(...words)) as Report;
    expect(report.cold_starts + report.partial_starts).toBeLessThan(best.cold_starts + best.partial_starts);
  });

  it('turntable replay refuses --workers and --cpu-memory without --cpu', async () => {
    await expect(replay(...poisson, '--workers', '4@20ms')).rejects.toThrow('--workers and --cpu-memory need --cpu');
    await expect(replay(...poisson, '--workers', '4')).rejects.toThrow(/such as 16@20ms/);
  });

  it('turntable replay ends generated traffic after ten thousand requests by default', async () => {
    const report = JSON.parse(await replay('--poisson', '50', '--functions', 'mlp=2', '--json', '-')) as Report;
    expect(report.requests).toBe(10_000);
  });

  it('turntable replay prints a table, and writes JSON, CSV and a page on request', async () => {
    const files = ['json', 'csv', 'html'].map((kind) => join(folder, `report.${kind}`));
    const text = await replay(...poisson, '--json', files[0]!, '--csv', files[1]!, '--html', files[2]!);
    expect(text).toMatch(/^simulated, machine preset p3\.8xlarge: 1,500 requests in/);
    expect(text).toMatch(/plan interleave, policy best, SLO 100 ms, seed 1/);
    expect((JSON.parse(readFileSync(files[0]!, 'utf8')) as Report).requests).toBe(1500);
    expect(readFileSync(files[1]!, 'utf8')).toMatch(/^scope,name,how,/);
    const page = readFileSync(files[2]!, 'utf8');
    expect(page).toMatch(/^<!doctype html>/);
    expect(savedIn(page)).toEqual(JSON.parse(readFileSync(files[0]!, 'utf8')));
  });

  it('turntable replay makes the same decisions for a trace that it saved', async () => {
    const file = join(folder, 'saved.jsonl');
    const settings = ['--plan', 'pt+dha', '--policy', 'artifact', '--json', '-'];
    const first = JSON.parse(await replay(...poisson, ...settings, '--save-trace', file)) as Report;
    const again = JSON.parse(await replay('--trace', file, ...settings)) as Report;
    const { settings: _settings, seed: _seed, ...figures } = first;
    expect(again).toMatchObject(figures);
  });

  it('turntable replay folds a trace onto the functions that are given', async () => {
    const file = join(folder, 'thirty.jsonl');
    const lines = Array.from({ length: 900 }, (_, at) => `{"arrival_ms":${at * 200},"function":"f${at % 30}"}`);
    writeFileSync(file, ['{"format":"turntable-trace","version":1}', ...lines, ''].join('\n'));
    const words = ['--trace', file, '--mix', '9', '--rate', '8', '--slo', 'gpt2=200ms', '--json', '-'];
    const report = JSON.parse(await replay(...words)) as Report;
    expect(Object.fromEntries(report.models.map(({ model, functions }) => [model, functions]))).toEqual({
      'bert-base': 4,
      'roberta-base': 4,
      gpt2: 1,
    });
    expect(Math.abs(report.requests - 8 * 180)).toBeLessThan(200);
    expect(report.settings).toMatchObject({ load: 'trace', trace_functions: 30, rate_per_s: 8 });
  });

  it.each([
    [['--functions', 'bert-base'], /the load must come from one of --trace, --poisson/],
    [['--poisson', '1', '--bursts', '1', '--functions', 'bert-base'], /the load must come from one of/],
    [['--poisson', '1', '--requests', '1'], /--functions is missing/],
    [['--poisson', '1', '--requests', '1', '--functions', 'bert-huge'], /there is no model 'bert-huge'/],
    [
      ['--poisson', '1', '--requests', '1', '--functions', 'bert-base', '--machine', 'abacus'],
      /there is no machine 'abacus'/,
    ],
    [['--poisson', '1', '--requests', '1', '--functions', 'bert-base', '--rate', '3'], /--rate goes with --trace only/],
    [['--poisson', '0', '--requests', '1', '--functions', 'bert-base'], /must be a number above 0/],
    [['--poisson', '1', '--requests', '1', '--functions', 'bert-base=0'], /whole number of 1 or more/],
    [['--trace', '/nowhere/trace.csv', '--functions', 'bert-base'], /trace\.csv cannot be read/],
    [
      ['--trace', 'package.json', '--functions', 'bert-base'],
      /package\.json, line 1: '\{' begins no trace of Turntable's/,
    ],
    [
      ['--poisson', '1', '--requests', '1', '--functions', 'bert-base', '--json', '/nowhere/x'],
      /cannot write the report/,
    ],
    [['--poisson', '1', '--requests', '1', '--functions', 'bert-base', '--plan', 'magic'], /must be one of baseline/],
  ])('turntable replay says what is wrong with %j', async (words, message) => {
    await expect(replay(...words)).rejects.toThrow(message);
  });

  it.each([
    ['--machine', 'h200'],
    ['--policy', 'lru'],
    ['--hosts', '2'],
    ['--cpu', 'bert-base=60ms@8'],
    ['--priority', '1'],
    ['--system', 'lru'],
    ['--save-trace', 'x.jsonl'],
  ])('turntable replay refuses %s beside --live: a running host has its own', async (...flag) => {
    await expect(replay('--live', '--poisson', '1', ...flag)).rejects.toThrow(
      `${flag[0]} is for a replay on a virtual clock`,
    );
  });

  it.each([
    ['--speed', '2'],
    ['--body', 'mlp=x'],
    ['--url', 'http://127.0.0.1:1'],
  ])('turntable replay refuses %s without --live', async (...flag) => {
    await expect(replay('--poisson', '1', '--functions', 'mlp', ...flag)).rejects.toThrow(
      `${flag[0]} goes with --live`,
    );
  });

  it('turntable replay says when no host is there for a live replay', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    server.close();
    await once(server, 'close');
    await expect(replay('--live', '--url', url, '--poisson', '1', '--requests', '1')).rejects.toThrow(
      `no host answers at ${url}`,
    );
  });
});

describe('turntable replay --over', () => {
  const words = ['--poisson', '100', '--requests', '1500', '--seed', '1', '--warmup', '500', '--policy', 'artifact'];
  const over = 'functions=bert-base=80..140..60';

  it('replays each system over each number of functions, and says where the SLO is missed first', async () => {
    const page = join(folder, 'sweep.html');
    const systems = ['--system', 'pipeswitch', '--system', 'pt+dha'];
    const json = await replay(...words, ...systems, '--over', over, '--json', '-', '--html', page);
    const sweep = JSON.parse(json) as SweepReport;
    expect(sweep.runs.map(({ at, system }) => [at, system])).toEqual([
      [80, 'pipeswitch'],
      [140, 'pipeswitch'],
      [80, 'pt+dha'],
      [140, 'pt+dha'],
    ]);
    expect(sweep.settings).toMatchObject({ policy: 'artifact', slo_ms: 100, requests: 1500 });
    expect(sweep.settings).not.toHaveProperty('plan');
    const [few, many] = sweep.runs.map(({ report }) => report.p99_ms);
    expect(many!).toBeGreaterThan(2 * few!);
    expect(sweep.verdict).toMatch(/^p99 is over the SLO of 100 ms from functions 140 on with pipeswitch, /);
    expect(savedIn(readFileSync(page, 'utf8'))).toEqual(sweep);
  });

  it('turntable replay --over takes any option with a value: the rate of what is generated, hosts, words', async () => {
    const load = ['--functions', 'bert-base=40', '--requests', '200', '--poisson', '10'];
    const atOf = async (text: string): Promise<unknown[]> => {
      const { runs } = JSON.parse(await replay(...load, '--over', text, '--json', '-')) as SweepReport;
      return runs.map(({ at, report: { settings } }) => [
        at,
        settings['rate_per_s'],
        settings['hosts'],
        settings['policy'],
      ]);
    };
    expect(await atOf('rate=5,20')).toEqual([
      [5, 5, undefined, 'best'],
      [20, 20, undefined, 'best'],
    ]);
    expect(await atOf('hosts=2..6..4')).toEqual([
      [2, 10, 2, 'best'],
      [6, 10, 6, 'best'],
    ]);
    expect(await atOf('policy=lru,best')).toEqual([
      ['lru', 10, undefined, 'lru'],
      ['best', 10, undefined, 'best'],
    ]);
  });

  it('judges by goodput where functions have objectives of their own', async () => {
    const load = ['--poisson', '100', '--requests', '600', '--seed', '1', '--over', 'mix=9..18..9'];
    // GPT-2 takes longer than 1 ms however few functions there are; the others have all the time.
    const text = await replay(...load, '--slo', 'gpt2=1ms,10s');
    expect(text).toMatch(/Goodput is under 99.0% from mix 9 on with interleave\. It is marked !\./);
    const met = await replay(...load, '--slo', 'gpt2=10s@50%,gpt2=20s@50%,30s');
    expect(met).toMatch(/nowhere with interleave/);
  });

  it.each([
    [['--over', 'functions'], /--over is 'functions', but takes an option and its values, such as rate=50,100,200/],
    [['--over', 'colour=red'], /--over names 'colour', which is no option of replay that takes another value/],
    [['--over', 'json=a,b'], /--over names 'json'/],
    [['--over', 'rate=5,fast'], /--over: --rate cannot be 'fast'\. It must be a number above 0/],
    [['--over', 'hosts=5..2'], /--over: The range '5\.\.2' ends before it begins/],
    [['--over', 'rate=5', '--live'], /--over is for a replay on a virtual clock; with --live the running host/],
    [['--over', 'rate=5', '--save-trace', 'x'], /--save-trace writes the requests of one replay/],
    [['--over', 'rate=5', '--seeds', '3'], /--seeds goes with two or more --system, and without --over/],
    [
      ['--system', 'fifo', '--system', 'lru'],
      /--system names 'fifo', which is no policy \(lru.*no plan \(.* no option=value/,
    ],
    [['--system', 'lru,best'], /--system lru,best sets its policy twice; give --system once for each system/],
    [['--system', 'lru', '--system', 'lru'], /--system lru is given twice/],
    [['--system', 'lru', '--seeds', '3'], /--seeds goes with two or more --system/],
  ])('turntable replay --over refuses %j in one sentence', async (flags, message) => {
    const load = ['--poisson', '5', '--requests', '5', '--functions', 'mlp=1'];
    await expect(replay(...load, ...flags)).rejects.toThrow(message);
  });
});

describe('turntable replay of several systems', () => {
  const load = ['--poisson', '100', '--requests', '1500', '--functions', 'bert-base=140', '--warmup', '500'];

  it('turntable replay of several systems says which wins and by how much, against the noise of seeds', async () => {
    const page = join(folder, 'systems.html');
    const systems = ['--system', 'artifact,pipeswitch', '--system', 'best'];
    const text = await replay(...load, ...systems, '--seeds', '3', '--html', page);
    expect(text).toMatch(/^best wins over artifact,pipeswitch: goodput [\d.]+% against [\d.]+%, p99 \d+% lower/);
    expect(text).toMatch(/more than the noise of 3 seeds\.$/m);
    expect(text).toMatch(/^plan +pipeswitch +interleave$/m);
    const saved = savedIn(readFileSync(page, 'utf8')) as Comparison;
    expect(text.startsWith(saved.verdict)).toBe(true);
    expect(saved.systems.map(({ name, seeds }) => [name, seeds.map(({ seed }) => seed)])).toEqual([
      ['artifact,pipeswitch', [0, 1, 2]],
      ['best', [0, 1, 2]],
    ]);
  });

  it('turntable replay of several systems says that systems which do the same differ by no more than noise', async () => {
    const same = ['--system', 'best', '--system', 'policy=best,plan=interleave'];
    const json = await replay(...load, ...same, '--seeds', '2', '--json', '-');
    const { verdict, winner } = JSON.parse(json) as Comparison;
    expect(winner).toBeNull();
    expect(verdict).toMatch(
      /^None wins: best and policy=best,plan=interleave differ by no more than the noise of 2 seeds/,
    );
  });
});

describe('turntable replay with the files of reports', () => {
  it('lays them side by side, with what differs between them', async () => {
    const files = ['pipeswitch', 'dha'].map((plan) => join(folder, `${plan}.json`));
    for (const [index, plan] of ['pipeswitch', 'dha'].entries()) {
      await replay(...poisson, '--plan', plan, '--policy', 'artifact', '--json', files[index]!);
    }
    const page = join(folder, 'compare.html');
    const text = await replay(...files, '--html', page);
    expect(text).toMatch(/^dha wins over pipeswitch: .*the noise of 1,500 requests with one seed\.$/m);
    expect(text).toMatch(/^plan +pipeswitch +dha$/m);
    expect(text).toMatch(/^p99 .*\(\+ x0\.\d+\)$/m);
    expect(text).toMatch(/^ +simulated +simulated$/m);
    expect(text).not.toMatch(/^seed/m);
    expect(savedIn(readFileSync(page, 'utf8'))).toMatchObject({ format: 'turntable-comparison', winner: 'dha' });
  });

  it('turntable replay with the files of reports shows one as it was printed', async () => {
    const file = join(folder, 'one.json');
    const text = await replay(...poisson, '--json', file);
    expect(await replay(file)).toBe(text);
  });

  it('turntable replay with the files of reports names a file that is no report, and an option that would replay anew', async () => {
    const file = join(folder, 'other.json');
    writeFileSync(file, '{}');
    await expect(replay(file)).rejects.toThrow(/other\.json is no report/);
    await expect(replay(join(folder, 'missing.json'))).rejects.toThrow(/cannot read the report/);
    await expect(replay(file, '--policy', 'lru')).rejects.toThrow(/--policy makes a new replay; with files/);
  });
});

describe('what a replay does not tell', () => {
  const left = /52 of 60 functions are never called: bert-base x \d+, gpt2 x \d+\./;

  it('what a replay does not tell is said before the verdict in text, JSON and HTML', async () => {
    const html = join(folder, 'warned.html');
    const words = [
      ...poisson.slice(0, 4),
      '--functions',
      'gpt2=1',
      '--policy',
      'lru',
      '--batch-max',
      '8',
      '--html',
      html,
    ];
    const batches = /--batch-max joins nothing/;
    expect(await replay(...words)).toMatch(/^warning: .*--batch-max.*\n(?:Not e|E)nough: /m);
    const report = JSON.parse(await replay(...words.slice(0, -2), '--json', '-')) as Report;
    expect(report.warnings).toEqual([expect.stringMatching(batches)]);
    const warned = { warnings: [expect.stringMatching(batches)] };
    expect(savedIn(readFileSync(html, 'utf8'))).toMatchObject(warned);
    expect(await replay(...words.slice(0, 4), ...words.slice(6), '--over', 'functions=gpt2=1..2')).toMatch(batches);
    expect(savedIn(readFileSync(html, 'utf8'))).toMatchObject(warned);
  });

  it('what a replay does not tell of functions that a trace never calls is counted by model', async () => {
    const file = join(folder, 'few.jsonl');
    const lines = Array.from({ length: 8 }, (_, at) => `{"arrival_ms":${at * 1000},"function":"f${at}"}`);
    writeFileSync(file, ['{"format":"turntable-trace","version":1}', ...lines, ''].join('\n'));
    const few = await replay('--trace', file, '--functions', 'bert-base=30,gpt2=30', '--warmup', '2');
    expect(few).toMatch(new RegExp(`^warning: ${left.source}$`, 'm'));
    expect(await replay('--trace', file, '--functions', 'bert-base=8')).not.toContain('warning');
  });

  it('what a replay does not tell of requests that all are left out is an error with the reason', async () => {
    const short = ['--poisson', '1', '--functions', 'gpt2=1'];
    await expect(replay(...short, '--duration', '0.001ms')).rejects.toThrow(/none arrives within --duration/);
    const none = replay(...short, '--requests', '5', '--warmup', '5');
    await expect(none).rejects.toThrow(/--warmup leaves out the first 5, and there are no more/);
  });
});

describe('turntable replay --host-machines', () => {
  const load = ['--functions', 'bert-base=60', '--poisson', '200', '--requests', '2000', '--seed', '1'];

  it('replays over a fleet of different machines, in their order', async () => {
    const words = ['--host-machines', 'p3.8xlarge=2,h200', '--fail-host', '2@5s+2s', '--warmup', '100'];
    const report = JSON.parse(await replay(...load, ...words, '--json', '-')) as Report;
    expect(report.machine).toBe('p3.8xlarge x 2, h200 x 1');
    expect(report.settings).toMatchObject({ hosts: 3, router: 'homes', fail_host: '2@5000ms+2000ms' });
    expect(report.gpus.map(({ gpu }) => gpu)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(report.fleet!.per_host.map(({ machine, gpus }) => [machine, gpus])).toEqual([
      ['p3.8xlarge', 4],
      ['p3.8xlarge', 4],
      ['h200', 1],
    ]);
    // An H200 is the home of fewer functions than four V100, and runs them faster.
    const [first, , last] = report.fleet!.per_host;
    expect(last!.requests).toBeGreaterThan(0);
    expect(last!.requests).toBeLessThan(first!.requests);
    expect(await replay(...load, ...words)).toMatch(/host2 \(h200\)/);
  });

  it('turntable replay --host-machines of one machine is --hosts', async () => {
    const named = await replay(...load, '--host-machines', 'p3.8xlarge=3', '--json', '-');
    expect(named).toBe(await replay(...load, '--hosts', '3', '--json', '-'));
  });

  it('turntable replay --host-machines as one scheduler has the memory of all hosts', async () => {
    // 328 GB of weights: more than the 245 and the 120 GB of the hosts, and less than both together.
    const many = ['--functions', 'bert-base=750', '--poisson', '100', '--requests', '300', '--router', 'one'];
    const report = JSON.parse(await replay(...many, '--host-machines', 'p3.8xlarge,h200', '--json', '-')) as Report;
    expect(report.gpus).toHaveLength(5);
    expect(report.host_memory).toMatchObject({ exceeded: false, disk_reads: 0 });
  });

  it.each([
    [['--hosts', '2'], '--host-machines says which machines there are, and so does --hosts'],
    [['--machine', 'h200'], '--host-machines says which machines there are, and so does --machine'],
    [['--over', 'machine=h200,p3.8xlarge'], '--host-machines says which machines there are, and so does --machine'],
    [['--fail-host', '2@1s'], '--fail-host names host 2, but the hosts are 0 to 1'],
    [['--fail-gpu', '0@1s'], 'in a fleet, --fail-host loses a host'],
    [['--eviction', 'oracle'], '--eviction oracle knows the arrivals at one machine'],
  ])('turntable replay --host-machines says what is wrong with %j beside it', async (flags, message) => {
    await expect(replay(...load, '--host-machines', 'p3.8xlarge,h200', ...flags)).rejects.toThrow(message);
  });

  it.each([
    ['abacus=2', "there is no machine 'abacus'"],
    ['h200=0', 'It must be a whole number of 1 or more'],
    ['h200=1,h200=2', "'h200' stands there twice"],
  ])('turntable replay --host-machines says what is wrong with %s', async (text, message) => {
    await expect(replay(...load, '--host-machines', text)).rejects.toThrow(message);
  });

  it.each(['homes', 'least-loaded'])(
    'turntable replay --router %s runs calls at hosts with GPUs and at hosts without',
    async (router) => {
      const mixed = [...load, '--cpu', 'bert-base=60ms@8', '--host-machines', 'cpu-16,p3.8xlarge'];
      const report = JSON.parse(await replay(...mixed, '--router', router, '--json', '-')) as Report;
      expect(report.offloaded).toBeGreaterThan(0);
      expect(report.offloaded).toBeLessThan(report.requests);
    },
  );
});

it('a replay refuses foresight over several hosts, and warns of --batch-max where nothing is joined', async () => {
  const load = ['--poisson', '50', '--requests', '50', '--functions', 'bert-base=1'];
  await expect(replay(...load, '--hosts', '2', '--eviction', 'oracle')).rejects.toThrow(
    /oracle knows the arrivals at one machine, and --hosts divides them/,
  );
  const warning = /^warning: --batch-max joins nothing where requests run strictly in order/m;
  for (const flags of [
    ['--order', 'fifo'],
    ['--policy', 'lru'],
    ['--policy', 'artifact'],
  ]) {
    expect(await replay(...load, '--batch-max', '8', ...flags)).toMatch(warning);
    expect(await replay(...load, '--batch-max', '1', ...flags)).not.toMatch(warning);
  }
  expect(await replay(...load, '--batch-max', '8')).not.toMatch(/^warning/m);
  const onCpu = ['--machine', 'cpu-16', '--cpu', 'bert-base=50ms@4'];
  expect(await replay(...load, '--batch-max', '8', ...onCpu)).toMatch(/^warning: --batch-max .* without GPUs\.$/m);
});

it('a replay takes --precision for estimated models, and warns of it where nothing is estimated', async () => {
  const load = ['--poisson', '50', '--requests', '300', '--functions', 'bert-base=200', '--seed', '1', '--host-memory'];
  // In 16 bits 50 GB hold all of them, in 32 they take 88.
  const readsOf = async (...flags: readonly string[]): Promise<number> =>
    (await jsonOf(...load, '50GB', '--json', '-', ...flags)).host_memory!.disk_reads;
  expect(await readsOf()).toBeGreaterThan(0);
  expect(await readsOf('--precision', 'fp16')).toBe(0);
  const onCpu = ['--machine', 'cpu-16', '--cpu', 'bert-base=50ms@4'];
  const warning = /^warning: --precision changes nothing on a machine without GPUs\.$/m;
  expect(await replay(...load, '50GB', '--precision', 'bf16', ...onCpu)).toMatch(warning);
  await expect(replay(...load, '50GB', '--precision', 'fp8')).rejects.toThrow(/It must be one of exact, fp16, bf16/);
});

it('takes --coding for estimated models, and warns of it where nothing is estimated', async () => {
  const load = ['--poisson', '50', '--requests', '300', '--functions', 'bert-base=200', '--seed', '1', '--host-memory'];
  // Coded they take 77 GB, and 88 as they are.
  const readsOf = async (...flags: readonly string[]): Promise<number> =>
    (await jsonOf(...load, '80GB', '--json', '-', ...flags)).host_memory!.disk_reads;
  expect(await readsOf()).toBeGreaterThan(0);
  expect(await readsOf('--coding')).toBe(0);
  const onCpu = ['--machine', 'cpu-16', '--cpu', 'bert-base=50ms@4'];
  const warning = /^warning: --coding changes nothing on a machine without GPUs\.$/m;
  expect(await replay(...load, '80GB', '--coding', ...onCpu)).toMatch(warning);
});

const jsonOf = async (...words: readonly string[]): Promise<Report> => JSON.parse(await replay(...words)) as Report;

describe('what the command line can ask for', () => {
  const hot = ['--poisson', '330', '--requests', '3000', '--functions', 'bert-base=20', '--seed', '1', '--json', '-'];

  it('a lost GPU runs nothing while it is away, and the others run the rest', async () => {
    const whole = await jsonOf(...hot);
    const lost = await jsonOf(...hot, '--fail-gpu', '1@0s');
    expect(lost).toMatchObject({ requests: 3000, failed: 0, settings: { fail_gpu: '1@0ms' } });
    expect(lost.gpus.map(({ requests }) => requests > 0)).toEqual([true, false, true, true]);
    expect(lost.p99_ms).toBeGreaterThan(whole.p99_ms!);
    const back = await jsonOf(...hot, '--fail-gpu', '2@6s+1s,1@2s+2s');
    const away = (gpu: number, fromS: number, toS: number): boolean =>
      back.timeline.slice(fromS, toS).every(({ utilisation }) => utilisation[gpu] === 0);
    expect([away(1, 2, 4), away(1, 4, 6), away(2, 6, 7), away(2, 2, 4)]).toEqual([true, false, true, false]);
    expect(back.requests).toBe(whole.requests);
  });

  it('priorities, in the forms of SLOs, 1 the highest', async () => {
    // More than the GPUs execute: who waits is decided by priority.
    const words = ['--poisson', '600', ...hot.slice(2)];
    const goodputOf = async (...flags: readonly string[]): Promise<number> => {
      const report = await jsonOf(...words, ...flags);
      return report.functions.find((row) => row.function === 'bert-base/0')!.goodput!;
    };
    const [without, high, low] = [
      await goodputOf(),
      await goodputOf('--priority', 'bert-base/0=1'),
      await goodputOf('--priority', 'bert-base/0=200,1'),
    ];
    expect(high).toBeGreaterThan(without + 0.1);
    expect(low).toBeLessThan(without - 0.1);
    const report = await jsonOf(...hot, '--priority', '1@10%,9@90%');
    expect(report.settings).toMatchObject({ priority: '1@10%,9@90%' });
  });

  it.each([
    [['--fail-gpu', '4@1s'], '--fail-gpu names GPU 4, but the GPUs are 0 to 3'],
    [['--fail-gpu', '0@1s', '--machine', 'cpu-16'], '--fail-gpu names GPU 0, but there is none'],
    [['--fail-gpu', '1'], "'1' is no failure of a GPU such as 3@60s"],
    [['--fail-gpu', '1@1s,1@2s'], 'GPU 1 fails again before it is back'],
    [['--fail-gpu', '1@5s,1@2s+4s'], 'GPU 1 fails again before it is back'],
    [['--fail-gpu', '1@1s', '--hosts', '2'], 'in a fleet, --fail-host loses a host'],
    [['--fail-host', '2@1s', '--hosts', '2'], '--fail-host names host 2, but the hosts are 0 to 1'],
    [['--priority', 'high'], 'It must be a whole number of 1 or more'],
    [['--cpu', 'bert-base=28ms@4+8'], "'8' does not say which calls share a run, as 16@600ms/5ms does"],
    [
      ['--machine', 'cpu-16', '--cpu', 'bert-base=28ms@20+8@80ms'],
      '--cpu: an instance whose calls share runs takes 20 cores, and cpu-16 has 16',
    ],
    [['--cpu', 'bert-base=2x4x16'], "'2x4x16' is no list of instances such as 2x4x16@90ms"],
    [
      ['--machine', 'cpu-16', '--cpu', 'bert-base=1x1x1@9ms'],
      "--cpu: the functions' own instances take 20 cores together, and cpu-16 has 16",
    ],
    [['--priority', '0'], 'It must be a whole number of 1 or more'],
    [['--priority', '1@20%,9@20%'], 'The shares of the priorities of all functions add up to 40.0%, not to 100%'],
  ])('turntable replay says what is wrong with %j', async (flags, message) => {
    await expect(replay(...hot, ...flags)).rejects.toThrow(message);
  });

  it.each([
    [['--slo', '5ms', '--admission', 'shed'], /^Not enough: .*All 3,000 were refused, because a run of .* 5 ms/m],
    [['--slo', '5ms'], /All 3,000 came late, because a run of 'bert-base\/\d+' and 19 more takes /],
    [['--machine', 'cpu-16'], /All 3,000 failed, because no place runs .* the machine has no GPU, and --cpu /],
    [['--machine', 'cpu-16', '--cpu', 'bert-base=180ms@80'], /no run that its cores allow/],
    [['--machine', 'cpu-16', '--cpu', 'bert-base=180ms@8', '--admission', 'shed'], /because a run of .* takes 180 ms/],
  ])('the verdict says why no call is in time: %j', async (flags, said) => {
    expect(await replay(...hot.slice(0, -2), ...flags)).toMatch(said);
  });
});

/** By the nearest rank; null of nothing. */
const quantile = (sorted: readonly number[], share: number): number | null =>
  sorted[Math.max(1, Math.ceil(share * sorted.length - 1e-9)) - 1] ?? null;

/** Reports are rounded to millionths. */
const rounded = (figures: object): unknown =>
  JSON.parse(
    JSON.stringify(figures, (_, value: unknown) => (typeof value === 'number' ? Math.round(value * 1e6) / 1e6 : value)),
  );

describe('--rows', () => {
  const file = join(folder, 'rows.csv');
  type Row = Readonly<Record<string, string>>;
  const rowsOf = (): Row[] => {
    const [heading = '', ...lines] = readFileSync(file, 'utf8').trimEnd().split('\n');
    return lines.map((line) => {
      const cells = line.split(',');
      return Object.fromEntries(heading.split(',').map((column, at) => [column, cells[at]!]));
    });
  };
  const figuresOf = (rows: readonly Row[]) => {
    const answered = rows.filter((row) => row['outcome'] === 'answered');
    const latencies = answered.map((row) => Number(row['end_ms']) - Number(row['arrival_ms'])).sort((a, b) => a - b);
    const met = answered.filter((row) => Number(row['end_ms']) - Number(row['arrival_ms']) <= Number(row['slo_ms']));
    for (const row of rows) expect(row['in_time'], JSON.stringify(row)).toBe(String(met.includes(row)));
    const count = (column: string, value: string): number => rows.filter((row) => row[column] === value).length;
    return {
      requests: rows.length,
      p50_ms: quantile(latencies, 0.5),
      p99_ms: quantile(latencies, 0.99),
      goodput: met.length / rows.length,
      shed: count('outcome', 'shed'),
      failed: count('outcome', 'failed'),
      cold_starts: count('start', 'cold'),
      partial_starts: count('start', 'partial'),
      offloaded: count('place', 'cpu'),
      workers: count('place', 'worker'),
    };
  };

  it.each([
    ['one machine', []],
    ['a warm-up', ['--warmup', '400']],
    ['several SLOs and shedding', ['--slo', '8ms@30%,60ms@70%', '--admission', 'shed']],
    ['CPU and workers', ['--functions', 'bert-base=300', '--cpu', 'bert-base=60ms@8:0ms:1MB', '--workers', '2@20ms']],
    ['hosts of which one is lost', ['--hosts', '3', '--fail-host', '1@3s+2s', '--warmup', '100']],
    ['no place at all', ['--machine', 'cpu-16']],
  ])('--rows has what the report counts: %s', async (_, flags) => {
    const report = JSON.parse(await replay(...poisson, '--rows', file, '--json', '-', ...flags)) as Report;
    const rows = rowsOf();
    expect(report).toMatchObject(rounded(figuresOf(rows)) as object);
    const places = rows.map((row) => row['place']!).filter((place) => place.startsWith('gpu'));
    expect(report.gpus.map(({ gpu }) => places.filter((place) => place === `gpu${gpu}`).length)).toEqual(
      report.gpus.map(({ requests }) => requests),
    );
  });

  it('--rows of a comparison names system and seed', async () => {
    const words = ['--system', 'lru', '--system', 'best', '--seeds', '2', '--rows', file, '--json', '-'];
    const text = await replay(...poisson, ...words);
    const { systems } = JSON.parse(text) as Comparison;
    for (const { name, seeds } of systems) {
      for (const { seed, requests, goodput, p99_ms: p99 } of seeds) {
        const own = figuresOf(rowsOf().filter((row) => row['system'] === name && row['seed'] === String(seed)));
        expect(own.requests).toBe(requests);
        expect(own.goodput).toBeCloseTo(goodput ?? NaN, 5);
        expect(own.p99_ms).toBeCloseTo(p99 ?? NaN, 5);
      }
    }
  });

  it.each([
    [['--over', 'rate=10,20'], '--rows writes the requests of one replay or of a comparison, and --over makes a sweep'],
    [['--rows', '-'], '--rows takes the name of a file'],
    [['--rows', join(folder, 'missing', 'rows.csv')], 'cannot write the rows'],
    [['--system', 'lru', '--system', 'best,rows=x'], "--system names 'rows', which is no option of replay"],
  ])('--rows says what is wrong beside %j', async (words, message) => {
    await expect(replay(...poisson, '--rows', file, ...words)).rejects.toThrow(message);
  });
});

describe('values of flags', () => {
  it('--functions counts functions by model', () => {
    expect(parseFunctionGroups('bert-base=48, gpt2')).toEqual([
      { model: 'bert-base', count: 48 },
      { model: 'gpt2', count: 1 },
    ]);
    expect(() => parseFunctionGroups('a=1,a=2')).toThrow(/'a' stands there twice/);
    expect(() => parseFunctionGroups('=3')).toThrow(/lacks a name/);
  });

  it('the ranges of a sweep advance together', () => {
    const ranges = parseFunctionRanges('bert-base=4..12..4,gpt2=1..3,mlp=7');
    expect(ranges.map((groups) => groups.map(({ count }) => count))).toEqual([
      [4, 1, 7],
      [8, 2, 7],
      [12, 3, 7],
    ]);
    expect(() => parseFunctionRanges('a=1..3,b=1..4')).toThrow(/Ranges advance together/);
    expect(() => parseFunctionRanges('a=5..3')).toThrow(/ends before it begins/);
    expect(() => parseFunctionRanges('a=1..2..3..4')).toThrow(/no range/);
  });

  it('--slo takes an objective for all functions, and one for a model', () => {
    expect(sloOf('100ms', 'gpt2/0')).toBe(100);
    expect(sloOf('gpt2=0.2s,50ms', 'gpt2/0')).toBe(200);
    expect(sloOf('gpt2=0.2s,50ms', 'mlp/0')).toBe(50);
    expect(sloOf('gpt2=0.2s,gpt2/3=1s', 'gpt2/3')).toBe(1000);
    expect(sloOf('gpt2=0.2s', 'mlp/0')).toBeUndefined();
    expect(() => parseSlo('fast')).toThrow(/It must be a duration/);
    expect(() => parseSlo('0ms')).toThrow(/cannot be met/);
    expect(() => parseSlo('=5ms')).toThrow("'=5ms' names no model and no function");
    expect(() => parseSlo('20ms,1s')).toThrow('Several SLOs of all functions need a share each');
    expect(() => parseSlo('gpt2=20ms@30%,gpt2=1s@50%')).toThrow("SLOs of 'gpt2' add up to 80.0%, not to 100%");
    expect(() => parseSlo('20ms@0.3')).toThrow("'0.3' is no share such as 30%");
    expect(() => parseSlo('20ms@30%@70%')).toThrow('has more than one share');
  });

  it('objectives by share hold for any part of the functions', () => {
    const given = parseSlo('20ms@20%,100ms@50%,1s@30%');
    for (const step of [1, 2, 3]) {
      const counts = new Map<number | undefined, number>();
      for (let index = 0; index < 300; index += step) {
        const sloMs = valueFor(given, { name: '', model: '', index });
        counts.set(sloMs, (counts.get(sloMs) ?? 0) + step);
      }
      expect(counts.get(20), `every ${step}th`).toBeGreaterThan(52);
      expect(counts.get(20)).toBeLessThan(68);
      expect(counts.get(1000)).toBeGreaterThan(82);
      expect(counts.get(1000)).toBeLessThan(98);
    }
  });

  it('durations take every form that the host takes', () => {
    expect(['100ms', '1.5s', '2m', '3h', '0'].map(parseDurationMs)).toEqual([100, 1500, 120_000, 1.08e7, 0]);
    expect(() => parseDurationMs('3 days')).toThrow(/It must be a duration/);
    for (const given of ['100', 'gpt2=100', '100@30%,1s@70%', '1s@30%,100@70%']) {
      expect(() => parseSlo(given), given).toThrow(/; it lacks a unit: 100ms or 100s\?$/);
    }
  });
});

describe("a recording of a host's traffic", () => {
  it("a recording of a host's traffic is a new trace for each start", async () => {
    const place = join(folder, 'recordings');
    vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
    const recording = await startRecording(place, silentLog, new Date('2026-01-02T03:04:05.006Z'));
    const arrivalMs = performance.now() + 5;
    recording.record({
      key: 'a@1',
      rows: 1,
      hasRun: true,
      functionName: 'a',
      version: '1',
      arrivalMs,
      latencyMs: 12.3456,
      sloMs: 100,
      outcome: 'in_slo',
      miss: undefined,
      ran: ranOnCpu({ preprocessMs: 2, inferMs: 6, postprocessMs: 1 }),
    });
    recording.record({
      key: 'b@1',
      rows: 1,
      hasRun: true,
      functionName: 'b',
      version: '1',
      arrivalMs: arrivalMs - 2,
      latencyMs: 1,
      sloMs: 50,
      outcome: undefined,
      miss: undefined,
    });
    await recording.close();
    expect(readdirSync(place)).toEqual(['20260102T030405-006Z.jsonl']);
    const invocations = [...(await openTrace(recording.file)).invocations()];
    expect(invocations).toMatchObject([{ functionIndex: 1 }, { functionIndex: 0, durationMs: 9 }]);
    const last = readFileSync(recording.file, 'utf8').trimEnd().split('\n')[1]!;
    expect(JSON.parse(last)).toMatchObject({
      function: 'a',
      latency_ms: 12.346,
      slo_ms: 100,
      outcome: 'in_slo',
    });
    await expect(startRecording(place, silentLog, new Date('2026-01-02T03:04:05.006Z'))).rejects.toThrow(
      /cannot be recorded/,
    );
    await expect(startRecording(join(recording.file, 'below'), silentLog)).rejects.toThrow(/cannot be recorded/);
    expect(existsSync(recording.file)).toBe(true);
  });
});
