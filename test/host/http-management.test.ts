/** Managing functions over HTTP: publishing, removing, blobs by hash, and the needed keys. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HostError } from '../../src/host/errors.ts';
import { sha256Of } from './fake-store.ts';
import { RawClient } from './raw-client.ts';
import { errorOf, inferBody, postTo, startTestHost, type TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await startTestHost();
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

function put(
  path: string,
  body: Uint8Array | FormData | string,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(host.url + path, { method: 'PUT', body: body as string, headers });
}

describe('publishing', () => {
  const model = Buffer.from('the bytes of a model');

  test('takes the file as the body and the settings from the query', async () => {
    const reply = await put('/functions/fresh?slo=50ms&batching.max=8&version=3', model);
    expect(reply.status).toBe(201);
    expect(reply.headers.get('location')).toBe('/function/fresh/versions/3');
    expect(await reply.json()).toMatchObject({
      name: 'fresh',
      version: '3',
      sha256: sha256Of(model),
      bytes: model.byteLength,
    });
    expect(host.store.uploads.at(-1)).toMatchObject({ settings: { slo: '50ms', 'batching.max': '8', version: '3' } });
    expect((await put('/functions/fresh', model, { 'Content-Type': 'application/x-www-form-urlencoded' })).status).toBe(
      200,
    );
    expect((await postTo(host, '/function/fresh', { input: [[1, 2]] })).status).toBe(200);
  });

  test('takes a form with settings and external data', async () => {
    const form = new FormData();
    form.set('model', new Blob([model]), 'whatever.onnx');
    form.set('weights', new Blob(['w'.repeat(100_000)]), 'weights/a.bin');
    form.set('settings', JSON.stringify({ slo: '1s', batching: { max: 2 } }));
    const reply = await put('/functions/formed', form);
    expect([reply.status, await reply.text()]).toEqual([201, expect.any(String)]);
    const upload = host.store.uploads.at(-1)!;
    expect([...upload.files].map(([name, bytes]) => [name, bytes.byteLength])).toEqual([
      ['model.onnx', model.byteLength],
      ['weights/a.bin', 100_000],
    ]);
    expect(upload.settings).toEqual({ slo: '1s', batching: { max: 2 } });
  });

  test('takes a stored blob by its hash', async () => {
    const sha256 = sha256Of(model);
    const digest = `sha256:${sha256}`;
    expect((await fetch(`${host.url}/blobs/${digest}`, { method: 'HEAD' })).status).toBe(404);
    expect((await postTo(host, `/blobs/${digest}`, model)).status).toBe(201);
    expect((await postTo(host, `/blobs/${digest}`, model)).status).toBe(200);
    expect((await fetch(`${host.url}/blobs/${digest}`, { method: 'HEAD' })).status).toBe(200);
    expect((await put(`/functions/by-hash?model=${digest}`, '')).status).toBe(201);
    const asJson = await put('/functions/by-json', JSON.stringify({ model: digest, slo: '5ms' }), {
      'Content-Type': 'application/json',
    });
    expect(asJson.status).toBe(201);
    expect(await errorOf(await put(`/functions/x?model=sha256:${'0'.repeat(64)}`, ''))).toMatchObject({
      code: 'unknown-blob',
    });
    expect(await errorOf(await postTo(host, `/blobs/sha256:${'0'.repeat(64)}`, 'x'))).toMatchObject({
      code: 'digest-mismatch',
    });
    expect(await errorOf(await postTo(host, '/blobs/md5:00', 'x'))).toMatchObject({ status: 400 });
  });

  const refusals: [string, string, Uint8Array | FormData | string, Record<string, string>, string][] = [
    ['an empty body', '/functions/e', '', {}, 'bad-request'],
    ['a name that is taken by another upload', '/functions/busy', model, {}, 'publish-in-progress'],
    ['a setting twice', '/functions/e?slo=1s&slo=2s', model, {}, 'bad-settings'],
    ['a body and a blob', `/functions/e?model=sha256:${'0'.repeat(64)}`, model, {}, 'bad-request'],
    ['JSON that is none', '/functions/e', '{', { 'Content-Type': 'application/json' }, 'bad-json'],
    ['JSON without a model', '/functions/e', '{}', { 'Content-Type': 'application/json' }, 'bad-request'],
    ['a form without a boundary', '/functions/e', 'x', { 'Content-Type': 'multipart/form-data' }, 'bad-request'],
    ['a form that is cut short', '/functions/e', '--b\r\nContent-Disposition: form-data; name="model"; filename="m"\r\n\r\nabc', { 'Content-Type': 'multipart/form-data; boundary=b' }, 'bad-request'],
    ['an upload with an encoding', '/functions/e', model, { 'Content-Encoding': 'gzip' }, 'unsupported-media-type'],
    ['a file over the limit', '/functions/e', Buffer.alloc(500_000), {}, 'body-too-large'],
  ]; // prettier-ignore
  test.each(refusals)('refuses %s', async (_what, path, body, headers, code) => {
    const before = host.store.find('e');
    expect(await errorOf(await put(path, body, headers))).toMatchObject({ code });
    expect(host.store.find('e')).toBe(before);
  });

  test('tells a client that sends JSON without a model what to send', async () => {
    const reply = await put('/functions/e', '{"slo":"1s"}', { 'Content-Type': 'application/json' });
    expect((await errorOf(reply)).error).toMatch(/no 'model'; send the model itself as the body/);
  });

  test('makes the store drop an upload that the validator refused', async () => {
    host.store.refusal = new HostError('model-refused', 'it is not an ONNX model');
    expect(await errorOf(await put('/functions/bad', model))).toMatchObject({
      status: 422,
      error: 'it is not an ONNX model',
    });
    host.store.refusal = undefined;
    expect(host.store.uploads.at(-1)!.aborted).toBe(true);
  });

  test('and removing', async () => {
    await put('/functions/short-lived', model);
    expect((await fetch(`${host.url}/functions/short-lived/versions/1`, { method: 'DELETE' })).status).toBe(204);
    expect((await fetch(`${host.url}/functions/short-lived`, { method: 'DELETE' })).status).toBe(404);
  });
});

/** Status line of a removal with these headers, which `fetch` would not send. */
async function removalWith(headers: string): Promise<string> {
  const client = new RawClient(host.server.port);
  client.write(`DELETE /functions/none HTTP/1.1\r\nConnection: close\r\n${headers}\r\n\r\n`);
  return (await client.toEnd()).split('\r\n')[0] ?? '';
}

