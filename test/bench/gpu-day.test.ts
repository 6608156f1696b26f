/** How a GPU day handles parts that fail, and too little time. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { runCommand } from '../../bench/gpu-day/command.ts';
import { runParts, type Part } from '../../bench/gpu-day/parts.ts';
import { benchmark, testFolders } from '../../bench/gpu-day.ts';
import { benchmarkNames } from '../../bench/registry.ts';

const folder = mkdtempSync(join(tmpdir(), 'turntable-gpu-day-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const ignore = (): void => undefined;

test('every part is the self-test, the tests, or a benchmark that exists', () => {
  const [selfTest, tests, ...others] = benchmark.rowNames!();
  expect([selfTest, tests]).toEqual(['self-test', 'tests']);
  expect(others.length).toBeGreaterThan(0);
  expect(others.filter((name) => !benchmarkNames().includes(name))).toEqual([]);
});

test('the tests of a GPU day are there', () => {
  expect(testFolders.filter((path) => !existsSync(path))).toEqual([]);
});

/** A clock, and parts that move it. */
function day(): { now: () => number; part: (name: string, least: number, takes: number, fails?: string) => Part } {
  let minutes = 0;
  return {
    now: () => minutes * 60_000,
    part: (name, leastMinutes, takes, fails) => ({
      name,
      question: '',
      leastMinutes,
      run: () => {
        minutes += takes;
        return fails === undefined ? Promise.resolve(`${name}.txt`) : Promise.reject(new Error(fails));
      },
    }),
  };
}

test('a part that fails does not stop those after it, and its reason is kept', async () => {
  const { now, part } = day();
  const parts = [part('one', 1, 1), part('two', 1, 1, 'no library'), part('three', 1, 1)];
  const results = await runParts(parts, 9, ignore, now);
  expect(results.map(({ name, kind, text, minutes }) => [name, kind, text, minutes])).toEqual([
    ['one', 'done', 'one.txt', 1],
    ['two', 'failed', 'no library', 1],
    ['three', 'done', 'three.txt', 1],
  ]);
});

test('a part that does not fit into the remaining time is left out, a shorter one after it is not', async () => {
  const { now, part } = day();
  const results = await runParts([part('one', 2, 6), part('long', 4, 4), part('short', 3, 3)], 9, ignore, now);
  expect(results.map(({ kind }) => kind)).toEqual(['done', 'left out', 'done']);
  expect(results[1]!.text).toBe('it takes 4 minutes at least, and 3.0 are left');
});

const script = (text: string): { arguments: string[]; environment: {}; output: string } => ({
  arguments: ['-e', text],
  environment: {},
  output: 'out.txt',
});

test('the output of a part is kept, even if it fails, and its last line is the reason', async () => {
  const path = await runCommand(script('console.log("found")'), folder, 1);
  expect(readFileSync(path, 'utf8')).toBe('found\n');
  const failing = script('console.error("first"); console.error("no GPU"); process.exitCode = 3');
  await expect(runCommand(failing, folder, 1)).rejects.toThrow(/^it ended with 3: no GPU; all that it printed: /);
  expect(readFileSync(path, 'utf8')).toBe('first\nno GPU\n');
});

test('a part that does not end is stopped when its time is over', async () => {
  const hanging = script('console.log("begun"); setInterval(() => {}, 1000)');
  await expect(runCommand(hanging, folder, 0)).rejects.toThrow(/^it was ended after 0\.0 minutes/);
});
