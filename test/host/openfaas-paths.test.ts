/** Paths under which OpenFaaS' gateway passes a call to a function. */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { functionVersion } from './fake-store.ts';
import { errorOf, startTestHost, type TestHost } from './test-host.ts';

let host: TestHost;
beforeAll(async () => {
  host = await startTestHost();
  const handlerPath = '/nowhere/handler.js';
  host.store.put(functionVersion('handled', { handlerPath }));
  host.store.put(functionVersion('handled', { handlerPath, version: '2' }));
  host.store.put(functionVersion('own.openfaas-fn', { handlerPath }));
  host.store.put(functionVersion('own', { handlerPath }));
});
afterAll(async () => {
  await host[Symbol.asyncDispose]();
});

/** The fakes' handler answers with the method, the URL and the body that it sees. */
async function seen(method: string, path: string, body?: string): Promise<[status: number, text: string]> {
  const reply = await fetch(host.url + path, { method, ...(body === undefined ? {} : { body }) });
  return [reply.status, await reply.text()];
}

const keyCalled = (): string => host.pools.invocations.at(-1)!.key;

describe('a function with a handler', () => {
  test.each(['POST', 'PUT', 'PATCH', 'DELETE'])(
    'is called by %s, with its body, at every path below its own',
    async (method) => {
      for (const path of ['', '/', '/sub', '/sub/path/', '/versions', '/a%20b/%2f?q=1&r=%2F', '//x']) {
        const url = `/function/handled${path}`;
        expect(await seen(method, url, 'body')).toEqual([200, `${method} ${url} body`]);
      }
    },
  );

  test('is called by GET at any path, and the handler sees that path as it was sent', async () => {
    const segment = fc.string({
      unit: fc.constantFrom('a', 'Z', '0', '-', '.', '_', '~', '%20', '%2F', '@', ':'),
      minLength: 1,
    });
    const path = fc.array(
      segment.filter((text) => !/^\.{1,2}$/.test(text)),
      { minLength: 1, maxLength: 5 },
    );
    await fc.assert(
      fc.asyncProperty(path, async (segments) => {
        const url = `/function/handled/${segments.join('/')}`;
        expect(await seen('GET', url)).toEqual([200, `GET ${url} `]);
      }),
      { numRuns: 50 },
    );
  });

  test('is called in the version that the path names', async () => {
    await seen('POST', '/function/handled/versions/1', '');
    expect(keyCalled()).toBe('handled@1');
    expect(await seen('POST', '/function/handled/versions/1/sub', 'b')).toEqual([
      200,
      'POST /function/handled/versions/1/sub b',
    ]);
    expect(keyCalled()).toBe('handled@1');
    await seen('POST', '/function/handled/sub', '');
    expect(keyCalled()).toBe('handled@2');
  });
});

test('a plain model answers below its own path as at it', async () => {
  const body = '{"input":[[1,2]]}';
  const [, answer] = await seen('POST', '/function/pair', body);
  expect(answer).toBe('{"output":[[1,2]]}\n');
  for (const path of ['/sub', '/sub/path', '/versions/1/sub']) {
    expect(await seen('POST', `/function/pair${path}`, body)).toEqual([200, answer]);
  }
});

describe('a name with the namespace openfaas-fn', () => {
  test.each(['/function/handled.openfaas-fn', '/function/handled.openfaas-fn/sub/path'])(
    'is the function of that name: %s',
    async (url) => {
      expect(await seen('POST', url, 'b')).toEqual([200, `POST ${url} b`]);
      expect(keyCalled()).toBe('handled@2');
    },
  );

  test('is the function that has all of it as its name, if there is one', async () => {
    await seen('POST', '/function/own.openfaas-fn', '');
    expect(keyCalled()).toBe('own.openfaas-fn@1');
    await seen('POST', '/function/own.openfaas-fn.openfaas-fn/x', '');
    expect(keyCalled()).toBe('own.openfaas-fn@1');
    await seen('POST', '/function/own', '');
    expect(keyCalled()).toBe('own@1');
  });

  test.each(['none.openfaas-fn', 'handled.other', 'handled.openfaas-fn.x', '.openfaas-fn'])(
    'is unknown where there is no such function: %s',
    async (name) => {
      const reply = await fetch(`${host.url}/function/${name}/sub`, { method: 'POST', body: '' });
      expect(await errorOf(reply)).toMatchObject({ status: 404, code: 'unknown-function' });
    },
  );

  test('is asked for asynchronously as well', async () => {
    for (const [path, code] of [
      ['handled.openfaas-fn/sub', 'no-queue'],
      ['handled/sub/path', 'no-queue'],
      ['none.openfaas-fn/sub', 'unknown-function'],
    ]) {
      const reply = await fetch(`${host.url}/async-function/${path}`, { method: 'POST', body: '' });
      expect([path, (await errorOf(reply)).code]).toEqual([path, code]);
    }
  });
});
