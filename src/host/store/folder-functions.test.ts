import { EventEmitter, once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  failureOf,
  metadata,
  publish,
  sha256,
  storeFixture,
  type StoreFixture,
} from '../../../test/host/store-fixtures.ts';
import { HostError } from '../errors.ts';
import type { FunctionVersion, ModelStore, RegistryChange } from '../types.ts';

const handlerSource = `
import { greet } from './lib/greet.ts';
import words from './words.json';
interface Call { text(): string }
export const preprocess = (call: Call) => [greet(call.text()), words.length];
export const postprocess = (tensors: readonly unknown[]) => tensors;
`;

let fixture: StoreFixture;

beforeEach(() => {
  fixture = storeFixture();
});

afterEach(() => {
  fixture[Symbol.dispose]();
});

async function started(): Promise<ModelStore> {
  const store = fixture.again();
  await store.start();
  await store.verified();
  return store;
}

/** Why a function cannot serve; if it can, its actual state. */
function reasonOf(version: FunctionVersion | undefined): string {
  return version?.state.status === 'unavailable' ? version.state.reason : `not unavailable: ${version?.state.status}`;
}

async function reasonFor(files: Parameters<StoreFixture['writeFunction']>[1]): Promise<string> {
  fixture.writeFunction('one', files);
  return reasonOf((await started()).find('one'));
}

describe('functions from folders', () => {
  test('a folder with function.json and a model becomes a function', async () => {
    fixture.writeFunction('one', {
      'function.json': { description: 'first', version: '3', model: 'm/net.onnx', slo: '50ms' },
      'm/net.onnx': 'model',
    });
    const store = await started();
    expect(store.find('one')).toMatchObject({
      key: 'one@3',
      source: 'folder',
      modelPath: join(fixture.functionsDir, 'one', 'm', 'net.onnx'),
      modelSha256: sha256('model'),
      modelBytes: 5,
      handlerPath: undefined,
      metadata,
      state: { status: 'ready' },
      settings: { description: 'first', sloMs: 50, model: 'm/net.onnx' },
    });
  });

  test('an example in a file is named as seen from where the host was started', async () => {
    fixture.writeFunction('one', { 'function.json': { example: '@examples/1.txt' }, 'model.onnx': 'model' });
    const { settings } = (await started()).find('one')!;
    expect(settings.example).toMatch(/^@/);
    expect(resolve(settings.example!.slice(1))).toBe(join(fixture.functionsDir, 'one', 'examples', '1.txt'));
  });

  test('folders that hold no function are passed over', async () => {
    fixture.writeFunction('.hidden', { 'function.json': {}, 'model.onnx': 'm' });
    fixture.writeFunction('_shared', { 'helper.ts': 'export const one = 1;' });
    fixture.writeFunction('notes', { 'README.md': 'm' });
    fixture.writeFunction('Bad Name', { 'function.json': {}, 'model.onnx': 'm' });
    writeFileSync(join(fixture.functionsDir, 'a-file'), 'x');
    expect((await started()).names()).toEqual([]);
    expect(fixture.log).toEqual([expect.objectContaining({ level: 'warn', fields: { folder: 'Bad Name' } })]);
  });

  test('a missing functions folder means no functions', async () => {
    rmSync(fixture.functionsDir, { recursive: true });
    expect((await started()).names()).toEqual([]);
  });

  test('a model is validated once, and again only when its bytes change', async () => {
    fixture.writeFunction('one', { 'function.json': {}, 'model.onnx': 'model' });
    await started();
    await started();
    expect(fixture.validated).toHaveLength(1);
    fixture.writeFunction('one', { 'model.onnx': 'other' });
    await started();
    expect(fixture.validated).toHaveLength(2);
    expect(readdirSync(join(fixture.dataDir, 'validated'))).toEqual([`${sha256('other')}.json`]);
  });

  test('a remembered verdict ends with the external data that it saw', async () => {
    const validate = (): Promise<{ metadata: typeof metadata; externalFiles: string[] }> => {
      fixture.validated.push('again');
      return Promise.resolve({ metadata, externalFiles: ['weights.bin'] });
    };
    fixture.writeFunction('one', { 'function.json': {}, 'model.onnx': 'model', 'weights.bin': 'aaaa' });
    for (const bytes of ['aaaa', 'aaaa', 'bbbbbb']) {
      fixture.writeFunction('one', { 'weights.bin': bytes });
      const store = fixture.again({ validate });
      await store.start();
      expect(store.find('one')?.modelBytes).toBe(5 + bytes.length);
    }
    expect(fixture.validated).toHaveLength(2);
  });

  test('during validation the function is listed as validating', async () => {
    fixture.writeFunction('one', { 'function.json': {}, 'model.onnx': 'model' });
    const events = new EventEmitter();
    const asked = once(events, 'asked');
    const answered = once(events, 'answered');
    const store = fixture.again({
      validate: async () => {
        events.emit('asked');
        await answered;
        return { metadata, externalFiles: [] };
      },
    });
    const changes: RegistryChange[] = [];
    store.onChange((change) => {
      changes.push(change);
    });
    const starting = store.start();
    await asked;
    expect(store.find('one')?.state).toEqual({ status: 'validating' });
    events.emit('answered');
    await starting;
    expect(changes.map(({ before, after }) => [before?.state.status, after?.state.status])).toEqual([
      [undefined, 'validating'],
      ['validating', 'ready'],
    ]);
  });

  test('a broken folder is an unavailable function, and the host starts with the others', async () => {
    fixture.writeFunction('good', { 'function.json': {}, 'model.onnx': 'm' });
    fixture.writeFunction('torn', { 'function.json': '{"slo": ', 'model.onnx': 'm' });
    fixture.writeFunction('typo', { 'function.json': { sloo: '1s' }, 'model.onnx': 'm' });
    fixture.writeFunction('bare', { 'function.json': {} });
    fixture.writeFunction('out', { 'function.json': { model: '../good/model.onnx' } });
    fixture.writeFunction('dir', { 'function.json': { model: 'sub' }, 'sub/x': '' });
    const store = await started();
    expect(store.find('good')?.state.status).toBe('ready');
    expect(reasonOf(store.find('torn'))).toMatch(/^function\.json: it is not JSON/);
    expect(reasonOf(store.find('typo'))).toBe("function.json: unknown setting 'sloo': did you mean 'slo'?");
    expect(reasonOf(store.find('bare'))).toBe("its model 'model.onnx' does not exist");
    expect(reasonOf(store.find('out'))).toContain("'../good/model.onnx', which is outside the function's folder");
    expect(reasonOf(store.find('dir'))).toBe("its model 'sub' cannot be read");
    expect(fixture.log.filter(({ level }) => level === 'error')).toHaveLength(5);
  });

  test('a refused model makes its function unavailable with the validators reason', async () => {
    fixture.writeFunction('one', { 'function.json': {}, 'model.onnx': 'model' });
    const store = fixture.again({
      validate: () => Promise.reject(new HostError('model-refused', 'the model was refused: no outputs')),
    });
    await store.start();
    expect(reasonOf(store.find('one'))).toBe('the model was refused: no outputs');
    expect(fixture.log.at(-1)).toMatchObject({ level: 'error', fields: { function: 'one@1' } });
  });
});

