/** The gRPC service as its clients see it: generated clients of the same protos, over real connections. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';
import {
  credentials,
  makeClientConstructor,
  Metadata,
  status,
  type Client,
  type ClientDuplexStream,
  type ClientUnaryCall,
  type ServiceDefinition,
  type ServiceError,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';
import { packageRoot } from '../../src/host/config/options.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

const protos = loadProtos();

/** The fields of any reply that these tests read. */
interface Message {
  readonly [field: string]: unknown;
  readonly inputs: readonly { readonly shape: readonly string[] }[];
  readonly config: { readonly [field: string]: unknown; readonly input: readonly { readonly data_type: string }[] };
  readonly models: readonly { readonly name: string; readonly state: string }[];
  readonly raw_output_contents: readonly Buffer[];
}

interface Reply {
  readonly response: Message;
  readonly metadata: Metadata;
}

interface StreamReply {
  readonly error_message?: string;
  readonly infer_response: Message & {
    readonly id: string;
    readonly parameters: Record<string, { readonly bool_param: boolean }>;
  };
}

type Reflecting = ClientDuplexStream<object, ReflectionAnswer>;

interface ReflectionAnswer {
  readonly listServicesResponse?: { readonly service: readonly { readonly name: string }[] };
  readonly fileDescriptorResponse?: { readonly fileDescriptorProto: readonly Buffer[] };
}

type Method = (
  request: object,
  metadata: Metadata,
  options: object,
  callback: (error: ServiceError | null, response: Message) => void,
) => ClientUnaryCall;

type Caller = (
  method: string,
  request?: object,
  options?: { metadata?: Metadata; deadline?: number },
) => Promise<Reply>;

function callerOf(client: Client): Caller {
  return (method, request = {}, { metadata = new Metadata(), deadline } = {}) =>
    new Promise((resolve, reject) => {
      let received = new Metadata();
      const options = deadline === undefined ? {} : { deadline };
      const methods = client as unknown as Record<string, Method>;
      const call = methods[method]!.call(client, request, metadata, options, (error, response) => {
        if (error !== null) reject(error);
        else resolve({ response, metadata: received });
      });
      call.on('metadata', (given: Metadata) => (received = given));
    });
}

async function failureOf(promise: Promise<unknown>): Promise<ServiceError> {
  return await promise.then(
    () => {
      throw new Error('it should have failed');
    },
    (error: unknown) => error as ServiceError,
  );
}

const key = 'a-key-for-tests';
const withKey = (): Metadata => {
  const metadata = new Metadata();
  metadata.set('authorization', `Bearer ${key}`);
  return metadata;
};

const raw = (...values: number[]): Buffer => Buffer.from(new Float32Array(values).buffer);
const input = { name: 'x', datatype: 'FP32', shape: [1, 4] };
const asked = { model_name: 'relu', inputs: [input], raw_input_contents: [raw(-1, 2, -3, 4)] };
const floats = (bytes: Buffer): number[] => [...new Float32Array(Uint8Array.from(bytes).buffer)];

let host: ReluHost;

async function overHttp(path: string): Promise<{ inputs: { shape: number[] }[]; max_batch_size: number }> {
  return (await (await fetch(`${host.url}/v2/models/relu${path}`)).json()) as never;
}

/** Series that count calls. */
const counting =
  /^(?:nv_inference_(?:request_success|request_failure|count)|turntable_(?:goodput|errors)_total|gateway_function\w*_(?:total|started|count)|modelmesh_\w+_count)\{/;

async function counts(): Promise<Record<string, number>> {
  const text = await (await fetch(`${host.url}/metrics`)).text();
  const lines = text.split('\n').filter((line) => counting.test(line));
  return Object.fromEntries(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]),
  );
}

/** By how much each count of calls grew. */
async function grownBy(work: () => Promise<unknown>): Promise<Record<string, number>> {
  const before = await counts();
  await work();
  const after = await counts();
  const grown = Object.entries(after).map(([series, count]) => [series, count - (before[series] ?? 0)] as const);
  return Object.fromEntries(grown.filter(([, growth]) => growth !== 0));
}

async function post(values: readonly number[]): Promise<unknown> {
  const inputs = [{ ...input, data: values }];
  const headers = { authorization: `Bearer ${key}` };
  const url = `${host.url}/v2/models/relu/infer`;
  return await (await fetch(url, { method: 'POST', headers, body: JSON.stringify({ inputs }) })).text();
}

