/** The store with the real validator and real models: published models can be opened at the registry's path. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Validator, type DiskModelStore } from '../../src/host/store/index.ts';
import type { FunctionVersion } from '../../src/host/types.ts';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { failureOf, storeFixture, streamOf, type StoreFixture } from './store-fixtures.ts';

let made: string;
let fixture: StoreFixture;
let validator: Validator;
let store: DiskModelStore;

beforeAll(async () => {
  made = mkdtempSync(join(tmpdir(), 'turntable-made-'));
  for (const seed of [1, 2]) {
    const { model } = buildArchitecture('mlp', { layers: 2, input: 8, hidden: 32, output: 3 }, seed);
    await writeModel(model, join(made, `single-${seed}.onnx`));
    await writeModel(model, join(made, `split-${seed}.onnx`), { externalData: 'always' });
  }
  fixture = storeFixture();
  validator = new Validator({ timeoutMs: 20_000 });
  store = fixture.again({ validate: validator.validate });
  await store.start();
});

afterAll(() => {
  validator.stop();
  fixture[Symbol.dispose]();
  rmSync(made, { recursive: true });
});

const fileOf = (name: string): Buffer => readFileSync(join(made, name));

async function publishFiles(name: string, files: Readonly<Record<string, Buffer>>): Promise<FunctionVersion> {
  const publication = await store.beginPublish(name, undefined);
  try {
    for (const [filename, content] of Object.entries(files)) await publication.writeFile(filename, streamOf(content));
    return (await publication.commit({})).version;
  } finally {
    await publication.abort();
  }
}

/** The three outputs for a row of ones. */
async function outputOf(modelPath: string): Promise<number[]> {
  const session = await InferenceSession.create(modelPath, { intraOpNumThreads: 1 });
  const { output } = await session.run({ input: new Tensor('float32', new Float32Array(8).fill(1), [1, 8]) });
  await session.release();
  return [...((output?.data as Float32Array | undefined) ?? [])];
}

test('a published model is described and computes the same as the original', async () => {
  const version = await publishFiles('single', { 'model.onnx': fileOf('single-1.onnx') });
  expect(version).toMatchObject({
    state: { status: 'ready' },
    metadata: {
      inputs: [{ name: 'input', datatype: 'FP32', shape: [-1, 8], dimensionNames: ['batch', undefined] }],
      outputs: [{ name: 'output', datatype: 'FP32', shape: [-1, 3] }],
      parameterCount: 8 * 32 + 32 + 32 * 3 + 3,
    },
  });
  const output = await outputOf(version.modelPath);
  expect(output).toHaveLength(3);
  expect(output).toEqual(await outputOf(join(made, 'single-1.onnx')));
});

test('a model with external data computes the same, and versions keep their weights apart', async () => {
  const first = await publishFiles('split', {
    'split-1.onnx.data': fileOf('split-1.onnx.data'),
    'model.onnx': fileOf('split-1.onnx'),
  });
  const second = await publishFiles('split', {
    'model.onnx': fileOf('split-2.onnx'),
    'split-2.onnx.data': fileOf('split-2.onnx.data'),
  });
  expect(await outputOf(first.modelPath)).toEqual(await outputOf(join(made, 'single-1.onnx')));
  expect(await outputOf(second.modelPath)).toEqual(await outputOf(join(made, 'single-2.onnx')));
  expect(first.modelBytes).toBe(fileOf('split-1.onnx').byteLength + fileOf('split-1.onnx.data').byteLength);
});

test('a model with forgotten or needless weights is refused, and nothing changes', async () => {
  const forgotten = await failureOf(publishFiles('lost', { 'model.onnx': fileOf('split-1.onnx') }));
  expect(forgotten.code).toBe('model-refused');
  expect(forgotten.message).toContain('split-1.onnx.data');
  const needless = await failureOf(
    publishFiles('lost', { 'model.onnx': fileOf('single-1.onnx'), 'split-1.onnx.data': fileOf('split-1.onnx.data') }),
  );
  expect(needless.code).toBe('bad-request');
  const short = await failureOf(
    publishFiles('lost', {
      'model.onnx': fileOf('split-1.onnx'),
      'split-1.onnx.data': fileOf('split-1.onnx.data').subarray(0, 70),
    }),
  );
  expect(short.code).toBe('model-refused');
  expect(short.message).toContain('split-1.onnx.data');
  expect(store.find('lost')).toBeUndefined();
});

test('a folder function is served from its folder, and after an upload from the store', async () => {
  fixture.writeFunction('both', { 'function.json': { slo: '50ms' }, 'model.onnx': fileOf('single-1.onnx') });
  await store.reload('both');
  const shipped = store.find('both');
  expect([shipped?.source, shipped?.state.status]).toEqual(['folder', 'ready']);
  const uploaded = await publishFiles('both', { 'model.onnx': fileOf('single-2.onnx') });
  expect(uploaded.settings.sloMs).toBe(50);
  expect(await outputOf(uploaded.modelPath)).toEqual(await outputOf(join(made, 'single-2.onnx')));
});

test('a restart serves all of it again without the validator', async () => {
  const again = fixture.again({ validate: () => Promise.reject(new Error('not needed')) });
  await again.start();
  await again.verified();
  expect(again.names()).toEqual(store.names());
  for (const name of again.names()) expect(again.versions(name)).toEqual(store.versions(name));
});
