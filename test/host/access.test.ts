/** Every route and every gRPC method requires its scope; keys and limits hold for both. */
import { credentials, Metadata, status, type Client, type ServiceError } from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { apiKeyEntry } from '../../src/host/access/api-keys.ts';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';
import { routes } from '../../src/host/http/routes.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

/** Open without a key in every configuration; everything else is in one of the lists below. */
const openPaths = new Set([
  '/',
  '/dashboard/:file',
  '/healthz',
  '/openapi.json',
  '/v2',
  '/v2/health/live',
  '/v2/health/ready',
]);
const invoking =
  /^[A-Z]+ \/function\/|^(POST|GET) \/async-function\/|^POST \/v2\/models\/.*\/infer$|^DELETE \/async-function\/:id$/;
/** Reads that show what clients sent, or what is stored. */
const managedReading = new Set(['GET /async-function', 'GET /blobs/:digest', 'GET /functions/:name/log']);
const readingPosts = /^POST \/v2\/(repository\/index$|(system|cuda)sharedmemory\/)/;

function scopeWanted(method: string, path: string): string {
  const route = `${method} ${path}`;
  if (method === 'GET' && openPaths.has(path)) return 'open';
  if (invoking.test(route)) return 'invoke';
  if (managedReading.has(route)) return 'publish';
  return method === 'GET' || readingPosts.test(route) ? 'read' : 'publish';
}

const keys = { invoke: 'may-invoke', publish: 'may-publish', read: 'may-read' };
const key = Object.entries(keys).map(([scope, text]) => apiKeyEntry(`for-${scope}`, [scope], text));
const input = { name: 'x', datatype: 'FP32', shape: [1, 4], contents: { fp32_contents: [1, 2, 3, 4] } };
let host: ReluHost;
beforeAll(async () => {
  host = await startReluHost(['relu'], {
    apiKeys: key,
    flags: { 'grpc.port': '0', apiKeysFor: 'publish,invoke,read', 'cpu.profiling': 'off' },
  });
});
afterAll(async () => {
  await host?.[Symbol.asyncDispose]();
});

test('every route has the scope of its kind', () => {
  expect(routes.length).toBeGreaterThan(60);
  const wrong = routes.filter(({ method, path, scope }) => scope !== scopeWanted(method, path));
  expect(wrong.map(({ method, path, scope }) => `${method} ${path}: ${scope}`)).toEqual([]);
});

const guarded = routes.filter(({ scope }) => scope !== 'open');
const strangers = [undefined, 'a-wrong-key'];
const granted = Object.keys(keys) as (keyof typeof keys)[];

const ask = async (method: string, path: string, given?: string): Promise<number> => {
  // The stream of events has no end.
  const controller = new AbortController();
  const headers = given === undefined ? undefined : { authorization: `Bearer ${given}` };
  const url = host.url + path.replaceAll(/:\w+/g, 'nothing-of-the-kind');
  const { status: code } = await fetch(url, { method, signal: controller.signal, ...(headers && { headers }) });
  controller.abort();
  return code;
};

describe('over HTTP', () => {
  test.each([...openPaths].filter((path) => path !== '/'))('GET %s is open to everyone', async (path) => {
    expect([401, 403]).not.toContain(await ask('GET', path));
  });

  test('the page is open to everyone, its text form with names of functions only to readers', async () => {
    expect([await ask('GET', '/'), await ask('GET', '/', keys.read)]).toEqual([401, 200]);
  });

  test.each(guarded.map(({ method, path, scope }) => [method, path, scope] as const))(
    '%s %s is for keys with the scope %s only',
    async (method, path, scope) => {
      const refused = await Promise.all(strangers.map((text) => ask(method, path, text)));
      expect(refused).toEqual([401, 401]);
      const codes = await Promise.all(granted.map((each) => ask(method, path, keys[each])));
      expect(granted.filter((_, at) => codes[at] !== 403)).toEqual([scope]);
    },
  );
});

