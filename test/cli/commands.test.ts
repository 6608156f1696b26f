import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { commands, retired } from '../../src/cli/commands.ts';
import { packageRoot } from '../../src/host/config/options.ts';
import { serve, turntable, type ServingHost } from './command.ts';
import { turntableHere } from './in-process.ts';

const key = 'a-key-for-the-tests';
let dir: string;
let host: ServingHost;
let model: string;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-cli-'));
  const made = join(dir, 'made');
  const sizes = ['--set', 'input=4', '--set', 'hidden=8', '--set', 'output=3'];
  const [outcome] = await Promise.all([
    turntable(['make', 'mlp', '--out', made, ...sizes]),
    turntable(['make', 'mlp', '--out', join(dir, 'external'), '--external', '--set', 'hidden=256']),
  ]);
  if (outcome.exitCode !== 0) throw new Error(outcome.stderr);
  model = join(made, 'model.onnx');
  host = await serve(['--data', join(dir, 'data'), '--log-level', 'warn'], { TURNTABLE_API_KEYS: key });
});

afterAll(async () => {
  await host.end();
  rmSync(dir, { recursive: true, force: true });
});

/** A client command against the host, with the key. */
async function client(...words: string[]): ReturnType<typeof turntable> {
  return await turntable(words, { env: { TURNTABLE_URL: host.url, TURNTABLE_API_KEY: key } });
}