describe('handlers', () => {
  test('a TypeScript handler is bundled with what it imports, and runs', async () => {
    fixture.writeFunction('one', {
      'function.json': { handler: 'handler.ts' },
      'model.onnx': 'model',
      'handler.ts': handlerSource,
      'lib/greet.ts': 'export const greet = (who: string): string => `hello ${who}`;\n',
      'words.json': ['a', 'b'],
    });
    const path = (await started()).find('one')?.handlerPath ?? '';
    expect(path.startsWith(join(fixture.dataDir, 'handlers', 'one-'))).toBe(true);
    const handler = (await import(pathToFileURL(path).href)) as { preprocess(call: unknown): unknown };
    expect(handler.preprocess({ text: () => 'you' })).toEqual(['hello you', 2]);
  });

  test('a handler finds the files beside its source, though it runs from elsewhere', async () => {
    fixture.writeFunction('one', {
      'function.json': { handler: 'handler.mjs' },
      'model.onnx': 'model',
      'handler.mjs': `import { readFileSync } from 'node:fs';
import { inner } from './lib/inner.js';
export const preprocess = () => [readFileSync(new URL('./labels.txt', import.meta.url), 'utf8'), inner(), import.meta.dirname];
export const postprocess = () => null;`,
      'lib/inner.js': 'export const inner = () => import.meta.filename;',
      'labels.txt': 'cat,dog',
    });
    const path = (await started()).find('one')?.handlerPath ?? '';
    const handler = (await import(pathToFileURL(path).href)) as { preprocess(): unknown };
    const folder = join(fixture.functionsDir, 'one');
    expect(handler.preprocess()).toEqual(['cat,dog', join(folder, 'lib', 'inner.js'), folder]);
  });

  test('a package of the functions folder alone is bundled, CommonJS and its require included', async () => {
    fixture.writeFunction('one', {
      'function.json': { handler: 'handler.js' },
      'model.onnx': 'model',
      'handler.js': `import { createRequire } from 'node:module';
import { shout } from 'only-here';
const require = createRequire(import.meta.url);
export const preprocess = () => [shout('a'), require('./words.json').length];
export const postprocess = () => null;`,
      'words.json': ['a', 'b', 'c'],
      'node_modules/only-here/package.json': { name: 'only-here', version: '1.0.0', main: 'index.js' },
      'node_modules/only-here/index.js':
        "const { sep } = require('node:path'); exports.shout = (text) => text.toUpperCase() + sep;",
    });
    const path = (await started()).find('one')?.handlerPath ?? '';
    const handler = (await import(pathToFileURL(path).href)) as { preprocess(): unknown };
    expect(handler.preprocess()).toEqual(['A/', 3]);
  });

  test('a default export will do, from CommonJS too', async () => {
    const model = { 'model.onnx': 'model' };
    fixture.writeFunction('esm', {
      ...model,
      'function.json': { handler: 'handler.js' },
      'handler.js': 'export default { preprocess: () => [], postprocess: () => null };',
    });
    fixture.writeFunction('cjs', {
      ...model,
      'function.json': { handler: 'handler.js' },
      'handler.js': 'module.exports = { preprocess: () => [], postprocess: () => null };',
    });
    const store = await started();
    expect(store.names().map((name) => store.find(name)?.state.status)).toEqual(['ready', 'ready']);
  });

  test('a handler that does not compile makes the function unavailable, with place and message', async () => {
    const reason = await reasonFor({
      'function.json': { handler: 'handler.ts' },
      'model.onnx': 'model',
      'handler.ts': 'export const preprocess = 1;\nexport const postprocess = (;\n',
    });
    expect(reason).toMatch(/^handler 'handler\.ts' does not compile: handler\.ts:2:29: Unexpected ";"/);
  });

  test('an import that is not there makes the function unavailable by its name', async () => {
    const reason = await reasonFor({
      'function.json': { handler: 'handler.ts' },
      'model.onnx': 'model',
      'handler.ts': "import 'not-installed-anywhere';\nexport const preprocess = 1;\nexport const postprocess = 2;\n",
    });
    expect(reason).toContain('Could not resolve "not-installed-anywhere"');
  });

  test('a handler that lacks an export, a file or the folder is named', async () => {
    const model = { 'model.onnx': 'model' };
    const lacking = { ...model, 'function.json': { handler: 'h.ts' }, 'h.ts': 'export const preprocess = 1;' };
    expect(await reasonFor(lacking)).toBe("handler 'h.ts' does not export postprocess");
    expect(await reasonFor({ 'function.json': { handler: 'gone.ts' } })).toBe("handler 'gone.ts' does not exist");
    const outside = "is outside the function's folder";
    expect(await reasonFor({ 'function.json': { handler: '../h.ts' } })).toBe(`handler '../h.ts' ${outside}`);
    writeFileSync(join(fixture.root, 'h.ts'), 'export const preprocess = 1;');
    symlinkSync(join(fixture.root, 'h.ts'), join(fixture.functionsDir, 'one', 'link.ts'));
    expect(await reasonFor({ 'function.json': { handler: 'link.ts' } })).toBe(`handler 'link.ts' ${outside}`);
    const absolute = join(fixture.functionsDir, 'one', 'h.ts');
    expect(await reasonFor({ 'function.json': { handler: absolute } })).toBe(`handler '${absolute}' ${outside}`);
  });

  test('unused compiled handlers are removed at start', async () => {
    mkdirSync(join(fixture.dataDir, 'handlers'), { recursive: true });
    writeFileSync(join(fixture.dataDir, 'handlers', 'old-0123.mjs'), '');
    await started();
    expect(readdirSync(join(fixture.dataDir, 'handlers'))).toEqual([]);
  });
});

