/**
 * The requests of Triton's example gRPC clients (simple_grpc_*.py, grpc_explicit_*.py, client.js), and their checks of
 * the answers.
 */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { credentials, Metadata, type ChannelCredentials, type Client, type ServiceError } from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';
import { ElementType } from '../../src/onnx/index.ts';
import { bytesElements, packBytes } from '../../src/tensor/index.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { addFunction, identity, simple } from '../support/triton-functions.ts';

interface Reply {
  readonly ready?: boolean;
  readonly config: { readonly max_batch_size: number };
  readonly outputs: readonly { readonly name: string; readonly datatype: string; readonly shape: readonly string[] }[];
  readonly raw_output_contents: readonly Buffer[];
}

type Call = (method: string, request: object) => Promise<Reply>;

let folder: string;
let host: ReluHost;
let client: Client;
let call: Call;

function connect(channel: ChannelCredentials): [Client, Call] {
  const made = new (serviceOf(loadProtos(), 'inference', 'GRPCInferenceService'))(
    `localhost:${host.grpcPort}`,
    channel,
  );
  type Method = (request: object, metadata: Metadata, done: (error: ServiceError | null, reply: Reply) => void) => void;
  const methods = made as unknown as Record<string, Method>;
  return [
    made,
    (method, request) =>
      new Promise((resolve, reject) =>
        methods[method]!.call(made, request, new Metadata(), (error, reply) =>
          error === null ? resolve(reply) : reject(error),
        ),
      ),
  ];
}

