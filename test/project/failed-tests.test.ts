/** What CI says of tests that failed: the files for the second run, and why each failed in the first. */
import { join } from 'node:path';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { projectRoot } from '../../bench/servers.ts';
import { runCommand } from '../support/run-command.ts';

const script = join(projectRoot, 'scripts/failed-test-files.mjs');
const testOf = (fullName: string, status: string, ...failureMessages: string[]) => ({
  fullName,
  status,
  failureMessages,
});
const fileOf = (path: string, status: string, message: string, assertionResults: readonly object[]) => ({
  name: join(projectRoot, path),
  status,
  message,
  assertionResults,
});

async function saidOf(testResults: readonly object[], ...flags: string[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-report-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const report = join(folder, 'report.json');
  await writeFile(report, JSON.stringify({ testResults }));
  const { stdout } = await runCommand(process.execPath, [script, ...flags, report], { cwd: projectRoot });
  return stdout;
}

const long = Array.from({ length: 45 }, (_, line) => `line ${line}`).join('\n');
const results = [
  fileOf('src/a.test.ts', 'failed', '', [
    testOf('a sum is right', 'passed'),
    testOf(
      'a product is right',
      'failed',
      '\u001b[31mAssertionError\u001b[39m: 3 is not 4\n    at a.test.ts:3',
      'and more',
    ),
  ]),
  fileOf('src/b.test.ts', 'passed', '', [testOf('all is well', 'passed')]),
  fileOf('test/c.test.ts', 'failed', 'Error: there is no module c', []),
  fileOf('test/d.test.ts', 'failed', '', [testOf('much is equal', 'failed', long)]),
];

test('the files that failed are listed, one a line', async () => {
  expect(await saidOf(results)).toBe('src/a.test.ts\ntest/c.test.ts\ntest/d.test.ts\n');
  expect(await saidOf(results.slice(1, 2))).toBe('');
});

test('each failed test is named with its messages, shortened, and a file without tests with its own', async () => {
  const said = (await saidOf(results, '--why')).split('\n');
  expect(said.slice(0, 7)).toEqual([
    'src/a.test.ts',
    '  a product is right',
    '    AssertionError: 3 is not 4',
    '        at a.test.ts:3',
    '    and more',
    'test/c.test.ts',
    '  Error: there is no module c',
  ]);
  expect(said.slice(-4)).toEqual(['    line 38', '    line 39', '    ... 5 more lines', '']);
});