describe('gRPC', () => {
  let client: Client;
  let call: Caller;

  beforeAll(async () => {
    host = await startReluHost(['relu', 'other'], { apiKeys: [key], flags: { 'grpc.port': '0' } });
    const address = `127.0.0.1:${host.grpcPort}`;
    client = new (serviceOf(protos, 'inference', 'GRPCInferenceService'))(address, credentials.createInsecure());
    call = callerOf(client);
  });

  afterAll(async () => {
    client?.close();
    await host?.[Symbol.asyncDispose]();
  });

  test('the server is live and ready, and describes itself', async () => {
    expect((await call('ServerLive')).response).toMatchObject({ live: true });
    expect((await call('ServerReady')).response).toMatchObject({ ready: true });
    expect((await call('ServerMetadata')).response).toMatchObject({ name: 'turntable' });
  });

  test('a model has metadata, configuration, statistics and an entry in the index, as over HTTP', async () => {
    const { response: metadata } = await call('ModelMetadata', { name: 'relu' });
    expect(metadata).toMatchObject({ name: 'relu', versions: ['1'], platform: 'onnxruntime_onnx' });
    expect(metadata.inputs[0]?.shape.map(Number)).toEqual((await overHttp('')).inputs[0]?.shape);
    const { config } = (await call('ModelConfig', { name: 'relu' })).response;
    expect(config).toMatchObject({ name: 'relu', max_batch_size: (await overHttp('/config')).max_batch_size });
    expect(config.input[0]?.data_type).toBe('TYPE_FP32');
    expect((await call('ModelStatistics', { name: 'relu' })).response.model_stats).toHaveLength(1);
    const { models } = (await call('RepositoryIndex')).response;
    expect(models.map(({ name, state }) => [name, state])).toEqual([
      ['other', 'READY'],
      ['relu', 'READY'],
    ]);
  });

  test('raw and typed contents get the same answer, with placement and times in the metadata', async () => {
    const first = await call('ModelInfer', { ...asked, id: 'seven' });
    expect(first.response).toMatchObject({ model_name: 'relu', model_version: '1', id: 'seven' });
    expect(first.response.outputs).toMatchObject([{ name: 'y', datatype: 'FP32', shape: ['1', '4'] }]);
    expect(floats(first.response.raw_output_contents[0]!)).toEqual([0, 2, 0, 4]);
    expect(first.metadata.get('x-turntable-placement')[0]).toMatch(/^cpu pool/);
    expect(Number(first.metadata.get('x-total-time')[0])).toBeGreaterThan(0);
    const typed = { ...input, contents: { fp32_contents: [-1, 2, -3, 4] } };
    const second = await call('ModelInfer', { model_name: 'relu', inputs: [typed] });
    expect(second.response.raw_output_contents).toEqual(first.response.raw_output_contents);
  });

  test.each([
    [{ ...asked, model_name: 'nobody' }, status.NOT_FOUND, "there is no function 'nobody'"],
    [{ ...asked, model_version: '9' }, status.NOT_FOUND, "function 'relu' has no version '9'"],
    [{ ...asked, inputs: [] }, status.INVALID_ARGUMENT, 'the request has 1 raw_input_contents, but 0 inputs'],
    [{ ...asked, raw_input_contents: [raw(1)] }, status.INVALID_ARGUMENT, "tensor 'x' has 4 bytes of data"],
    [
      { model_name: 'relu', inputs: [{ ...input, contents: { int_contents: [1, 2, 3, 4] } }] },
      status.INVALID_ARGUMENT,
      "input 'x' is FP32, so only fp32_contents may have elements",
    ],
    [
      { ...asked, inputs: [{ ...input, contents: { fp32_contents: [1] } }] },
      status.INVALID_ARGUMENT,
      'only one of the two is allowed',
    ],
    [
      { ...asked, parameters: { sequence_id: { int64_param: 3 } } },
      status.INVALID_ARGUMENT,
      "the parameter 'sequence_id' is not supported",
    ],
    [
      { ...asked, inputs: [{ ...input, parameters: { shared_memory_region: { string_param: 'r' } } }] },
      status.INVALID_ARGUMENT,
      "input 'x' asks for shared memory",
    ],
  ])('bad input is refused with a code and a sentence (%#)', async (request, code, sentence) => {
    const error = await failureOf(call('ModelInfer', request));
    expect(error.code).toBe(code);
    expect(error.details).toContain(sentence);
  });

  test('a deadline that passes while the call waits is reported as such', async () => {
    const error = await failureOf(call('ModelInfer', asked, { deadline: Date.now() - 1 }));
    expect(error.code).toBe(status.DEADLINE_EXCEEDED);
  });

  test("ModelMesh's metadata names the model, whatever the request says", async () => {
    for (const [name, value] of [
      ['mm-vmodel-id', 'other'],
      ['mm-model-id', 'other@1'],
    ] as const) {
      const metadata = new Metadata();
      metadata.set(name, value);
      const { response } = await call('ModelInfer', { ...asked, model_name: 'nobody' }, { metadata });
      expect(response).toMatchObject({ model_name: 'other', model_version: '1' });
    }
  });

  test('requests of a stream are answered by their ids, errors among them, and the stream ends with the last', async () => {
    const methods = client as unknown as { ModelStreamInfer(): ClientDuplexStream<object, StreamReply> };
    const stream = methods.ModelStreamInfer();
    const replies: StreamReply[] = [];
    stream.on('data', (reply: StreamReply) => replies.push(reply));
    const ended = new Promise((resolve, reject) => stream.on('end', resolve).on('error', reject));
    for (let id = 0; id < 20; id++) {
      const request =
        id === 7 ? { ...asked, model_name: 'nobody' } : { ...asked, raw_input_contents: [raw(id, -1, 0, 0)] };
      stream.write({ ...request, id: String(id) });
    }
    stream.end();
    await ended;
    const byId = new Map(replies.map((reply) => [Number(reply.infer_response.id), reply]));
    expect(byId.size).toBe(20);
    expect(byId.get(7)?.error_message).toContain("there is no function 'nobody'");
    byId.delete(7);
    for (const [id, { infer_response: response }] of byId) {
      expect(floats(response.raw_output_contents[0]!)).toEqual([id, 0, 0, 0]);
      expect(response.parameters['triton_final_response']?.bool_param).toBe(true);
    }
  });

  test("load and unload need the key, and change the model's readiness", async () => {
    expect((await failureOf(call('RepositoryModelUnload', { model_name: 'other' }))).code).toBe(status.UNAUTHENTICATED);
    for (const [method, ready] of [
      ['RepositoryModelUnload', false],
      ['RepositoryModelLoad', true],
    ] as const) {
      await call(method, { model_name: 'other' }, { metadata: withKey() });
      expect((await call('ModelReady', { name: 'other' })).response).toMatchObject({ ready });
    }
  });

  test.each(['v1', 'v1alpha'])('reflection %s lists the services and describes them', async (version) => {
    const pkg = `grpc.reflection.${version}`;
    const proto = join(packageRoot, 'node_modules/@grpc/reflection/build/proto', pkg.replaceAll('.', '/'));
    const { [`${pkg}.ServerReflection`]: service } = loadSync(join(proto, 'reflection.proto'));
    const reflection = new (makeClientConstructor(service as ServiceDefinition, 'ServerReflection'))(
      `127.0.0.1:${host.grpcPort}`,
      credentials.createInsecure(),
    );
    const { ServerReflectionInfo: open } = reflection as unknown as { ServerReflectionInfo: () => Reflecting };
    const stream = open.call(reflection);
    const answers: ReflectionAnswer[] = [];
    stream.on('data', (answer: ReflectionAnswer) => answers.push(answer));
    stream.write({ listServices: '' });
    stream.write({ fileContainingSymbol: 'inference.GRPCInferenceService' });
    stream.end();
    await once(stream, 'end');
    reflection.close();
    const [list, file] = answers;
    const names = list?.listServicesResponse?.service.map(({ name }) => name);
    expect(names).toContain('inference.GRPCInferenceService');
    const [described] = file?.fileDescriptorResponse?.fileDescriptorProto ?? [];
    expect(String(described)).toContain('ModelStreamInfer');
  });

  test('an answered and a refused call count in the same metrics as over HTTP', async () => {
    const good = await grownBy(() => call('ModelInfer', asked));
    expect(good).toEqual(await grownBy(() => post([-1, 2, -3, 4])));
    expect(Object.keys(good)).toHaveLength(10);
    const refused = await grownBy(() => failureOf(call('ModelInfer', { ...asked, raw_input_contents: [raw(1)] })));
    expect(refused).toEqual(await grownBy(() => post([1])));
    expect(Object.keys(refused)).toHaveLength(8);
  });
});

test('a default port in use is logged, and HTTP serves alone; for a configured one it is a failure', async () => {
  // Two neighbouring ports, the second of them taken.
  let taken = createServer();
  let http = 0;
  for (;;) {
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    http = (taken.address() as { port: number }).port - 1;
    const probe = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      probe.once('error', () => resolve(false));
      probe.listen(http, '127.0.0.1', () => resolve(true));
    });
    await new Promise((resolve) => probe.close(resolve));
    if (isFree) break;
    taken.close();
    taken = createServer();
  }
  {
    await using alone = await startReluHost(['relu'], { flags: { 'listen.port': String(http) } });
    expect(alone.grpcPort).toBeUndefined();
    expect((await fetch(`${alone.url}/v2/health/ready`)).status).toBe(200);
  }
  const flags = { 'listen.port': '0', 'grpc.port': String(http + 1) };
  await expect(startReluHost(['relu'], { flags })).rejects.toMatchObject({ code: 'EADDRINUSE' });
  taken.close();
});