describe('uploads over a folder function', () => {
  const folder = {
    'function.json': { handler: 'handler.ts', slo: '50ms', batching: { max: 8 } },
    'model.onnx': 'shipped',
    'handler.ts': 'export const preprocess = () => [];\nexport const postprocess = () => 1;\n',
  };

  test("an upload takes precedence over the folder, and keeps the folder's handler and unset settings", async () => {
    fixture.writeFunction('one', folder);
    const store = await started();
    const { version } = await publish(store, 'one', 'better', { settings: { slo: '20ms' } });
    expect(version).toMatchObject({
      key: 'one@2',
      source: 'upload',
      handlerPath: store.find('one', '1')?.handlerPath,
      settings: { sloMs: 20, handler: 'handler.ts', batching: { batchMax: 8 } },
    });
    const again = await started();
    expect(again.versions('one')).toEqual(store.versions('one'));
    expect(again.find('one')).toEqual(version);
  });

  test("uploading the folder's own bytes gives the folder's version", async () => {
    fixture.writeFunction('one', folder);
    const store = await started();
    const { version, created } = await publish(store, 'one', 'shipped');
    expect([version.key, version.source, created]).toEqual(['one@1', 'folder', false]);
    expect((await publish(store, 'one', 'shipped', { settings: { slo: '1s' } })).created).toBe(true);
  });

  test('the folders own version can neither be published nor removed', async () => {
    fixture.writeFunction('one', folder);
    const store = await started();
    expect((await failureOf(store.beginPublish('one', '1'))).code).toBe('folder-function');
    expect((await failureOf(publish(store, 'one', 'x', { settings: { version: '1' } }))).code).toBe('folder-function');
    expect((await failureOf(store.remove('one', '1'))).code).toBe('folder-function');
    await publish(store, 'one', 'better');
    expect((await failureOf(store.remove('one', undefined))).code).toBe('folder-function');
    expect(store.versions('one')).toHaveLength(2);
    await store.remove('one', '2');
    expect(store.find('one')?.source).toBe('folder');
  });

  test('a reload applies an edited handler to the uploads; a broken edit is refused while they go on serving', async () => {
    fixture.writeFunction('one', folder);
    const store = await started();
    const { version } = await publish(store, 'one', 'better');
    fixture.writeFunction('one', { 'handler.ts': 'export const preprocess = 2;\nexport const postprocess = 2;\n' });
    await store.reload('one');
    const edited = store.find('one');
    expect(edited?.state.status).toBe('ready');
    expect(edited?.handlerPath).not.toBe(version.handlerPath);
    expect(edited?.handlerPath).toBe(store.find('one', '1')?.handlerPath);
    fixture.writeFunction('one', { 'handler.ts': 'export const preprocess = 2;\n' });
    expect((await failureOf(store.reload('one'))).message).toBe(
      "the folder of function 'one' was not taken over: handler 'handler.ts' does not export postprocess; what served before goes on serving",
    );
    fixture.writeFunction('one', { 'function.json': '{' });
    expect((await failureOf(store.reload('one'))).message).toContain('function.json: it is not JSON');
    expect(store.find('one')).toEqual(edited);
  });
});

