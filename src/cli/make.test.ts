import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, watch, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Ajv } from 'ajv';
import * as ort from 'onnxruntime-node';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { architectures, describeModel, readModel } from '../onnx/index.ts';
import { makeCommand } from './make.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-make-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
  vi.restoreAllMocks();
});

/** Runs the command and returns what it printed. */
async function make(...argv: string[]): Promise<string> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  await makeCommand().exitOverride().parseAsync(argv, { from: 'user' });
  const printed = log.mock.calls.map((line) => String(line[0])).join('\n');
  log.mockRestore();
  return printed;
}

/** Ends a call that makes a large model into a folder that exists, once it has begun to write. */
async function endWhileMaking(out: string, signal: NodeJS.Signals): Promise<void> {
  const staged = new Promise<void>((seen) => {
    const watcher = watch(out, (_event, file) => {
      if (file?.startsWith('.make-') !== true) return;
      watcher.close();
      seen();
    });
  });
  const argv = [resolve('bin/turntable.js'), 'make', 'vgg16', '--out', out, '--force'];
  const child = spawn(process.execPath, argv, { stdio: 'ignore' });
  const exited = once(child, 'exit');
  await Promise.race([staged, exited]);
  child.kill(signal);
  expect(await exited).toEqual([null, signal]);
}

// More threads spin while they wait for work.
const oneThread = { intraOpNumThreads: 1 };
const tiny = ['--set', 'layers=2', 'hidden=8', 'input=4', '--set', 'output=3'];
const sha256 = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

