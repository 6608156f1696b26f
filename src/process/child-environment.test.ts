import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { childEnvironment } from './child-environment.ts';

const passes = (name: string): boolean => name in childEnvironment({ [name]: 'value' });

test.each([
  'PATH',
  'HOME',
  'LC_ALL',
  'TZ',
  'NODE_OPTIONS',
  'NODE_EXTRA_CA_CERTS',
  'CUDA_VISIBLE_DEVICES',
  'OMP_NUM_THREADS',
])('a child sees %s', (name) => expect(passes(name)).toBe(true));

test.each(['HANDLER_SETTING', 'HANDLER_API_KEY'])('handlers see %s, which their operator gives them', (name) =>
  expect(passes(name)).toBe(true),
);

test.each([
  'AWS_SECRET_ACCESS_KEY',
  'TURNTABLE_API_KEYS',
  'TURNTABLE_ASYNC_CALLBACK_SECRET',
  'TURNTABLE_REDIS_URL',
  'GITHUB_TOKEN',
  'NODE_AUTH_TOKEN',
  'NPM_TOKEN',
  'DATABASE_URL',
  'SSH_AUTH_SOCK',
  'MY_HANDLER_MODE',
  'path',
])('a child does not see %s', (name) => expect(passes(name)).toBe(false));

test('a name that nobody has listed is not passed', () => {
  const others = fc.stringMatching(/^(APP|AZURE|GOOGLE|AWS|PG|X)_[A-Z_]{1,20}$/);
  fc.assert(
    fc.property(others, (name) => {
      expect(passes(name)).toBe(false);
    }),
  );
});

/** Without `env` Node hands on everything. Threads (`new Worker`) see a copy, and run this project's own code. */
const handsOnEverything = (text: string): boolean =>
  /\benv: process\.env\b|\.\.\.process\.env\b/.test(text) ||
  (/\bspawn\(|from 'node:child_process'/.test(text) && !text.includes('childEnvironment()'));

test('no part of the host starts a process with its whole environment', () => {
  const root = join(import.meta.dirname, '..');
  const paths = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
    // What a person starts by hand runs as that person; spawn.ts takes the environment from its callers.
    (path) => /(?<!\.test)\.ts$/.test(path) && !path.startsWith('cli/') && path !== 'process/spawn.ts',
  );
  expect(paths.filter((path) => handsOnEverything(readFileSync(join(root, path), 'utf8')))).toEqual([]);
});

test.each([
  "spawn(program, words, { env: process.env, stdio: ['ignore'] })",
  "execFileSync('python3', [], { env: { ...process.env, PATH: path } })",
  "import { fork } from 'node:child_process';\nfork(module);",
])('the search for whole environments finds %j', (text) => expect(handsOnEverything(text)).toBe(true));
