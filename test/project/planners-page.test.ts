/** Runs the commands of docs/planners.md, on its profiles, and compares the output. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';
import { outputOf } from '../support/run-command.ts';

const page = readFileSync(join(packageRoot, 'docs', 'planners.md'), 'utf8');
/** A profile is the JSON block after a line that ends with its name. */
const profiles = [...page.matchAll(/`(\w+\.json)`:\n\n```json\n(.*?)```/gs)].map(([, name = '', json = '']) => ({
  name,
  json,
}));
const steps = [...page.matchAll(/```console\n\$ turntable (.*)\n([^]*?)\n```/g)].map(
  ([, command = '', shown = '']) => ({
    command,
    shown,
  }),
);
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-planners-'));
  for (const { name, json } of profiles) writeFileSync(join(folder, name), json);
});

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

test('the page has a profile and a command for each of four planners', () => {
  expect(profiles.map(({ name }) => name)).toEqual(['layers.json', 'pool.json', 'service.json', 'graph.json']);
  expect(steps.length).toBeGreaterThanOrEqual(4);
});

test.each(steps)('turntable $command', async ({ command, shown }) => {
  const words = [join(packageRoot, 'bin', 'turntable.js'), ...command.split(' ')];
  const stdout = await outputOf(process.execPath, words, { cwd: folder });
  expect(stdout.trimEnd()).toBe(shown);
});
