import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Verdicts } from './verdicts.ts';
import { shaped } from '../../../test/support/shapes.ts';

let folder: string;
beforeAll(async () => void (folder = await mkdtemp(join(tmpdir(), 'turntable-verdicts-'))));
afterAll(() => rm(folder, { recursive: true, force: true }));

const model = { key: 'f@1', modelSha256: 'a', modelBytes: 1, externalDataStamp: '' };

test('a verdict holds only for its engine, model and shapes', async () => {
  const shapes = shaped({ x: [1, 2], y: [3] });
  await new Verdicts(folder, 'H200; engine 1').keep(model, { shapes }, { kind: 'agreed' });
  const found = (engine: string, of = model, subject = shapes) =>
    new Verdicts(folder, engine).find(of, { shapes: subject });
  expect(await found('H200; engine 1')).toEqual({ kind: 'agreed' });
  expect(await found('H200; engine 1', model, shaped({ y: [3], x: [1, 2] }))).toEqual({ kind: 'agreed' });
  expect(await found('H200; engine 2')).toBeUndefined();
  expect(await found('H200; engine 1', { ...model, modelSha256: 'b' })).toBeUndefined();
  expect(await found('H200; engine 1', model, shaped({ x: [2, 2], y: [3] }))).toBeUndefined();
});