/** How a method answers a caller with this key. */
async function codeOf(client: Client, method: string, text?: string): Promise<status> {
  const metadata = new Metadata();
  if (text !== undefined) metadata.set('authorization', `Bearer ${text}`);
  const request = method === 'ModelInfer' ? { model_name: 'relu', inputs: [input] } : {};
  return await new Promise((resolve) => {
    const call = (client as unknown as Record<string, (...args: unknown[]) => void>)[method]!.bind(client);
    call(request, metadata, (error: ServiceError | null) => resolve(error?.code ?? status.OK));
  });
}

describe('over gRPC', () => {
  const protos = loadProtos();
  const wanted: Readonly<Record<string, keyof typeof keys | 'open'>> = {
    ServerLive: 'open',
    ServerReady: 'open',
    ServerMetadata: 'open',
    ModelInfer: 'invoke',
    RepositoryModelLoad: 'publish',
    RepositoryModelUnload: 'publish',
  };
  const service = serviceOf(protos, 'inference', 'GRPCInferenceService');
  const methods = Object.entries(service.service)
    .filter(([, { responseStream }]) => !responseStream)
    .map(([method]) => method);
  const clients: Client[] = [];
  afterAll(() => {
    for (const client of clients) client.close();
  });

  const scopeOf = (method: string): string => wanted[method] ?? 'read';
  const connect = (): Client => {
    const client = new service(`127.0.0.1:${host.grpcPort}`, credentials.createInsecure());
    clients.push(client);
    return client;
  };

  test.each(methods.filter((method) => scopeOf(method) === 'open'))('%s is open to everyone', async (method) => {
    expect(await codeOf(connect(), method)).toBe(status.OK);
  });

  test.each(methods.filter((method) => scopeOf(method) !== 'open'))(
    '%s is for keys with its scope only',
    async (method) => {
      const client = connect();
      const refused = await Promise.all(strangers.map((text) => codeOf(client, method, text)));
      expect(refused).toEqual([status.UNAUTHENTICATED, status.UNAUTHENTICATED]);
      const codes = await Promise.all(granted.map((each) => codeOf(client, method, keys[each])));
      expect(granted.filter((_, at) => codes[at] !== status.PERMISSION_DENIED)).toEqual([scopeOf(method)]);
    },
  );
});

test('one rate limit counts HTTP and gRPC together: 429 with Retry-After, and RESOURCE_EXHAUSTED', async () => {
  await using limited = await startReluHost(['relu'], {
    flags: { 'grpc.port': '0', 'rate.perAddress': '1', 'cpu.profiling': 'off' },
  });
  // One a second: of so many at once, over both, all but the first are refused, unless a second passes between two of
  // them.
  const replies = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const reply = await fetch(`${limited.url}/function/relu`, { method: 'POST', body: '{"input":[[1,2,3,4]]}' });
      return [reply.status, reply.headers.get('retry-after'), reply.headers.get('x-turntable-error')].join(' ');
    }),
  );
  expect(new Set(replies)).toEqual(new Set(['200  ', '429 1 rate-limited']));
  expect((await fetch(`${limited.url}/v2/health/live`)).status).toBe(200);
  const client = new (serviceOf(loadProtos(), 'inference', 'GRPCInferenceService'))(
    `127.0.0.1:${limited.grpcPort}`,
    credentials.createInsecure(),
  ) as unknown as Client & { ModelInfer(request: object, done: (error: ServiceError | null) => void): void };
  const codes = await Promise.all(
    Array.from(
      { length: 20 },
      () =>
        new Promise<ServiceError | null>((resolve) => {
          client.ModelInfer({ model_name: 'relu', inputs: [input] }, resolve);
        }),
    ),
  );
  client.close();
  const refused = codes.find((error) => error?.code === status.RESOURCE_EXHAUSTED);
  expect(refused?.details).toBe('this address has sent more requests a second than this host takes');
  expect(refused?.metadata.get('retry-after')).toEqual(['1']);
});