describe('a running host', () => {
  test('a running host lists its functions as a table, or as JSON', async () => {
    const table = await client('ps');
    expect(table.stdout).toMatch(/^FUNCTION +STATE +SLO .* NOTE\n/);
    expect(table.stdout).toMatch(/^language-id@1 +(cold|cpu) +100 ms .* Names the language/m);
    const json = await client('ps', '--json');
    const { functions } = JSON.parse(json.stdout) as { functions: { name: string }[] };
    expect(functions.map(({ name }) => name)).toContain('language-id');
  });

  test('a running host answers a call whose body comes from --data, from a file or from standard input', async () => {
    const sentence = 'Où est la bibliothèque ?';
    const file = join(dir, 'sentence.txt');
    writeFileSync(file, sentence);
    const outcomes = await Promise.all([
      client('call', 'language-id', '--data', sentence, '--verbose'),
      client('call', 'language-id', '--file', file, '--content-type', 'text/plain'),
      turntable(['call', 'language-id', '--url', host.url], { input: sentence }),
    ]);
    for (const { exitCode, stdout } of outcomes) {
      expect(exitCode).toBe(0);
      expect(JSON.parse(stdout)).toMatchObject({ language: 'fr' });
    }
    expect(outcomes[0]?.stderr).toMatch(/^cpu pool .*inference [\d.]+ ms, total [\d.]+ ms\n$/);
  });

  test('a running host reports an unknown function in one line', async () => {
    expect(await client('call', 'nope', '--data', '{}')).toEqual({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringMatching(/^turntable: [^\n]*nope[^\n]* \[HTTP 404\]\n$/) as string,
    });
  });

  test('publishes, calls, lists and removes a model', async () => {
    const sha256 = createHash('sha256').update(readFileSync(model)).digest('hex');
    const published = await client('publish', 'tiny', model, '--set', 'slo=250ms', '--set', 'batching.max=4');
    expect(published).toMatchObject({ exitCode: 0, stderr: '' });
    expect(published.stdout).toContain('published tiny version 1 (');
    expect(published.stdout).toContain(`sha256 ${sha256.slice(0, 12)}): ${host.url}/function/tiny`);
    const again = await client('publish', 'tiny', model, '--set', 'slo=250ms', '--set', 'batching.max=4');
    expect(again.stdout).toContain('tiny version 1 was published before');
    const named = await client('publish', 'tiny', model, '--version', 'blue', '--json');
    expect(JSON.parse(named.stdout)).toMatchObject({ name: 'tiny', version: 'blue', sha256 });

    const called = await client('call', 'tiny', '--data', '{"input": [[1, 2, 3, 4]]}');
    const { output } = JSON.parse(called.stdout) as { output: number[][] };
    expect(output[0]).toHaveLength(3);

    const listed = await client('ps');
    // Settings that the publication did not mention come from the version before.
    expect(listed.stdout).toMatch(/^tiny@blue +(cold|cpu) +250 ms/m);
    expect((await client('rm', 'tiny', '--version', 'blue')).stdout).toBe('removed tiny version blue\n');
    expect((await client('ps')).stdout).toMatch(/^tiny@1 +(cold|cpu|loading) +250 ms/m);
    expect((await client('rm', 'tiny')).stdout).toBe('removed tiny\n');
    expect((await client('ps')).stdout).not.toMatch(/^tiny@1 +\w+ +250 ms/m);
  });

  test('publishes the external data beside a model too', async () => {
    const published = await client('publish', 'wide', join(dir, 'external', 'model.onnx'), '--set', 'slo=1s', '--json');
    expect(published.stderr).toBe('');
    // 3.7 MB of weights are in the other file; the model itself has a few kilobytes.
    const reply = JSON.parse(published.stdout) as { bytes: number; slo_ms: number };
    expect(reply.bytes).toBeGreaterThan(3e6);
    expect(reply.slo_ms).toBe(1000);
    await client('rm', 'wide');
  });

  test.each([
    ['without a key', {}, 401],
    ['with a wrong key', { TURNTABLE_API_KEY: 'not-the-key' }, 401],
  ])('a running host refuses a model %s', async (_name, env, status) => {
    const outcome = await turntable(['publish', 'tiny', model, '--url', host.url], { env });
    expect(outcome.exitCode).toBe(1);
    expect(outcome.stderr).toMatch(/^turntable: [^\n]*\(the key is taken from TURNTABLE_API_KEY\)[^\n]*\n$/);
    expect(outcome.stderr).toContain(`[HTTP ${status}]`);
  });

  test('a running host reports a bad setting, a bad model and a missing file in one line each', async () => {
    const outcomes = await Promise.all([
      client('publish', 'tiny', model, '--set', 'sloo=1s'),
      client('publish', 'tiny', join(packageRoot, 'package.json')),
      client('publish', 'tiny', join(dir, 'gone.onnx')),
    ]);
    const messages = outcomes.map(({ stderr }) => stderr);
    expect(messages).toEqual([
      expect.stringMatching(/^turntable: [^\n]*sloo[^\n]*slo[^\n]*\n$/),
      expect.stringMatching(/^turntable: [^\n]*package\.json cannot be published: [^\n]*\n$/),
      expect.stringMatching(/^turntable: the model [^\n]*gone\.onnx cannot be read: [^\n]*\n$/),
    ]);
    expect(outcomes.map(({ exitCode }) => exitCode)).toEqual([1, 1, 1]);
  });

  test('a running host is told apart by the doctor from another program on the port', async () => {
    const port = new URL(host.url).port;
    const { stdout, exitCode } = await turntable(['doctor', '--json', '--port', port, '--data', join(dir, 'data')]);
    const { findings } = JSON.parse(stdout) as { findings: { topic: string; status: string; found: string }[] };
    expect(findings.find(({ topic }) => topic === 'port')).toMatchObject({
      status: 'ok',
      found: `127.0.0.1:${port} is taken by a running host`,
    });
    expect(exitCode).toBe(0);
  });
});

describe('turntable serve', () => {
  test('turntable serve on a port that is taken says so in one line', async () => {
    const port = new URL(host.url).port;
    const outcome = await turntable(['serve', '--port', port, '--data', join(dir, 'other')]);
    expect(outcome.exitCode).toBe(1);
    expect(outcome.stderr).toContain(
      `turntable: port ${port} on 127.0.0.1 is in use by another program; choose another with --port (0 takes a free one)\n`,
    );
    expect(outcome.stderr).not.toContain('    at ');
  });

  test.each([
    [
      ['--host', '0.0.0.0'],
      /^turntable: listening on 0\.0\.0\.0, .* needs an API key: set TURNTABLE_API_KEYS[^\n]*\n$/,
    ],
    [['--drain', 'soon'], /^turntable: --drain is "soon", but must be a duration[^\n]*\n$/],
    [['--config', 'gone.json'], /^turntable: the configuration file [^\n]*gone\.json cannot be read[^\n]*\n$/],
  ])('turntable serve with %j does not start, and says why in one line', async (words, message) => {
    const outcome = await turntableHere(['serve', ...words]);
    expect(outcome).toMatchObject({ exitCode: 1, stdout: '' });
    expect(outcome.stderr).toMatch(message);
  });

  test.each(['SIGTERM', 'SIGINT'] as const)('drains on %s and ends with exit code 0', async (signal) => {
    // Without functions, since the shipped ones would be validated for each new data folder.
    const other = await serve(['--data', join(dir, `ends-by-${signal}`), '--functions', join(dir, 'no-functions')]);
    const answer = await fetch(`${other.url}/v2/health/ready`);
    expect(answer.status).toBe(200);
    expect(await other.end(signal)).toBe(0);
    expect(other.stderr()).toMatch(new RegExp(`"signal":"${signal}".*finishing accepted requests`));
  });
});