// Over TLS, so that everything is tested that way.
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-grpc-tls-'));
  const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
  execFileSync(
    'openssl',
    // prettier-ignore
    ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', keyFile, '-out', certFile, '-days', '2', '-subj', '/CN=localhost'],
    { stdio: 'ignore' },
  );
  host = await startReluHost([], {
    flags: { 'grpc.port': '0', 'listen.tlsCert': certFile, 'listen.tlsKey': keyFile },
    prepare: async (functions) => {
      await addFunction(functions, 'simple', simple(ElementType.INT32), {});
      await addFunction(functions, 'simple_int8', simple(ElementType.INT8), {});
      await addFunction(functions, 'simple_string', simple(ElementType.STRING), {});
      await addFunction(
        functions,
        'simple_identity',
        identity('strings', 'INPUT0', 'OUTPUT0', ElementType.STRING, 'n'),
        {},
      );
      await addFunction(functions, 'classes', identity('classes', 'data', 'scores', ElementType.FLOAT, 4), {
        labels: '@labels.txt',
      });
    },
  });
  [client, call] = connect(credentials.createSsl(await readFile(certFile)));
});
afterAll(async () => {
  client?.close();
  await host?.[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

const upTo16 = Array.from({ length: 16 }, (_, index) => index);
const ones = upTo16.map(() => 1);
const sums = upTo16.map((value) => value + 1);
const differences = upTo16.map((value) => value - 1);

/** Both inputs of a model `simple...`; `contents` makes them from numbers. */
function inputs(datatype: string, contents?: (numbers: readonly number[]) => object): object[] {
  return [upTo16, ones].map((numbers, at) => ({
    name: `INPUT${at}`,
    datatype,
    shape: [1, 16],
    contents: contents?.(numbers),
  }));
}
const asBytes = (numbers: readonly number[]): object => ({
  bytes_contents: numbers.map((each) => Buffer.from(String(each))),
});
const wanted = [{ name: 'OUTPUT0' }, { name: 'OUTPUT1' }];

const int32Of = (bytes: Buffer): number[] => [...new Int32Array(new Uint8Array(bytes).buffer)];
const textsOf = (bytes: Buffer): string[] =>
  Array.from(bytesElements({ name: '', datatype: 'BYTES', shape: [], data: bytes }), (each) =>
    Buffer.from(each).toString(),
  );

describe("Triton's clients over gRPC and TLS", () => {
  test('client.js, grpc_explicit_int_content_client.py: typed contents', async () => {
    const request = {
      model_name: 'simple',
      inputs: inputs('INT32', (numbers) => ({ int_contents: numbers })),
      outputs: wanted,
    };
    const { outputs, raw_output_contents: raw } = await call('ModelInfer', request);
    expect(outputs.map(({ name, shape }) => [name, shape.map(Number)])).toEqual([
      ['OUTPUT0', [1, 16]],
      ['OUTPUT1', [1, 16]],
    ]);
    expect(raw.map(int32Of)).toEqual([sums, differences]);
  });

  test('simple_grpc_infer_client.py: raw contents, and a single output', async () => {
    const raw = [upTo16, ones].map((numbers) => Buffer.from(Int32Array.from(numbers).buffer));
    const request = { model_name: 'simple', inputs: inputs('INT32'), raw_input_contents: raw };
    const both = await call('ModelInfer', { ...request, outputs: wanted });
    expect(both.raw_output_contents.map(int32Of)).toEqual([sums, differences]);
    const second = await call('ModelInfer', { ...request, outputs: [{ name: 'OUTPUT1' }] });
    expect(second.outputs.map(({ name }) => name)).toEqual(['OUTPUT1']);
    expect(second.raw_output_contents.map(int32Of)).toEqual([differences]);
  });

  test('grpc_explicit_int8_content_client.py: 8-bit values in a list of 32-bit ones', async () => {
    const request = { model_name: 'simple_int8', inputs: inputs('INT8', (numbers) => ({ int_contents: numbers })) };
    const { raw_output_contents: raw } = await call('ModelInfer', request);
    expect(raw.map((bytes) => Array.from(new Int8Array(new Uint8Array(bytes).buffer)))).toEqual([sums, differences]);
  });

  test('grpc_explicit_byte_content_client.py, simple_grpc_string_infer_client.py: strings', async () => {
    const explicit = await call('ModelInfer', { model_name: 'simple_string', inputs: inputs('BYTES', asBytes) });
    expect(explicit.raw_output_contents.map(textsOf)).toEqual([sums.map(String), differences.map(String)]);
    const raw = [upTo16, ones].map((numbers) => Buffer.from(packBytes(numbers.map(String))));
    const second = await call('ModelInfer', {
      model_name: 'simple_string',
      inputs: inputs('BYTES'),
      raw_input_contents: raw,
    });
    expect(second.raw_output_contents).toEqual(explicit.raw_output_contents);
    const nul = {
      name: 'INPUT0',
      datatype: 'BYTES',
      shape: [1, 1],
      contents: { bytes_contents: [Buffer.from('he\0llo')] },
    };
    await expect(call('ModelInfer', { model_name: 'simple_identity', inputs: [nul] })).rejects.toMatchObject({
      details: expect.stringContaining("'INPUT0': element 0 holds a NUL byte") as string,
    });
  });

  test('grpc_image_client.py: the highest classes with their labels', async () => {
    const contents = { fp32_contents: [0.5, 3, -1, 2] };
    const { outputs, raw_output_contents: raw } = await call('ModelInfer', {
      model_name: 'classes',
      inputs: [{ name: 'data', datatype: 'FP32', shape: [1, 4], contents }],
      outputs: [{ name: 'scores', parameters: { classification: { int64_param: 2 } } }],
    });
    expect(outputs).toMatchObject([{ name: 'scores', datatype: 'BYTES', shape: ['1', '2'] }]);
    expect(textsOf(raw[0]!)).toEqual(['3.000000:1:dog', '2.000000:3:cow']);
  });

  test('simple_grpc_model_control.py: load with a config, unload, and an unknown model', async () => {
    const load = (model: string, config?: string): Promise<Reply> =>
      call('RepositoryModelLoad', {
        model_name: model,
        parameters: config === undefined ? {} : { config: { string_param: config } },
      });
    await load('simple');
    await expect(load('simple', '"parameters": {"config": {{"max_batch_size": "16"}}}')).rejects.toMatchObject({
      details: expect.stringContaining('failed to load') as string,
    });
    await load('simple', '{"max_batch_size":"16"}');
    expect((await call('ModelConfig', { name: 'simple' })).config.max_batch_size).toBe(16);
    await call('RepositoryModelUnload', { model_name: 'simple' });
    expect((await call('ModelReady', { name: 'simple' })).ready).toBe(false);
    await expect(load('wrong_model_name')).rejects.toMatchObject({
      details: expect.stringContaining('failed to load') as string,
    });
  });

  test('a client without TLS gets no answer', async () => {
    const [plain, ask] = connect(credentials.createInsecure());
    await expect(ask('ServerLive', {})).rejects.toMatchObject({ code: 14 });
    plain.close();
  });
});
