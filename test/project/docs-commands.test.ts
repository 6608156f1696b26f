/**
 * Runs the commands of the pages in docs/ and examples/ that no other test of this folder runs, in their order, on
 * hosts of this test. Also lists, for each page with commands, the test that runs them.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';
import { serve, type ServingHost } from '../cli/command.ts';
import { writeModel } from '../../src/onnx/index.ts';
import { writeScaleModel } from '../support/models.ts';
import { serveNpmRegistry, type NpmRegistry } from '../support/npm-registry.ts';
import { classifier } from '../support/odd-models.ts';
import { RedisServer, redisMissing } from '../support/redis-server.ts';
import { startCommand } from '../support/run-command.ts';

/** The test of this folder that runs a page's commands. */
const elsewhere: Readonly<Record<string, string>> = {
  'README.md': 'readme',
  'docs/handlers.md': 'readme',
  'docs/hybrid.md': 'readme',
  'docs/planners.md': 'planners-page',
  'docs/replay.md': 'replay-page',
};
const markdownIn = (folder: string): string[] =>
  readdirSync(join(packageRoot, folder)).flatMap((name) => (name.endsWith('.md') ? [join(folder, name)] : []));
const examples = readdirSync(join(packageRoot, 'examples'), { withFileTypes: true })
  .filter((each) => each.isDirectory())
  .map(({ name }) => `examples/${name}/README.md`);