describe('the command line', () => {
  test('the command line without words shows the commands, like --help and help', async () => {
    const [none, flag, word] = await Promise.all([turntable([]), turntable(['--help']), turntable(['help'])]);
    expect(flag.stdout).toMatch(/^Usage: node bin\/turntable\.js /);
    for (const name of ['serve', 'ps', 'call', 'publish', 'rm', 'make', 'doctor', 'version']) {
      expect(flag.stdout).toMatch(new RegExp(`^ +${name} `, 'm'));
    }
    expect(flag.stdout).not.toMatch(/^Commands:/m);
    expect(flag.stdout).toMatch(/^Measure, plan and replay:\n(?: .*\n)* +plan .*\n? .*capacity/m);
    expect(none).toEqual(flag);
    expect(word).toEqual(flag);
    expect(flag.exitCode).toBe(0);
  });

  test.each<[words: string[], message: RegExp]>([
    [['serv'], /unknown command 'serv'\n\(Did you mean serve\?\)/],
    [['capacity', '--slo', '1s'], /'capacity' is a command of plan: turntable plan capacity --help tells more/],
    [['store', 'fsk'], /unknown command 'fsk'\n\(Did you mean fsck\?\)\n\n?\(turntable store --help tells more\)/],
    [['replay', '--slo', '100'], /'--slo <time>' argument '100' is invalid.*; it lacks a unit: 100ms or 100s\?/],
    [['worker', '--drain', '600h'], /'--drain <time>' argument '600h' is invalid.* at most 24h\./],
    [['top', '--interval', '25h'], /argument '25h' is invalid.* at most 24h\./],
    [['serve', '--prot', '1'], /unknown option '--prot'\n\(Did you mean --port\?\)/],
    [['rm'], /missing required argument 'name'/],
    [['publish', 'x', 'y', '--set', 'slo'], /--set is "slo", but must be key=value/],
    [['publish', 'x', 'y', '--set', 'slo=1', '--set', 'slo=2'], /--set names "slo" twice/],
    [['call', 'x', '--data', '1', '--file', 'y'], /--data and --file both give the body/],
    [['ps', '--url', 'somewhere'], /--url is "somewhere", but must be an address such as/],
  ])('%j is refused with exit code 2', async (words, message) => {
    const outcome = await turntableHere(words);
    expect(outcome).toMatchObject({ exitCode: 2, stdout: '' });
    expect(outcome.stderr).toMatch(message);
    expect(outcome.stderr).not.toContain('    at ');
  });

  test('the command line starts Node with room for the memory of bodies and answers', () => {
    const tell = 'data:text/javascript,console.error(process.execArgv.join())';
    const env = { ...process.env, NODE_OPTIONS: `--import=${tell}` };
    const { stdout, stderr } = spawnSync(join(packageRoot, 'bin', 'turntable.js'), ['--version'], {
      env,
      encoding: 'utf8',
    });
    expect(stderr).toContain('--initial-old-space-size=256');
    expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  test('a wrong command line ends the process with exit code 2', async () => {
    expect(await turntable(['rm'])).toMatchObject({ exitCode: 2, stdout: '' });
  });

  test.each(commands.map(({ name }) => name))(
    'help for %s has short lines and no two options of one name',
    async (name) => {
      const { stdout, exitCode } = await turntableHere(['help', name]);
      expect(exitCode).toBe(0);
      expect(stdout).toMatch(new RegExp(`^Usage: turntable ${name} `));
      expect(stdout.split('\n').filter((line) => line.length > 110)).toEqual([]);
      const flags = [...stdout.matchAll(/^ {2}(?:-\w, )?(--[a-z-]+)/gm)].map(([, flag]) => flag);
      expect(new Set(flags).size).toBe(flags.length);
    },
  );

  test.each([...retired])('%s, which is gone, is answered with the new way in one sentence', async (name, instead) => {
    for (const words of [[name], ['help', name], ['replay', `${name}=1`]].slice(0, name.startsWith('--') ? 3 : 2)) {
      expect(await turntableHere(words)).toEqual({ exitCode: 2, stdout: '', stderr: `turntable: ${instead}\n` });
    }
    // What the sentence says to type is there.
    const typed = [...instead.matchAll(/turntable ([a-z]+)/g)].map(([, command]) => command);
    expect(commands.map((each) => each.name)).toEqual(expect.arrayContaining(typed.filter((word) => word !== 'help')));
  });

  test('the command line finds the host at the port in TURNTABLE_PORT', async () => {
    const { port } = new URL(host.url);
    const listed = await turntable(['ps'], { env: { TURNTABLE_PORT: port } });
    expect(listed.stdout).toContain('language-id');
    const nobody = await turntable(['ps'], { env: { TURNTABLE_PORT: '65534' } });
    expect(nobody.stderr).toContain('no host answers at http://127.0.0.1:65534;');
  });

  test('the command line loads a function and frees its memory', async () => {
    expect((await client('load', 'language-id')).stdout).toMatch(/^loaded language-id in /);
    expect((await client('unload', 'language-id')).stdout).toBe('unloaded language-id\n');
    expect((await client('load', 'nothing')).stderr).toContain("'nothing'");
  });

  test('the command line shows the stack of an error only with --debug', async () => {
    const words = ['ps', '--url', 'http://127.0.0.1:9'];
    const [plain, debug] = await Promise.all([turntable(words), turntable([...words, '--debug'])]);
    expect(plain).toMatchObject({ exitCode: 1, stdout: '' });
    expect(plain.stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(debug.stderr).toContain('    at ');
  });

  test('the command line prints the versions', async () => {
    const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8')) as { version: string };
    const [text, json, flag] = await Promise.all([
      turntable(['version']),
      turntable(['version', '--json']),
      turntable(['--version']),
    ]);
    expect(text.stdout).toMatch(
      new RegExp(`^turntable ${version} \\(Node ${process.versions.node}, onnxruntime-node `),
    );
    expect(JSON.parse(json.stdout)).toMatchObject({ turntable: version, node: process.versions.node });
    expect(flag.stdout).toBe(`${version}\n`);
  });

  test('the command line works from any working directory', async () => {
    const { stdout, exitCode } = await turntable(['doctor', 'language-id'], { cwd: dir });
    expect(stdout).toContain(`language-id version 1 (folder, ${join(packageRoot, 'functions', 'language-id')})`);
    expect(exitCode).toBe(0);
  });
});

describe('the doctor', () => {
  test('the doctor finds everything on this machine that the host needs', async () => {
    const { stdout, exitCode } = await turntable(['doctor', '--port', '0', '--data', join(dir, 'data')]);
    expect(stdout).toMatch(/^STATUS +WHAT +FOUND +EFFECT\n/);
    expect(stdout).not.toMatch(/^broken/m);
    expect(stdout).toMatch(/^ok +ONNX Runtime +\S+: cpu/m);
    expect(stdout).toMatch(/^ok +functions .*language-id/m);
    expect(exitCode).toBe(0);
  });

  test('the doctor ends with exit code 1 if something is broken, or the function is unknown', async () => {
    writeFileSync(join(dir, 'file'), '');
    const [broken, unknown] = await Promise.all([
      turntable(['doctor', '--port', '0', '--data', join(dir, 'file', 'data')]),
      turntable(['doctor', 'no-such', '--data', join(dir, 'data')]),
    ]);
    expect(broken.exitCode).toBe(1);
    expect(broken.stdout).toMatch(/^broken +data folder /m);
    expect(unknown.exitCode).toBe(1);
    expect(unknown.stderr).toMatch(/^turntable: there is no function 'no-such' in /);
  });

  test('the doctor says on a machine without a GPU driver that the GPUs cannot be tested', async () => {
    const { exitCode, stderr } = await turntable(['doctor', '--gpu', '--data', join(dir, 'data')], {
      env: { TURNTABLE_LIBCUDA: join(dir, 'no-libcuda.so') },
    });
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/^turntable: the GPUs cannot be tested: .*no-libcuda\.so.*\n$/);
  });
});
