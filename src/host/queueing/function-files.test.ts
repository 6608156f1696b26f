import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { FakeStore, functionVersion } from '../../../test/host/fake-store.ts';
import { modelOf, writeOdd } from '../../../test/support/odd-models.ts';
import { describeModel } from '../../onnx/index.ts';
import { createLogger } from '../records/logger.ts';
import { FunctionFiles } from './function-files.ts';

test('workers are told how a model is opened whose file is not opened as it is, and which share no process', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-function-files-'));
  const odd = modelOf(
    { stages: [], edges: ['a BF16 output', 'an optional input that is given'], fault: undefined },
    true,
  );
  const modelPath = await writeOdd(odd, folder);
  const { size } = await stat(modelPath);
  const store = new FakeStore();
  const files = new FunctionFiles({
    registry: store,
    store: { put: async () => await Promise.resolve() },
    logger: createLogger({ level: 'silent', format: 'json' }),
  });
  const version = functionVersion('odd', { modelPath, modelBytes: size, metadata: describeModel(odd.build()) });
  store.put(version);
  store.put({ ...version, name: 'plain', key: 'plain@1', metadata: functionVersion('plain').metadata });
  store.put({ ...version, name: 'apart', key: 'apart@1', settings: { ...version.settings, isolation: 'own' } });
  await vi.waitFor(() => expect(files.manifests()).toHaveLength(3));
  expect(files.manifestOf('odd@1')!.opening).toEqual({
    isMended: true,
    bfloat16Outputs: ['bf'],
    optionalInputs: ['over'],
  });
  expect(files.manifestOf('plain@1')).not.toHaveProperty('opening');
  expect(files.manifestOf('apart@1')).toMatchObject({ isolation: 'own' });
  expect(files.manifestOf('odd@1')).not.toHaveProperty('isolation');
  expect(new Set(files.manifests().map(({ revision }) => revision)).size).toBe(3);
  await rm(folder, { recursive: true });
});