describe('turntable make', () => {
  test('turntable make writes a function folder that ONNX Runtime can run and the schema of function.json allows', async () => {
    const out = join(folder, 'nested', 'small');
    const printed = await make('mlp', '--out', out, '--slo', '50ms', ...tiny);
    expect(printed).toMatch(/wrote .*model\.onnx: 67 parameters, \d+ B in .*\nwrote .*function\.json/);
    expect(readdirSync(out).sort()).toEqual(['function.json', 'model.onnx']);
    const session = await ort.InferenceSession.create(join(out, 'model.onnx'), oneThread);
    const result = await session.run({ input: new ort.Tensor('float32', new Float32Array(8).fill(1), [2, 4]) });
    expect(result['output']?.dims).toEqual([2, 3]);
    const settings: unknown = JSON.parse(readFileSync(join(out, 'function.json'), 'utf8'));
    const schema = JSON.parse(readFileSync(resolve('wrangler-free-config/function.schema.json'), 'utf8')) as object;
    const validate = new Ajv({ allowUnionTypes: true }).compile(schema);
    expect([validate(settings), validate.errors]).toEqual([true, null]);
    expect(settings).toMatchObject({ model: 'model.onnx', slo: '50ms' });
  });

  test('the same seed gives the same bytes, another seed others', async () => {
    const hashes = new Map<string, string>();
    for (const [out, seed] of [
      ['a', '4'],
      ['b', '4'],
      ['c', '5'],
    ] as const) {
      await make('lstm', '--out', join(folder, out), '--seed', seed, '--set', 'layers=2', 'sequence=3', 'hidden=8');
      hashes.set(out, sha256(join(folder, out, 'model.onnx')));
    }
    expect(hashes.get('b')).toBe(hashes.get('a'));
    expect(hashes.get('c')).not.toBe(hashes.get('a'));
  });

  test('--external puts the weights beside the model', async () => {
    const [beside, inside] = [join(folder, 'beside'), join(folder, 'inside')];
    await make('mlp', '--out', beside, '--external', '--set', 'hidden=64', 'layers=3');
    await make('mlp', '--out', inside, '--set', 'hidden=64', 'layers=3');
    expect(readdirSync(beside).sort()).toEqual(['function.json', 'model.onnx', 'model.onnx.data']);
    const feeds = { input: new ort.Tensor('float32', new Float32Array(1024).fill(0.5), [1, 1024]) };
    const [left, right] = await Promise.all(
      [beside, inside].map(async (out) =>
        (await ort.InferenceSession.create(join(out, 'model.onnx'), oneThread)).run(feeds),
      ),
    );
    expect(left!['output']!.data).toEqual(right!['output']!.data);
  });

  test('an existing model is overwritten only with --force, its function.json never', async () => {
    const out = join(folder, 'kept');
    await make('mlp', '--out', out, '--external', '--set', 'hidden=64');
    const before = sha256(join(out, 'model.onnx'));
    writeFileSync(join(out, 'function.json'), '{"slo": "7ms"}');
    await expect(make('mlp', '--out', out, ...tiny)).rejects.toThrow(/model\.onnx exists already; --force/);
    expect(sha256(join(out, 'model.onnx'))).toBe(before);
    expect(await make('mlp', '--out', out, '--force', ...tiny)).toMatch(/kept .*function\.json/);
    expect(readdirSync(out).sort()).toEqual(['function.json', 'model.onnx']);
    expect(readFileSync(join(out, 'function.json'), 'utf8')).toBe('{"slo": "7ms"}');
    expect(describeModel(await readModel(join(out, 'model.onnx'))).parameterCount).toBe(67);
  });

  test('a fixed batch size forbids batching', async () => {
    await make('mlp', '--out', join(folder, 'fixed'), ...tiny, '--set', 'batch=2');
    const text = readFileSync(join(folder, 'fixed', 'function.json'), 'utf8');
    expect(JSON.parse(text)).toMatchObject({ batching: { max: 1 } });
  });

  test('an interrupted call leaves no files', async () => {
    const out = join(folder, 'interrupted');
    await make('mlp', '--out', out, ...tiny);
    const before = readdirSync(out).sort();
    const beforeHash = sha256(join(out, 'model.onnx'));
    await endWhileMaking(out, 'SIGTERM');
    expect(readdirSync(out).sort()).toEqual(before);
    expect(sha256(join(out, 'model.onnx'))).toBe(beforeHash);
  });

  test('the next call removes what a killed call left behind', async () => {
    const out = join(folder, 'killed');
    await make('mlp', '--out', out, ...tiny);
    await endWhileMaking(out, 'SIGKILL');
    expect(readdirSync(out).filter((name) => name.startsWith('.make-'))).toHaveLength(1);
    const ofSomebodyElse = `.make-${process.pid}-0123456789ab`;
    mkdirSync(join(out, ofSomebodyElse));
    await make('mlp', '--out', out, '--force', ...tiny);
    expect(readdirSync(out).sort()).toEqual([ofSomebodyElse, 'function.json', 'model.onnx']);
  });

  test.each<[mistake: string, argv: string[], message: RegExp]>([
    ['no architecture', ['--out', 'x'], /no architecture is named/],
    ['an unknown architecture', ['bert', '--out', 'x'], /no architecture 'bert'; there are bert-base, .*mlp/],
    ['a name behind --set', ['--out', 'x', '--set', 'layers=1', 'mlp'], /--set is "mlp", but must be key=value/],
    ['no folder', ['mlp'], /--out is missing/],
    ['an unknown setting', ['mlp', '--out', 'x', '--set', 'width=3'], /mlp has no setting 'width'; it has layers/],
    ['a bad value', ['mlp', '--out', 'x', '--set', 'layers=0'], /'layers' of mlp is '0', but takes an integer from 1/],
    ['a setting without value', ['mlp', '--out', 'x', '--set', 'layers'], /--set is "layers", but must be key=value/],
    ['a setting twice', ['mlp', '--out', 'x', '--set', 'layers=1', 'layers=2'], /--set names "layers" twice/],
    ['a bad seed', ['mlp', '--out', 'x', '--seed', '-1'], /--seed.*'-1' is invalid/],
    ['a bad SLO', ['mlp', '--out', 'x', '--slo', 'soon'], /--slo is 'soon'/],
  ])('%s is refused by name, and nothing is written', async (_mistake, argv, message) => {
    await expect(make(...argv)).rejects.toThrow(message);
    expect(existsSync('x')).toBe(false);
  });

  test('a folder that is a file, and a model larger than the disk, are refused', async () => {
    writeFileSync(join(folder, 'file'), '');
    await expect(make('mlp', '--out', join(folder, 'file'), ...tiny)).rejects.toThrow(/folder .*file cannot be made/);
    const huge = ['--set', 'hidden=10000000', 'layers=3'];
    await expect(make('mlp', '--out', join(folder, 'huge'), ...huge)).rejects.toThrow(/takes 400 TB, but only/);
    expect(readdirSync(join(folder, 'huge'))).toEqual([]);
  });
});

describe('turntable make --list', () => {
  test('turntable make --list names every architecture with its parameters', async () => {
    const printed = await make('--list');
    for (const { name } of architectures) expect(printed).toContain(`\n${name} `);
    expect(printed).toContain('109,482,240');
    expect(printed).toMatch(/\nresnet101 +image=224 .*blocks=3,4,23,3/);
  });

  test('turntable make --list with a name lists each setting with its default and its values', async () => {
    const printed = await make('resnet50', '--list');
    expect(printed).toMatch(/\nblocks +3,4,6,3 +4 integers from 1 to 1000/);
  });

  test('--json prints the same as JSON', async () => {
    const all = JSON.parse(await make('--list', '--json')) as { name: string; parameterCount: number }[];
    expect(all.find(({ name }) => name === 'gpt2')?.parameterCount).toBe(124_439_808);
  });
});
