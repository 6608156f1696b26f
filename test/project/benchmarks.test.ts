import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { runBenchCommand } from '../../bench/command.ts';
import { benchmarkNames, loadBenchmark } from '../../bench/registry.ts';
import { renderMarkdown, renderRun, type BenchmarkRun } from '../../bench/report.ts';
import { packageRoot } from '../../src/host/config/options.ts';

const execute = promisify(execFile);
const tsx = join(packageRoot, 'node_modules', 'tsx', 'dist', 'cli.mjs');
let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-bench-'));
});

afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

const run: BenchmarkRun = {
  name: 'sums',
  small: true,
  seed: 7,
  startedAt: '2026-01-01T00:00:00.000Z',
  tookMs: 1500,
  machine: {
    processor: 'Imagined CPU',
    coresUsable: 2,
    memoryBytes: 8e9,
    gpus: [],
    node: '20.19.0',
    system: 'linux 6.1 x64',
  },
  settings: { rounds: 3 },
  tables: [
    {
      title: 'Sums',
      provenance: { kind: 'simulated', preset: 'p3.8xlarge' },
      columns: ['what', '>ms'],
      rows: [
        ['one', '1.0'],
        ['two', '12.0'],
      ],
    },
  ],
  figures: { oneMs: 1 },
  aims: [{ aim: 'under 1 ms', met: false, reached: '1.0 ms' }],
  limits: ['anything real'],
};

test('a report names the machine, settings and seed, and the provenance of its figures', () => {
  const text = renderRun(run);
  expect(text).toContain('sums (small: these figures are not worth quoting)');
  expect(text).toContain('machine   Imagined CPU, 2 cores, 8 GB');
  expect(text).toContain('settings  rounds 3, seed 7');
  expect(text).toContain('Sums (simulated, machine preset p3.8xlarge)\nwhat    ms\none    1.0\ntwo   12.0');
  expect(text).toContain('MISSED  under 1 ms: 1.0 ms');
  expect(text).toContain('Not shown: anything real');
});

test('a stored report has a page that says the same, and its cells cannot break its tables', () => {
  const [table] = run.tables as [BenchmarkRun['tables'][number]];
  const page = renderMarkdown({ ...run, tables: [{ ...table, rows: [['a|b <1>', '1.0']] }] });
  expect(page).toContain('# sums\n\nWritten by `npm run bench -- sums` on 2026-01-01');
  expect(page).toContain('Imagined CPU, 2 cores, 8 GB, Node 20.19.0; rounds 3, seed 7.');
  expect(page).toContain('| under 1 ms | 1.0 ms | **missed** |');
  expect(page).toContain('Figures: simulated, machine preset p3.8xlarge.\n\n| what | ms |\n| --- | ---: |\n');
  expect(page).toContain('| a\\|b &lt;1> | 1.0 |');
  expect(page).toContain('- anything real');
});

test('benchmarks are the files beside the framework, and a file with another name inside is refused', async () => {
  writeFileSync(join(dir, 'sums.ts'), `export const benchmark = { name: 'sums', description: '', run() {} };`);
  writeFileSync(join(dir, 'other.ts'), `export const benchmark = { name: 'sums' };`);
  writeFileSync(join(dir, 'main.ts'), '');
  writeFileSync(join(dir, 'notes.md'), '');
  expect(benchmarkNames(dir)).toEqual(['other', 'sums']);
  await expect(loadBenchmark('sums', dir)).resolves.toMatchObject({ name: 'sums' });
  await expect(loadBenchmark('other', dir)).rejects.toThrow("bench/other.ts does not export a benchmark named 'other'");
});

test('the program refuses an unknown benchmark by name, with those that exist', async () => {
  const failed = await execute(process.execPath, [tsx, 'bench/main.ts', 'no-such'], { cwd: packageRoot }).catch(
    (error: { code: number; stderr: string }) => error,
  );
  expect(failed).toMatchObject({ code: 2 });
  expect(failed.stderr).toMatch(/^there is no benchmark 'no-such'; there are: /);
});

/** Of `npm run bench` with these words, in this process: tsx would compile all of src/ for one of its own. */
async function bench(...words: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const printed = { stdout: '', stderr: '' };
  const log = vi.spyOn(console, 'log').mockImplementation((text: string) => void (printed.stdout += `${text}\n`));
  const error = vi.spyOn(console, 'error').mockImplementation((text: string) => void (printed.stderr += `${text}\n`));
  const before = process.exitCode;
  try {
    process.exitCode = 0;
    await runBenchCommand(words);
    return { code: process.exitCode, ...printed };
  } finally {
    process.exitCode = before;
    log.mockRestore();
    error.mockRestore();
  }
}

const names = benchmarkNames();

test('the list names every benchmark with the question that it answers', async () => {
  const { stdout } = await bench('--list');
  const listed = stdout.trim().split('\n');
  expect(listed.slice(1).map((line) => line.split(' ')[0])).toEqual(names);
});

test('an appended run adds up with the stored ones, and runs that do not add up are refused', async () => {
  const outcomes = [{ name: 'frames', executions: 1000, refused: 400, findings: [] }];
  writeFileSync(join(dir, 'fuzz.json'), JSON.stringify({ pieces: [{ seed: 7, seconds: 60, outcomes }] }));
  // The second benchmark is refused in the same process.
  const words = ['fuzz', 'papers', '--row', 'settings', '--small', '--append', '--seed', '8', '--out', dir];
  const failed = await bench(...words);
  const kept = JSON.parse(readFileSync(join(dir, 'fuzz.json'), 'utf8')) as BenchmarkRun;
  expect(kept.settings).toMatchObject({ runs: 2, seeds: '7 8', executions: 1100 });
  expect(kept.tables[0]?.rows.map(([name, executions]) => [name, executions])).toEqual([
    ['frames', '1000'],
    ['settings', '100'],
  ]);
  expect(failed).toMatchObject({ code: 2 });
  expect(failed.stderr).toMatch(/^runs of the benchmark 'papers' do not add up: leave --append out$/m);
});

test('a run from the command line prints its report and stores its figures in the given folder', async () => {
  // Any will do, and this row is among the shortest; test/bench/ runs them all.
  const name = 'hours';
  const { stdout } = await bench(name, '--small', '--row', 'links', '--seed', '1', '--out', dir);
  expect(stdout).toContain(`${name} (small: these figures are not worth quoting)`);
  const kept = JSON.parse(readFileSync(join(dir, `${name}.json`), 'utf8')) as BenchmarkRun;
  expect(kept).toMatchObject({ name, small: true, seed: 1 });
  expect(readFileSync(join(dir, `${name}.md`), 'utf8')).toContain(`# ${name}\n`);
  // JSON has no NaN: it would come back as null.
  expect(Object.values(kept.figures).every((figure) => Number.isFinite(figure))).toBe(true);
});
