import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { savedIn } from '../../test/support/saved-report.ts';
import type { CapacityReport } from '../report/index.ts';
import { capacityCommand } from './capacity.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-capacity-'));
afterAll(() => rmSync(folder, { recursive: true }));

async function run(...words: readonly string[]): Promise<string> {
  let printed = '';
  const log = vi.spyOn(console, 'log').mockImplementation((text: string) => void (printed += `${text}\n`));
  const error = vi.spyOn(process.stderr, 'write').mockImplementation(() => true);
  try {
    const command = capacityCommand()
      .exitOverride()
      .configureOutput({ writeErr: () => undefined, writeOut: () => undefined });
    await command.parseAsync([...words], { from: 'user' });
  } finally {
    log.mockRestore();
    error.mockRestore();
  }
  return printed;
}

let files = 0;
async function reportOf(...words: readonly string[]): Promise<CapacityReport> {
  const file = join(folder, `${files++}.json`);
  await run(...words, '--json', file);
  return JSON.parse(readFileSync(file, 'utf8')) as CapacityReport;
}

/** Four functions that are always resident: 9.5 ms of a V100 a call. */
const busy = ['--functions', 'bert-base=4', '--slo', '50ms', '--requests', '1500', '--warmup', '100', '--seed', '1'];

describe('turntable plan capacity', () => {
  test('turntable plan capacity finds the fewest GPUs that are enough, and what runs out with one less', async () => {
    const { answers, goodput } = await reportOf(...busy, '--poisson', '250');
    const [{ enough, short, runs }] = answers as [CapacityReport['answers'][number]];
    expect(goodput).toBe(0.99);
    expect(enough!.goodput).toBeGreaterThanOrEqual(0.99);
    expect(short!.goodput).toBeLessThan(0.99);
    expect([enough!.gpus - short!.gpus, enough!.hosts, short!.hosts]).toEqual([1, 1, 1]);
    // 250 calls a second of 9.5 ms are 2.4 GPUs: two can never do, whatever the scheduler.
    expect(enough!.gpus).toBeGreaterThanOrEqual(3);
    expect(short!.resource).toBe('gpu time');
    expect(short!.why).toMatch(/^the GPUs' time ran out: they execute \d+\.\d% of the time; with runs that take none/);
    expect(runs.map(({ gpus }) => gpus)).toEqual(runs.map(({ gpus }) => gpus).toSorted((a, b) => a - b));
  });

  test('turntable plan capacity warns in text, JSON and HTML of functions that a trace never calls', async () => {
    const trace = join(folder, 'one.jsonl');
    const lines = Array.from({ length: 5 }, (_, at) => `{"arrival_ms":${at * 1000},"function":"f"}`);
    writeFileSync(trace, ['{"format":"turntable-trace","version":1}', ...lines].join('\n'));
    const html = join(folder, 'one.html');
    const words = ['--trace', trace, '--functions', 'gpt2=3', '--machine', 'h200x1'];
    const warning = /2 of 3 functions are never called: gpt2 x 2/;
    expect(await run(...words, '--html', html)).toMatch(warning);
    expect(savedIn(readFileSync(html, 'utf8'))).toMatchObject({ warnings: [expect.stringMatching(warning)] });
    expect((await reportOf(...words)).warnings).toEqual([expect.stringMatching(warning)]);
  });

  test('tries several hosts if one machine is not enough, for each named machine', async () => {
    const { answers } = await reportOf(
      ...busy,
      '--poisson',
      '600',
      '--requests',
      '3000',
      '--machine',
      'p3.8xlarge,h200x2',
    );
    expect(answers.map(({ machine, enough }) => [machine, enough?.hosts])).toEqual([
      ['p3.8xlarge', 2],
      ['h200x2', 1],
    ]);
    expect(answers[0]!.enough!.gpus).toBe(8);
  });

  test('turntable plan capacity names the links or the memory as the shortage when weights come and go again and again', async () => {
    const many = [
      '--functions',
      'bert-base=150',
      '--poisson',
      '60',
      '--requests',
      '1200',
      '--warmup',
      '300',
      '--slo',
      '100ms',
    ];
    const [{ short, enough }] = (await reportOf(...many)).answers as [CapacityReport['answers'][number]];
    expect(['links', 'gpu memory']).toContain(short!.resource);
    expect(short!.why).toMatch(/ran out: .*of the calls waited for weights/);
    // With all weights there, the rate is no trouble to any GPU.
    expect(short!.goodput_with['gpu memory']).toBeGreaterThan(enough!.goodput! - 0.01);
  });

  test('turntable plan capacity says that host memory ran out when the functions do not fit, and that two hosts have room', async () => {
    const many = [
      '--functions',
      'bert-base=900',
      '--poisson',
      '20',
      '--requests',
      '300',
      '--slo',
      '100ms',
      '--hosts-max',
      '2',
    ];
    const [{ short, enough }] = (await reportOf(...many)).answers as [CapacityReport['answers'][number]];
    expect([enough!.hosts, short!.hosts, short!.resource]).toEqual([2, 1, 'host memory']);
  });

  test('turntable plan capacity finds the number of cores without GPUs, and with GPUs the cores for what the CPU runs', async () => {
    const cpu = ['--cpu', 'bert-base=180ms@4:1s:450MB', '--functions', 'bert-base=4', '--slo', '1s', '--warmup', '60'];
    const alone = await reportOf(...cpu, '--machine', 'cpu-16', '--poisson', '8', '--requests', '400');
    const [{ enough, short }] = alone.answers as [CapacityReport['answers'][number]];
    // 8 calls a second of 180 ms on 4 cores are 5.8 cores; runs come in fours.
    expect(enough).toMatchObject({ hosts: 1, gpus: 0, cores: 8 });
    expect(short).toMatchObject({ cores: 7, resource: 'cores' });
    const beside = await reportOf(...cpu, '--poisson', '8', '--requests', '400');
    const [answer] = beside.answers as [CapacityReport['answers'][number]];
    expect(answer.enough!.gpus).toBe(1);
    // One GPU does it all.
    expect(answer.cores_needed).toBe(1);
  });

  test('turntable plan capacity says so when no allowed size is enough', async () => {
    const text = await run(...busy, '--poisson', '100', '--slo', '5ms', '--hosts-max', '1');
    expect(text).toContain('p3.8xlarge: not within what was allowed. 4 GPUs reach 0.0%:');
  });

  test('turntable plan capacity writes a table, a page with its plots and CSV of the same runs', async () => {
    const page = join(folder, 'capacity.html');
    const csv = join(folder, 'capacity.csv');
    const text = await run(...busy, '--poisson', '60', '--requests', '400', '--html', page, '--csv', csv);
    expect(text).toMatch(/^simulated: the smallest size for a goodput of 99%\n\nMACHINE +SIZE +GOODPUT/);
    const saved = savedIn(readFileSync(page, 'utf8')) as CapacityReport;
    expect(saved.format).toBe('turntable-capacity');
    expect(text).toContain(saved.answers[0]!.text);
    const rows = readFileSync(csv, 'utf8').trim().split('\n');
    expect(rows[0]).toBe('machine,hosts,gpus,cores,goodput,p99_ms,cold_start_rate,utilisation,enough');
    expect(rows.slice(1).filter((row) => row.endsWith(',true'))).toHaveLength(1);
  });

  test.each([
    [['--hosts', '3'], 'plan capacity finds the number of hosts; --hosts-max limits it'],
    [['--fail-host', '0@1s'], '--fail-host goes with replay'],
    [['--goodput', '120%'], 'It must be a share such as 99% or 0.99.'],
    [['--machine', 'abacus'], "there is no machine 'abacus'"],
    [['--machine', 'cpu-16x2'], "'cpu-16x2' is 2 GPUs of a machine that has 0"],
  ])('turntable plan capacity refuses %s', async (words, message) => {
    await expect(run(...busy, '--poisson', '10', ...words)).rejects.toThrow(message);
  });
});
