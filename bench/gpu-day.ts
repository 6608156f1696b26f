/**
 * All measurements for a GPU that is available for some minutes, the most valuable first. Each part is a process of its
 * own and writes its result when it ends. Needs Node and this folder with `node_modules` and `dist`, but no npm and no
 * network:
 *
 *     node --import tsx bench/main.ts gpu-day --minutes 9 --out results
 */
import { mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emulatedOnly, mustBuildDriver, tableOf, type Benchmark, type BenchmarkResult } from './benchmark.ts';
import { runCommand, type Command } from './gpu-day/command.ts';
import { runParts, type Part } from './gpu-day/parts.ts';

/** A part goes on for as long as it may: this is enough for any part. */
const wholeMinutes = 60;

interface PlannedPart extends Omit<Part, 'run'> {
  readonly command: (minutes: number) => Omit<Command, 'environment' | 'output'> & {
    readonly environment?: Readonly<Record<string, string>>;
  };
}

/** What needs no GPU is looked at by each run of the tests. */
export const testFolders = ['test/gpu/real', 'test/gpu/conformance'] as const;

const vitest = join('node_modules', 'vitest', 'vitest.mjs');

function partsOf(small: boolean, folder: string, seed: number): readonly PlannedPart[] {
  const least = (minutes: number): number => (small ? 0 : minutes);
  const bench = (name: string) => (minutes: number) => {
    const limits = small ? ['--small'] : ['--minutes', minutes.toFixed(2)];
    const given = [name, '--out', folder, '--seed', String(seed), ...limits];
    return { arguments: ['--import', 'tsx', join('bench', 'main.ts'), ...given] };
  };
  const tests = small ? ['test/gpu/conformance/conformance.test.ts', '-t', 'computes something else'] : testFolders;
  return [
    {
      name: 'self-test',
      question: 'what can the GPUs and libraries of this machine do?',
      leastMinutes: least(0.5),
      command: () => ({ arguments: [join('bin', 'turntable.js'), 'doctor', '--gpu'] }),
    },
    {
      name: 'tests',
      question: 'are the answers of kernels and models those of ONNX Runtime?',
      leastMinutes: least(2),
      command: () => ({
        arguments: [vitest, 'run', '--project', 'shared', ...tests],
        ...(small ? {} : { environment: { TURNTABLE_TEST_GPU: '1' } }),
      }),
    },
    {
      name: 'gpu',
      question: 'how soon do models answer: warm, cold in every mode, with a share kept; and with PyTorch?',
      leastMinutes: least(2),
      command: bench('gpu'),
    },
    {
      name: 'chrion',
      question: 'what do patterns over GPU and CPU take, and how often are functions swapped?',
      leastMinutes: least(3),
      command: bench('chrion'),
    },
    {
      name: 'serve',
      question: 'how late are answers when more functions are called than the GPUs hold?',
      leastMinutes: least(4),
      command: bench('serve'),
    },
  ];
}

export const benchmark: Benchmark = {
  name: 'gpu-day',
  description: 'all of a GPU that is there for some minutes: self-test, tests, latencies, patterns, serving',
  mustMeetAims: true,
  rowNames: () => partsOf(false, '', 0).map(({ name }) => name),
  async run({ small, seed, minutes = wholeMinutes, rows: only, progress, out }) {
    const folder = join(out ?? mkdtempSync(join(tmpdir(), 'turntable-')), 'gpu-day');
    mkdirSync(folder, { recursive: true });
    const environment = small ? (await mustBuildDriver()).environment : {};
    const chosen = partsOf(small, folder, seed).filter(({ name }) => only?.includes(name) ?? true);
    const parts = chosen.map(({ name, question, leastMinutes, command }): Part => ({
      name,
      question,
      leastMinutes,
      run: (left) => {
        const { arguments: given, environment: own } = command(left);
        const whole = { arguments: given, environment: { ...environment, ...own }, output: `${name}.txt` };
        return runCommand(whole, folder, left);
      },
    }));
    const results = await runParts(parts, minutes, progress);
    const table: BenchmarkResult['tables'][number] = tableOf(
      'Parts, in the order of their worth',
      results,
      [
        ['part', ({ name }) => name],
        ['question', ({ question }) => question],
        ['>minutes', ({ minutes: took }) => took.toFixed(1)],
        ['result', ({ kind, text }) => (kind === 'done' ? text : `${kind}: ${text}`)],
      ],
      small ? emulatedOnly : { kind: 'measured' },
    );
    return {
      settings: { minutes, folder },
      tables: [table],
      figures: Object.fromEntries(results.map(({ name, minutes: took }) => [`${name} minutes`, took])),
      aims: results
        .filter(({ kind }) => kind !== 'left out')
        .map(({ name, kind, text }) => ({ aim: `${name} ends without an error`, met: kind === 'done', reached: text })),
      limits: small ? ['any time: the driver was the emulated one'] : [],
    };
  },
};