describe('reload', () => {
  test('a broken model does not replace the serving one, and a repaired one does', async () => {
    let refuses = false;
    fixture.writeFunction('one', { 'function.json': {}, 'model.onnx': 'good' });
    const store = fixture.again({
      validate: async () => {
        if (refuses) throw new HostError('model-refused', 'the model was refused: it is truncated');
        return await Promise.resolve({ metadata, externalFiles: [] });
      },
    });
    await store.start();
    const before = store.find('one');
    refuses = true;
    fixture.writeFunction('one', { 'model.onnx': 'go' });
    expect(await failureOf(store.reload('one'))).toMatchObject({ code: 'model-refused' });
    expect(store.find('one')).toEqual(before);
    refuses = false;
    await store.reload('one');
    expect(store.find('one')).toMatchObject({ modelSha256: sha256('go'), state: { status: 'ready' } });
  });

  test('an edit, a new folder and a folder that is gone all take effect', async () => {
    fixture.writeFunction('one', { 'function.json': { slo: '50ms' }, 'model.onnx': 'a' });
    const store = await started();
    fixture.writeFunction('one', { 'function.json': { slo: '60ms', version: '2' }, 'model.onnx': 'b' });
    fixture.writeFunction('two', { 'function.json': {}, 'model.onnx': 'c' });
    await store.reload('one');
    await store.reload('two');
    expect(
      store.versions('one').map(({ version, settings, modelSha256 }) => [version, settings.sloMs, modelSha256]),
    ).toEqual([['2', 60, sha256('b')]]);
    expect(store.find('two')?.state.status).toBe('ready');
    rmSync(join(fixture.functionsDir, 'one'), { recursive: true });
    await store.reload('one');
    expect(store.names()).toEqual(['two']);
    expect((await failureOf(store.reload('one'))).code).toBe('unknown-function');
  });

  test('an upload without a folder has nothing to reload, and stays', async () => {
    const store = await started();
    const { version } = await publish(store, 'echo', 'a');
    await store.reload('echo');
    expect(store.find('echo')).toBe(version);
  });

  test("an upload hidden by the folder's version is back when the folder has another version", async () => {
    fixture.writeFunction('one', { 'function.json': {}, 'model.onnx': 'a' });
    const store = await started();
    const { version } = await publish(store, 'one', 'b', { version: '2' });
    fixture.writeFunction('one', { 'function.json': { version: '2' } });
    await store.reload('one');
    expect(store.versions('one').map(({ key, source }) => [key, source])).toEqual([['one@2', 'folder']]);
    expect(fixture.log.some(({ message }) => message.includes('hides an upload'))).toBe(true);
    fixture.writeFunction('one', { 'function.json': { version: '1' } });
    await store.reload('one');
    expect(store.find('one')).toEqual(version);
    expect(readFileSync(version.modelPath, 'utf8')).toBe('b');
  });
});