const here = [
  'docs/coming-from.md',
  'docs/deploy.md',
  'docs/fleet.md',
  'docs/operate.md',
  'docs/profiling.md',
  'docs/pytorch.md',
  'docs/queue.md',
  'docs/store.md',
  'docs/versions.md',
  ...examples,
];
/** Commands that need something no test has, or run elsewhere, with the reason. */
const notRun: readonly (readonly [RegExp, string])[] = [
  [
    /^(docker|kubectl|systemctl|install|cp) /,
    'Docker, Kubernetes or root; test/project/deploy.test.ts reads the files',
  ],
  [/^npm (run package|install --global) /, 'test/project/package.test.ts packs, and installs what was packed'],
  [/^redis-server /, 'test/support/redis-server.ts starts it with these options'],
  [/^turntable profile /, 'takes minutes; src/cli/profile.test.ts has it measure less'],
  [/^TURNTABLE_API_KEYS='ci:publish\+read:sha256/, 'needs the hash of a key; test/cli/operate.test.ts makes one'],
  [
    /^turntable (serve|worker) .*--store s3:/,
    'test/store/hosts.test.ts starts hosts with a bucket, at a server of its own',
  ],
];

/** The commands of shell blocks, without prompts, remarks and output. */
function commandsOf(page: string): string[] {
  const text = readFileSync(join(packageRoot, page), 'utf8');
  const commands: string[] = [];
  for (const [, kind, block = ''] of text.matchAll(/^```(console|sh)\n([\s\S]*?)^```$/gm)) {
    const lines = block.replaceAll('\\\n', ' ').split('\n');
    const typed = kind === 'sh' ? lines : lines.flatMap((line) => (line.startsWith('$ ') ? [line.slice(2)] : []));
    commands.push(...typed.map((line) => line.replace(/ +# .*$/, '')).filter((line) => line !== ''));
  }
  return commands;
}

const whyNot = (command: string): string | undefined => notRun.find(([pattern]) => pattern.test(command))?.[1];
const isRun = (command: string): boolean =>
  whyNot(command) === undefined && !command.startsWith('TURNTABLE_API_KEYS=admin');
const isServe = (command: string): boolean => /^turntable serve\b/.test(command);

const shipped = `--functions ${join(packageRoot, 'functions')}`;

let dir: string;
let registry: NpmRegistry;
/** The host for the pages' commands; its folder has my-model with the versions that they name. */
let host: ServingHost;

const turntable = `${process.execPath} ${join(packageRoot, 'bin', 'turntable.js')}`;

/** Runs a command in `dir`, with the pages' addresses replaced. Returns its output if it succeeds. */
async function run(
  command: string,
  replaced: Readonly<Record<string, string>> = {},
  url: string = host.url,
  exitCode = 0,
): Promise<string> {
  let line = command.replaceAll(/\bturntable (?=[a-z])/g, `${turntable} `);
  const known = { 'http://127.0.0.1:8000': url, 'localhost:8000': url, ...replaced };
  for (const [from, to] of Object.entries(known)) line = line.replaceAll(from, to);
  const env = { ...process.env, ...registry.environment, TURNTABLE_URL: url };
  const { child, stdout, stderr } = startCommand('bash', ['-o', 'pipefail', '-c', line], { cwd: dir, env });
  let output = '';
  for (const stream of [stdout, stderr]) stream.on('data', (chunk: string) => (output += chunk));
  await new Promise<void>((resolve) => void child.on('close', resolve));
  if (child.exitCode !== exitCode) throw new Error(`exit code ${child.exitCode} of: ${command}\n${output}`);
  return output;
}

/** Starts the host of a `turntable serve` line, on a free port with its own data folder. */
async function started(command: string, replaced: Readonly<Record<string, string>> = {}): Promise<ServingHost> {
  let words = command.replace(/^.*?turntable serve ?/, '');
  for (const [from, to] of Object.entries(replaced)) words = words.replaceAll(from, to);
  const data = mkdtempSync(join(dir, 'data-'));
  const own = ['--data', data, '--log-level', 'error', '--cpu-cores', '1'];
  const from = { command: join(packageRoot, 'bin', 'turntable.js'), cwd: dir };
  return await serve([...words.split(' ').filter((word) => word !== ''), ...own], {}, from);
}

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-docs-'));
  registry = await serveNpmRegistry(['jpeg-js', '@huggingface/tokenizers']);
  await rename(await writeScaleModel(dir, 2), join(dir, 'model.onnx'));
  await rename(await writeScaleModel(dir, 3), join(dir, 'new.onnx'));
  host = await started(`turntable serve ${shipped}`);
});

afterAll(async () => {
  await host?.end();
  await registry?.[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
});

test('every page with commands has a test that runs them', () => {
  const pages = [...markdownIn('.'), ...markdownIn('docs'), ...examples];
  const withCommands = pages.filter((page) => commandsOf(page).length > 0);
  expect(withCommands.filter((page) => !here.includes(page) && elsewhere[page] === undefined)).toEqual([]);
  expect(here.filter((page) => !withCommands.includes(page))).toEqual([]);
});

test('every exception still matches a command', () => {
  const commands = here.flatMap(commandsOf);
  expect(notRun.filter(([pattern]) => !commands.some((command) => pattern.test(command)))).toEqual([]);
});

test('docs/coming-from.md, docs/deploy.md: health, a key, and a host as installed', async () => {
  const [health = '', ...others] = commandsOf('docs/coming-from.md');
  expect(others).toEqual([]);
  expect(await run(health)).toBe('{"ready":true}\n');
  const [first = '', key = '', ...more] = commandsOf('docs/deploy.md').filter(isRun);
  for (const certificate of more) expect(await run(certificate)).toContain('--fleet-tls-ca   certs/ca.pem\n');
  expect(await (await started(first)).end()).toBe(0);
  expect(await run(key)).toMatch(/^entry: +admin:publish\+invoke\+read:sha256:/m);
});

test('docs/versions.md: settings, a new version, promote, rollback, split', async () => {
  const outputs = [await run('turntable publish my-model model.onnx')];
  for (const command of commandsOf('docs/versions.md')) {
    outputs.push(await run(command));
  }
  expect(outputs).toHaveLength(8);
  expect(outputs[1]).toBe('my-model: slo=50ms, batching.max=4\n');
  expect(outputs.slice(5, 7)).toEqual([
    'my-model: version 2 100%\n',
    'my-model: version 1 100% (before: version 2 100%)\n',
  ]);
  expect(outputs[7]).toContain('my-model: version 1 90%, version 2 10%\n');
});

test('docs/pytorch.md: publish, call, init with the model, try, an example, and a classifier with maps', async () => {
  await writeModel(classifier(), join(dir, 'iris.onnx'));
  const outputs: string[] = [];
  for (const command of commandsOf('docs/pytorch.md')) {
    // The page abbreviates the numbers of an image.
    outputs.push(await run(command.replace('[[[[0, 0, ...], ...]]]', '[[0, 0, 0, 0]]')));
  }
  expect(outputs[0]).toContain('my-model version ');
  expect(outputs.slice(1, 4)).toEqual([
    expect.stringContaining('"output"'),
    expect.stringContaining('made functions/my-model'),
    expect.stringContaining('"y"'),
  ]);
  expect(outputs).toContainEqual(
    expect.stringContaining("note: the output 'output_probability' is a sequence; the tensor"),
  );
});

test('docs/store.md: a host with a store, a function with a handler, and a data folder', async () => {
  const store = join(dir, 'store');
  const replaced = {
    '/mnt/models': store,
    's3://models/lab': store,
    '~/.local/share/turntable': join(dir, 'old'),
    'functions/language-id': join(packageRoot, 'functions', 'language-id'),
  };
  const commands = commandsOf('docs/store.md').filter(isRun);
  const own = await started(commands.find(isServe)!, replaced);
  try {
    const from = { command: join(packageRoot, 'bin', 'turntable.js'), cwd: dir };
    const old = await serve(['--data', join(dir, 'old'), '--log-level', 'error', '--cpu-cores', '1'], {}, from);
    await run('turntable publish brought model.onnx', {}, old.url);
    expect(await old.end()).toBe(0);
    const outputs: string[] = [];
    for (const command of commands.filter((each) => !isServe(each)))
      outputs.push(await run(command, replaced, own.url));
    const said = ['language-id@1: published', '1 version imported', '0 files removed'];
    expect(outputs).toEqual(said.map((text) => expect.stringContaining(text) as string));
    await expect.poll(async () => await run('turntable ps', {}, own.url)).toMatch(/brought[^]*language-id/);
  } finally {
    await own.end();
  }
});

test.each(examples)('%s: init, try, serve and call', async (page) => {
  rmSync(join(dir, 'functions'), { recursive: true, force: true });
  mkdirSync(join(dir, 'functions'));
  let own: ServingHost | undefined;
  const outputs: string[] = [];
  try {
    for (const command of commandsOf(page)) {
      // One command shows the errors that a client gets.
      const exitCode = command.includes('"weekly"') ? 1 : 0;
      if (isServe(command)) own = await started(command);
      else outputs.push(await run(command, {}, own?.url, exitCode));
    }
  } finally {
    await own?.end();
  }
  expect(outputs[0]).toContain('made functions/');
  expect(outputs.slice(1).join('\n')).not.toMatch(/^$|HTTP 5/);
});

describe.skipIf(redisMissing !== undefined)('with Redis', () => {
  let redis: RedisServer;
  beforeAll(async () => void (redis = await RedisServer.start({ durable: true })));
  afterAll(async () => await redis?.[Symbol.asyncDispose]());

  test('docs/fleet.md: a host of a fleet, ps, a call, drain', async () => {
    const [certificate, first, ...others] = commandsOf('docs/fleet.md').filter(isRun);
    expect(await run(certificate!)).toContain('--fleet-tls-cert certs/10.0.0.5.pem\n');
    const member = await started(`${first} --fleet-port 0 ${shipped}`, {
      'redis://10.0.0.2:6379': redis.url,
      '/mnt/models': join(dir, 'store-of-the-fleet'),
    });
    const replaced = { 'http://10.0.0.5:8000': member.url, '10.0.0.7:8002': '10.0.0.5:8002' };
    try {
      const outputs: string[] = [];
      for (const command of others) outputs.push(await run(command, replaced, member.url));
      const shown = expect.stringMatching(/^10\.0\.0\.5:8002 +up /m) as string;
      const placement = expect.stringMatching(/^X-Turntable-Placement: /) as string;
      const made = expect.stringMatching(/^--fleet-tls-cert /m) as string;
      expect(outputs).toEqual([shown, shown, made, placement, '10.0.0.5:8002: draining\n']);
    } finally {
      await member.end();
    }
  });

  test('docs/queue.md: a host and a worker, and a call that is answered later', async () => {
    const commands = commandsOf('docs/queue.md').filter(isRun);
    const replaced = { 'redis://127.0.0.1:6379': redis.url };
    const own = await started(`${commands.find(isServe)} ${shipped}`, replaced);
    const line = commands.find((command) => command.includes('turntable worker')) ?? '';
    const words = ['-c', `exec ${line.replace(/^turntable/, turntable)}`.replace(...redisOf(redis))];
    const { child: worker, stdout, stderr } = startCommand('bash', words, { cwd: dir });
    for (const stream of [stdout, stderr]) stream.resume();
    const ended = new Promise<void>((resolve) => void worker.on('exit', () => resolve()));
    try {
      const listed = async (): Promise<string> => await (await fetch(`${own.url}/api/machine`)).text();
      await expect.poll(listed).toContain('"name":"lab-7"');
      const call = commands.find((command) => command.includes('/async-function/')) ?? '';
      expect(await run(call, {}, own.url)).toMatch(/^HTTP\/1\.1 202 /);
    } finally {
      worker.kill('SIGTERM');
      await ended;
      await own.end();
    }
  });
});

const redisOf = ({ url }: RedisServer): [string, string] => ['redis://127.0.0.1:6379', url];
