import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { turntable } from '../../test/cli/command.ts';
import type { Outcome } from '../../test/support/run-command.ts';
import { writeReluModel } from '../../test/support/models.ts';
import type { CpuProfile } from '../cpu/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../onnx/index.ts';

let folder: string;
let modelPath: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-profile-'));
  modelPath = await writeReluModel(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function profile(...words: string[]): Promise<Outcome> {
  const quick = ['--cpu', '--samples', '3', '--batch-max', '2', '--data', join(folder, 'data')];
  return await turntable(['profile', ...words, ...quick]);
}

test('a profile is kept and printed again, planners read it, and --force measures again', async () => {
  const first = await profile(modelPath, '--json');
  expect(first.stderr).toBe('');
  const measured = JSON.parse(first.stdout) as CpuProfile;
  expect(measured.pool.batches).toEqual([1, 2]);

  const again = JSON.parse((await profile(modelPath, '--json')).stdout) as CpuProfile;
  expect(again).toEqual(measured);
  const text = (await profile(modelPath)).stdout;
  expect(text).toContain('kept from an earlier run');
  expect(text).toContain('THREADS');

  const file = join(folder, 'profile.json');
  await writeFile(file, first.stdout);
  const plan = await turntable(['plan', 'packrat', '--profile', file, '--json']);
  expect(JSON.parse(plan.stdout)).toMatchObject([{ batch: 1 }, { batch: 2 }]);
  const rates = await turntable(['plan', 'serf', '--profile', file, '--json']);
  expect((JSON.parse(rates.stdout) as unknown[]).length).toBe(10);

  const anew = JSON.parse((await profile(modelPath, '--json', '--force')).stdout) as CpuProfile;
  expect(anew.measuredAt).not.toBe(measured.measuredAt);
});

test.each([1, 3])('what a model with a fixed batch of %d cost is kept as well', async (rows) => {
  const graph = new GraphBuilder('fixed');
  const x = graph.input('x', ElementType.FLOAT, [rows, 2]);
  graph.output(graph.node('Relu', [x]), ElementType.FLOAT, [rows, 2], 'y');
  const path = join(folder, `fixed-${rows}.onnx`);
  await writeModel(graph.build(), path);
  const first = JSON.parse((await profile(path, '--json')).stdout) as CpuProfile;
  expect(first.pool.batches).toEqual([rows]);
  expect(JSON.parse((await profile(path, '--json')).stdout)).toEqual(first);
});

test('a folder with a function.json is a function', async () => {
  await writeFile(join(folder, 'function.json'), JSON.stringify({ model: 'relu.onnx' }));
  const { stdout, exitCode } = await profile(folder, '--json');
  expect(exitCode).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ provenance: 'measured' });
});

test('a model that cannot be measured gives one sentence', async () => {
  const unknown = await profile('nobody');
  expect(unknown.stderr).toContain("there is no function 'nobody'");
  expect((await profile(join(folder, 'none.onnx'))).stderr).toContain('there is no file or folder of that name');
  expect((await profile(modelPath, '--dim', 'sequence=3')).stderr).toContain("no open dimension 'sequence'");
  const where = await turntable(['profile', modelPath]);
  expect(where).toMatchObject({ exitCode: 2 });
  expect(where.stderr).toContain('--cpu');
  const rows = await turntable(['profile', modelPath, '--cpu', '--batch-max', '131072']);
  expect(rows).toMatchObject({ exitCode: 2 });
  expect(rows.stderr).toContain('--batch-max is 131072, but at most 65536');
  const size = await profile(modelPath, '--dim', 'sequence');
  expect(size.stderr).toContain('--dim takes name=size');
});
