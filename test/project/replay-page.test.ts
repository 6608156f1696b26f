/** Runs the commands of docs/replay.md. Figures change with the scheduler, so only success is compared. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';
import { turntableHere } from '../cli/in-process.ts';
import { outputOf } from '../support/run-command.ts';

const page = readFileSync(join(packageRoot, 'docs', 'replay.md'), 'utf8');
const commands = [...page.matchAll(/^turntable (.*)$/gm)].map(([, words = '']) => words);

test('the page shows replays of a trace, of random traffic, a sweep, a comparison, and a fleet', () => {
  for (const shown of ['--trace', '--azure-like', '--over', '--system', '--hosts'])
    expect(commands.filter((words) => words.startsWith('replay ') && words.includes(`${shown} `))).not.toEqual([]);
});

test.each(commands)('turntable %s', async (words) => {
  const { exitCode, stdout, stderr } = await turntableHere(words.split(' '));
  expect(exitCode, stderr).toBe(0);
  expect(stdout).toMatch(/^(simulated, machine preset (p3\.8xlarge|p3\.8xlarge x 4|cpu-16): |best wins over lru: )/);
});

test('every figure of the page is in a report', async () => {
  const command = [
    'replay',
    '--hosts',
    '2',
    '--poisson',
    '10',
    '--requests',
    '20',
    '--functions',
    'mlp=2',
    '--json',
    '-',
  ];
  const stdout = await outputOf(process.execPath, [join(packageRoot, 'bin', 'turntable.js'), ...command]);
  const report = JSON.parse(stdout) as Record<string, unknown>;
  const rows = [...page.matchAll(/^\| (`[^|]*) \|/gm)].map(([, cell = '']) => cell);
  const names = rows.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, name = '']) => name));
  expect(names.length).toBeGreaterThan(20);
  for (const name of names.filter((each) => each !== 'measured')) expect(Object.keys(report)).toContain(name);
});
