import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { turntable } from '../../test/cli/command.ts';
import { turntableHere } from '../../test/cli/in-process.ts';
import { packageRoot } from '../host/index.ts';
import type { Outcome } from '../../test/support/run-command.ts';
import { ElementType, GraphBuilder, writeModel } from '../onnx/index.ts';

let dir: string;
const folder = (name: string): string => join(dir, 'functions', name);
/** What `init` printed for the starter. */
let told: string;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-try-'));
  const model = join(packageRoot, 'functions', 'language-id', 'model.onnx');
  const made = [
    await turntable(['init', 'trend'], { cwd: dir }),
    await turntableHere(['init', 'language', '--model', model, '--js', '--out', folder('language')]),
    await turntableHere(['init', 'typed', '--model', model, '--out', folder('typed')]),
  ];
  const failed = made.find(({ exitCode, stderr }) => exitCode !== 0 || stderr !== '');
  if (failed !== undefined) throw new Error(failed.stderr);
  told = made[0]?.stdout ?? '';
});

afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
});

const command = join(packageRoot, 'bin', 'turntable.js');
const shell = promisify(execFile);
/** A line as a user types it, in the folder that it was printed in. */
const typed = async (line: string): Promise<string> => (await shell('bash', ['-c', line], { cwd: dir })).stdout;

describe('commands that a command names', () => {
  test('commands that a command names by init run in the folder that it was called in, which is not that of the checkout', async () => {
    const [, tried = '', tested = '', served = '', called = ''] = told.split('\n');
    expect(JSON.parse(await typed(tried))).toMatchObject({ trend: 'rising' });
    expect(await typed(tested)).toMatch(/^(#|ℹ) pass 2$/m);
    expect(served).toBe(`  node ${command} serve --functions functions`);
    expect(called).toBe(`  node ${command} call trend --file functions/trend/example.json`);
  });

  test('commands that a command names by help, errors and lists are called as the command was', async () => {
    const lines = [[], ['--help'], ['publish'], ['set', '--help'], ['plan', 'serf', '--no'], ['make', '--list']];
    const outcomes = await Promise.all(
      [...lines, ['ps', '--url', 'http://127.0.0.1:9']].map((words) => turntable(words, { cwd: dir })),
    );
    const output = outcomes.map(({ stdout, stderr }) => stdout + stderr).join('\n');
    // What it says of itself, `turntable: no host answers`, is no command.
    expect(output.replaceAll(command, '')).not.toMatch(/\bturntable(?!:)/);
    const named = new Set(output.match(new RegExp(`node ${command}\\s+(help )?[a-z]+( serf)?`, 'g')));
    expect(named.size).toBeGreaterThan(5);
    for (const line of named) {
      const words = line.slice(`node ${command}`.length).trim().split(/\s+/);
      expect(await turntableHere([...words, '--help'])).toMatchObject({ exitCode: 0, stderr: '' });
    }
  });
});

describe('a folder of turntable init', () => {
  test('a folder of turntable init with a model of its author passes the tests that it comes with', async () => {
    const env = { ...process.env, TURNTABLE: command };
    const { stdout } = await shell(process.execPath, ['--test', join(folder('language'), 'handler.test.mjs')], { env });
    expect(stdout).toMatch(/^(#|ℹ) pass 2$/m);
  });

  test('a folder of turntable init has types that the compiler accepts without installed packages', async () => {
    const tsc = join(packageRoot, 'node_modules', 'typescript', 'bin', 'tsc');
    for (const config of ['trend/tsconfig.json', 'typed/tsconfig.json', 'language/jsconfig.json']) {
      await promisify(execFile)(process.execPath, [tsc, '-p', folder(config)]);
    }
    const handler = readFileSync(join(folder('trend'), 'handler.ts'), 'utf8');
    writeFileSync(join(folder('typed'), 'handler.ts'), handler.replace("'FP32'", "'FP31'"));
    const wrong = promisify(execFile)(process.execPath, [tsc, '-p', folder('typed')]);
    await expect(wrong).rejects.toMatchObject({ stdout: expect.stringContaining('"FP31"') as string });
  });

  test('a folder of turntable init is not made in an existing folder, or with an invalid name', async () => {
    const again = await turntableHere(['init', 'trend', '--out', folder('trend')]);
    expect(again).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('exists already') as string });
    expect((await turntableHere(['init', '../up'])).exitCode).toBe(2);
    const refused = await turntableHere(['init', 'nowhere', '--out', '/proc/none/below/it']);
    expect(refused).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('cannot be made: ') as string });
    const noModel = join(packageRoot, 'package.json');
    const broken = await turntableHere(['init', 'broken', '--model', noModel, '--out', folder('broken')]);
    expect(broken.stderr).toContain('package.json cannot be taken: ');
    expect(existsSync(folder('broken'))).toBe(false);
  });
});

