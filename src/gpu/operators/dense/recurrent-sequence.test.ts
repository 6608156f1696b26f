import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { buildArchitecture, writeModel } from '../../../onnx/index.ts';
import { compileModel } from '../../program/index.ts';
import { operators } from '../index.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-recurrent-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function launches(hidden: number, sequence: number): Promise<number> {
  const path = join(folder, `lstm-${hidden}-${sequence}.onnx`);
  const { model } = buildArchitecture('lstm', { layers: 1, hidden, sequence });
  await writeModel(model, path);
  const [input] = model.graph.input;
  const shape = input!.type!.tensorType!.shape!.dim.map(({ dimValue }) => Number(dimValue ?? 1n));
  const program = await compileModel(path, [{ name: input!.name, shape }], operators, { cacheFolder: folder });
  return program.launches.length;
}

test('a recurrent layer has as many launches for 50 steps as for 5, unless its weights are too large', async () => {
  expect(await launches(16, 50)).toBe(await launches(16, 5));
  expect(await launches(176, 50)).toBe(await launches(176, 5));
  expect((await launches(192, 50)) - (await launches(192, 5))).toBeGreaterThanOrEqual(2 * 45);
});