describe('management', () => {
  test('needs one of the keys if there are any', async () => {
    await using guarded = await startTestHost({ config: { apiKeys: ['first-key', 'second-key'] } });
    const remove = (headers: Record<string, string>): Promise<Response> =>
      fetch(`${guarded.url}/functions/pair`, { method: 'DELETE', headers });
    const without = await remove({});
    expect(without.headers.get('www-authenticate')).toBe('Bearer');
    expect(await errorOf(without)).toMatchObject({ status: 401, code: 'unauthorized' });
    for (const authorization of [
      'Bearer wrong',
      'Bearer first-ke',
      'Basic first-key',
      'Bearer ',
      'Bearer first-key second-key',
    ]) {
      expect(await errorOf(await remove({ authorization }))).toMatchObject({ status: 401, code: 'unauthorized' });
    }
    for (const [method, path] of [
      ['PUT', '/functions/x'],
      ['POST', `/blobs/sha256:${'0'.repeat(64)}`],
      ['POST', '/v2/repository/models/pair/load'],
      ['POST', '/v2/repository/models/pair/unload'],
    ] as const) {
      expect((await fetch(guarded.url + path, { method })).status).toBe(401);
    }
    expect((await postTo(guarded, '/v2/models/pair/infer', inferBody)).status).toBe(200);
    expect((await remove({ authorization: 'bearer second-key' })).status).toBe(204);
  });

  test('without keys refuses web pages of other origins and foreign host names', async () => {
    expect(await removalWith('Host: evil.example')).toContain('403');
    expect(await removalWith('Host: localhost.evil.example')).toContain('403');
    expect(await removalWith('Host: 127.0.0.1:8000\r\nOrigin: http://evil.example')).toContain('403');
    expect(await removalWith('Host: localhost:8000\r\nSec-Fetch-Site: cross-site')).toContain('403');
    expect(await removalWith('Host: localhost:8000\r\nOrigin: null')).toContain('403');
    expect(
      await removalWith('Host: localhost:8000\r\nOrigin: http://localhost:8000\r\nSec-Fetch-Site: same-origin'),
    ).toContain('404');
    expect(await removalWith('Host: [::1]:8000')).toContain('404');
  });
});