const model = (): string => join(dir, 'sound.onnx');

/** Takes 97 samples and more, as its reflecting pad of 96 does, beside a state and a rate that must not be 0. */
async function writeSound(path: string): Promise<void> {
  const graph = new GraphBuilder('sound');
  const audio = graph.input('audio', ElementType.FLOAT, ['', '']);
  const state = graph.input('state', ElementType.FLOAT, [2, '', 3]);
  const rate = graph.input('rate', ElementType.INT64, [1]);
  const pads = graph.constant({ ints: [0, 0, 0, 96], shape: [4] });
  const padded = graph.node('Pad', [audio, pads], { mode: 'reflect' });
  const rows = graph.constant({ ints: [2, 1, 3], shape: [3] });
  const kept = graph.node('Reshape', [state, rows]);
  const share = graph.node('Cast', [graph.node('Div', [graph.constant({ ints: [16_000], shape: [1] }), rate])], {
    to: 1,
  });
  const level = graph.node('ReduceMean', [padded], { axes: [1], keepdims: 1 });
  graph.output(graph.node('Mul', [level, share]), ElementType.FLOAT, ['', 1], 'level');
  graph.output(kept, ElementType.FLOAT, [2, 1, 3], 'next');
  await writeModel(graph.build(), path);
}

describe('sizes that nobody gave', () => {
  beforeAll(async () => {
    await writeSound(model());
  });

  test('sizes that nobody gave are tried by init until the model runs, and its example passes its own test', async () => {
    const made = await turntableHere(['init', 'sound', '--model', model(), '--out', folder('sound')]);
    expect(made).toMatchObject({ exitCode: 0, stderr: '' });
    expect(made.stdout).toMatch(/example\.json: the model runs with .*audio\.1 = 128.*--dim audio\.1=N/);
    const example = JSON.parse(readFileSync(join(folder('sound'), 'example.json'), 'utf8')) as Record<string, unknown>;
    expect(example['rate']).toEqual([1]);
    const tried = await turntableHere(['try', folder('sound')]);
    expect(JSON.parse(tried.stdout)).toMatchObject({ level: { shape: [1, 1] } });
    const env = { ...process.env, TURNTABLE: command };
    const { stdout } = await shell(process.execPath, ['--test', join(folder('sound'), 'handler.test.mjs')], { env });
    expect(stdout).toMatch(/^(#|ℹ) pass 2$/m);
  });

  test('sizes that nobody gave can be given to init, and are told where no size runs', async () => {
    const init = (name: string, dim: string): Promise<Outcome> =>
      turntableHere(['init', name, '--model', model(), '--dim', dim, '--out', folder(name)]);
    const given = await init('given', 'audio.1=100');
    expect(given.stdout).toContain('audio.1 = 100');
    const short = await init('short', 'audio.1=5');
    expect(short.stdout).toMatch(/the model did not run with .*audio\.1 = 5.*Pad/);
    const odd = await init('odd', 'samples=5');
    expect(odd).toMatchObject({
      exitCode: 2,
      stderr: expect.stringContaining("no open dimension 'samples'") as string,
    });
    expect(existsSync(folder('odd'))).toBe(false);
  });

  test('sizes that nobody gave are tried for a model file, and named on standard error', async () => {
    const tried = await turntableHere(['try', model()]);
    expect(JSON.parse(tried.stdout)).toMatchObject({ outputs: { level: [[0]] } });
    expect(tried.stderr).toMatch(/^the model runs with .*audio\.1 = 128/);
    const given = await turntableHere(['try', model(), '--dim', 'audio.1=5']);
    expect(given).toMatchObject({ exitCode: 1, stderr: expect.stringMatching(/did not run with .*= 5/) as string });
  });

  test('sizes that nobody gave are tried and named by the doctor, which looks at files and folders too', async () => {
    const report = await turntableHere(['doctor', model()]);
    expect(report).toMatchObject({ exitCode: 0 });
    expect(report.stdout).toMatch(/^sound\.onnx \(file, /);
    expect(report.stdout).toMatch(/runs +yes with .*audio\.1 = 128.*--dim audio\.1=N/);
    expect(report.stdout).toMatch(/GPU engine .*audio \[1,128\]/);
    const given = await turntableHere(['doctor', model(), '--dim', 'audio.1=5']);
    expect(given.stdout).toMatch(/runs +no with .*audio\.1 = 5.*Pad/);
    const ofFolder = await turntableHere(['doctor', folder('trend')]);
    expect(ofFolder.stdout).toMatch(/^trend version 1 \(folder, .*\n.*\n.*\n.*\n.*\n +runs +yes/);
    const missing = await turntableHere(['doctor', join(dir, 'none.onnx')]);
    expect(missing).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('no file or folder') as string });
  });

  test('the help of the doctor lists what it takes, and says where the options of the host are', async () => {
    const { stdout } = await turntable(['doctor', '--help']);
    expect(stdout.match(/^ {2}-/gm)!.length).toBeLessThan(12);
    expect(stdout).toContain('node bin/turntable.js serve --help');
  });
});

describe('turntable try', () => {
  test('turntable try prints only the reply on standard output, and the times on standard error', async () => {
    const fromExample = await turntable(['try', folder('trend')]);
    expect(JSON.parse(fromExample.stdout)).toEqual({ trend: 'rising', confidence: 0.952 });
    expect(fromExample.stderr).toMatch(
      /^handler compiled in .*, model loaded in .*\nfirst call: preprocess .*100 ms\n$/,
    );
    const data = ['--data', '{"readings": [4, 3, 2, 1]}'];
    const several = await turntableHere(['try', folder('trend'), ...data, '--runs', '3', '--json']);
    const { status, body, calls } = JSON.parse(several.stdout) as { status: number; body: string; calls: unknown[] };
    expect({ status, body: JSON.parse(body), calls: calls.length }).toMatchObject({
      status: 200,
      body: { trend: 'falling' },
      calls: 3,
    });
  });

  test('a handler that ends the process gets the blame, and a missing folder is named', async () => {
    const place = join(dir, 'ending');
    await turntableHere(['init', 'ending', '--out', place, '--js']);
    const handler = 'export const preprocess = () => process.exit(0);\nexport const postprocess = () => 0;\n';
    writeFileSync(join(place, 'handler.mjs'), handler);
    const ended = await turntableHere(['try', place]);
    expect(ended).toMatchObject({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringContaining(
        'died while they ran this invocation: it exited with code 0 [HTTP 500]',
      ) as string,
    });
    const missing = await turntableHere(['try', join(dir, 'nowhere')]);
    expect(missing.stderr).toContain('cannot be read');
  });

  test('turntable try calls a function without a handler with nested numbers', async () => {
    const place = join(dir, 'plain');
    const sizes = ['input=2', 'hidden=2', 'output=3', 'layers=2'];
    await turntableHere(['make', 'mlp', '--out', place, '--set', ...sizes]);
    const { stdout } = await turntable(['try', place, '-'], { input: '{"input": [[1, 2]]}' });
    expect((JSON.parse(stdout) as { output: number[][] }).output[0]).toHaveLength(3);
    const wrong = await turntable(['try', place, '-'], { input: '{"input": [[1, 2, 3]]}' });
    expect(wrong).toMatchObject({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringMatching(/'input' has 3 as dimension 1.*HTTP 400\]\n$/) as string,
    });
  });

  test('turntable try reports an error of the handler with file, line and stack, and keeps its output out of the reply', async () => {
    const path = join(folder('trend'), 'handler.ts');
    const source = readFileSync(path, 'utf8');
    writeFileSync(
      path,
      source.replace(
        '  const scores',
        '  console.log("was here");\n  setInterval(() => undefined, 1000);\n  const scores',
      ),
    );
    const printed = await turntable(['try', folder('trend')]);
    expect(JSON.parse(printed.stdout)).toMatchObject({ trend: 'rising' });
    expect(printed.stderr).toContain('was here');
    writeFileSync(
      path,
      source.replace('  const scores', '  (undefined as unknown as string[]).pop();\n  const scores'),
    );
    const failed = await turntableHere(['try', folder('trend')]);
    writeFileSync(path, source);
    expect(failed).toMatchObject({ exitCode: 1, stdout: '' });
    expect(failed.stderr).toMatch(/at \S*postprocess \(handler\.ts:15:\d+\)/);
    expect(failed.stderr).toMatch(/turntable: the handler's postprocess failed: .*undefined.* \[HTTP 500\]\n$/);
  });

  test('turntable try reports in one line what is wrong with a folder', async () => {
    const none = await turntableHere(['try', dir]);
    expect(none.stderr).toMatch(/^turntable: .*function\.json cannot be read: .*\n$/);
    writeFileSync(join(folder('language'), 'function.json'), '{"sloo": "1s"}');
    expect((await turntableHere(['try', folder('language'), '-'])).stderr).toMatch(
      /^turntable: .*function\.json: .*sloo.*\n$/,
    );
  });
});
