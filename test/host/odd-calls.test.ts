/** What is odd about a model, as clients see it: optional inputs, unknown rank, names of sizes, outputs that are no tensors. */
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { credentials, type Client, type ServiceError } from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Turntable } from '../../src/client/index.ts';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';
import { ElementType, nodeProto, serializeModel, type ModelProto } from '../../src/onnx/index.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { runCommand } from '../support/run-command.ts';
import { modelOf, OddModel } from '../support/odd-models.ts';

const { FLOAT } = ElementType;

const ofFloats = (name: string, sizes?: readonly string[]) => ({
  name,
  type: {
    tensorType: { elemType: FLOAT, ...(sizes && { shape: { dim: sizes.map((dimParam) => ({ dimParam })) } }) },
  },
});

/** y = x + w, where w is 10 if a call does not give it. */
function optional(): ModelProto {
  const model = new OddModel(true);
  model.inputs.push(ofFloats('w', ['k']));
  model.weight({ name: 'w', dims: [1n], dataType: FLOAT, floatData: [10] });
  model.add('Add', ['x', 'w'], {}, '', ['y']);
  model.output('y', ofFloats('y', ['n']).type);
  return model.build();
}

/** y = a + b, both of `n` numbers. */
function agreeing(): ModelProto {
  const model = new OddModel(true);
  model.inputs.splice(0, 1, ofFloats('a', ['n']), ofFloats('b', ['n']));
  model.add('Add', ['a', 'b'], {}, '', ['y']);
  model.output('y', ofFloats('y', ['m']).type);
  return model.build();
}

/** y = -x for any rank. */
function ranked(): ModelProto {
  const model = new OddModel(true);
  model.inputs[0] = ofFloats('x');
  model.add('Neg', ['x'], {}, '', ['y']);
  model.output('y', ofFloats('y').type);
  return model.build();
}

const handler = `
export function preprocess(request) {
  const { x, w } = request.json();
  const given = (name, values) => ({ name, datatype: 'FP32', shape: [values.length], data: values });
  return [given('x', x), ...(w === undefined ? [] : [given('w', w)])];
}
export const postprocess = ([y]) => ({ y: [...y.data] });
`;

let host: ReluHost;
let redis: RedisServer | undefined;
let client: Client;

beforeAll(async () => {
  redis = redisMissing === undefined ? await RedisServer.start() : undefined;
  const functions: readonly (readonly [string, ModelProto, object])[] = [
    ['optional', optional(), { slo: '60s', batching: { max: 8, delay: '50ms' } }],
    ['handled', optional(), { slo: '60s', handler: 'handler.mjs' }],
    ['agreeing', agreeing(), { slo: '60s' }],
    ['ranked', ranked(), { slo: '60s', batching: { max: 4 } }],
  ];
  host = await startReluHost([], {
    flags: { 'grpc.port': '0', ...(redis === undefined ? {} : { 'redis.url': redis.url }) },
    prepare: async (folder) => {
      for (const [name, model, settings] of functions) {
        await mkdir(join(folder, name), { recursive: true });
        await writeFile(join(folder, name, 'model.onnx'), serializeModel(model));
        await writeFile(join(folder, name, 'handler.mjs'), handler);
        await writeFile(join(folder, name, 'function.json'), JSON.stringify(settings));
      }
    },
  });
  const service = serviceOf(loadProtos(), 'inference', 'GRPCInferenceService');
  client = new service(`127.0.0.1:${host.grpcPort}`, credentials.createInsecure());
}, 60_000);
afterAll(async () => {
  client.close();
  await host[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
});

const floats = (name: string, data: readonly number[], shape: readonly number[] = [data.length]) => ({
  name,
  datatype: 'FP32',
  shape,
  data,
});

interface Reply {
  readonly status: number;
  readonly body: {
    readonly outputs: readonly { readonly data: number[]; readonly shape: number[] }[];
    readonly error: string;
  };
}

async function infer(name: string, ...inputs: readonly object[]): Promise<Reply> {
  const reply = await fetch(`${host.url}/v2/models/${name}/infer`, {
    method: 'POST',
    body: JSON.stringify({ inputs }),
  });
  return { status: reply.status, body: (await reply.json()) as Reply['body'] };
}

async function inferred(name: string, ...inputs: readonly object[]): Promise<number[]> {
  const { status, body } = await infer(name, ...inputs);
  if (status !== 200) throw new Error(`${status}: ${body.error}`);
  return body.outputs[0]!.data;
}

const jsonOf = async (path: string): Promise<Record<string, unknown>> =>
  (await (await fetch(host.url + path)).json()) as Record<string, unknown>;

function grpc(method: string, request: object): Promise<unknown> {
  type Method = (request: object, callback: (error: ServiceError | null, reply: never) => void) => void;
  return new Promise((resolve, reject) => {
    (client as unknown as Record<string, Method>)[method]!(request, (error, reply) =>
      error === null ? resolve(reply) : reject(error),
    );
  });
}

const raw = (value: number): Buffer => Buffer.from(Float32Array.of(value).buffer);

async function sumOverGrpc(inputs: readonly object[], contents: readonly Buffer[]): Promise<number> {
  const reply = await grpc('ModelInfer', { model_name: 'optional', inputs, raw_input_contents: contents });
  return (reply as { raw_output_contents: Buffer[] }).raw_output_contents[0]!.readFloatLE(0);
}

const put = (name: string, model: ModelProto): Promise<Response> =>
  fetch(`${host.url}/functions/${name}`, { method: 'PUT', body: new Uint8Array(serializeModel(model)) });

describe('an optional input', () => {
  test('is listed as such, over HTTP and gRPC', async () => {
    const x = { name: 'x', datatype: 'FP32', shape: [-1] };
    const w = { name: 'w', datatype: 'FP32', shape: [-1], optional: true };
    expect((await jsonOf('/v2/models/optional'))['inputs']).toEqual([x, w]);
    expect((await jsonOf('/functions/optional'))['inputs']).toEqual([
      { ...x, shape: ['n'] },
      { ...w, shape: ['k'] },
    ]);
    expect(await jsonOf('/v2/models/optional/config')).toMatchObject({
      max_batch_size: expect.any(Number),
      input: [
        { name: 'x', dims: [] },
        { name: 'w', dims: [-1], optional: true },
      ],
    });
    expect(await grpc('ModelMetadata', { name: 'optional' })).toMatchObject({ inputs: [{ name: 'x' }, { name: 'w' }] });
    expect(await grpc('ModelConfig', { name: 'optional' })).toMatchObject({
      config: {
        input: [{ name: 'x' }, { name: 'w', optional: true }],
      },
    });
  });

  test('counts when it is sent, and has its initializer when it is not', async () => {
    expect(await inferred('optional', floats('x', [1, 2]))).toEqual([11, 12]);
    expect(await inferred('optional', floats('x', [1, 2]), floats('w', [5]))).toEqual([6, 7]);
    expect(await inferred('optional', floats('w', [1, 2, 3]), floats('x', [0]))).toEqual([1, 2, 3]);
    expect(await inferred('optional', floats('x', [1, 2]))).toEqual([11, 12]);
    const call = { method: 'POST', body: JSON.stringify({ inputs: { x: [1], w: [2] } }) };
    expect(await (await fetch(`${host.url}/function/optional`, call)).json()).toEqual({ outputs: { y: [3] } });
    const single = { method: 'POST', body: JSON.stringify({ input: [1] }) };
    expect(await (await fetch(`${host.url}/function/optional`, single)).json()).toEqual({ output: [11] });
    const turntable = new Turntable({ url: host.url });
    const inputs = ['x', 'w'].map((name) => ({
      name,
      datatype: 'FP32' as const,
      shape: [1],
      data: Float32Array.of(name === 'x' ? 1 : 4),
    }));
    const { outputs } = await turntable.infer('optional', { inputs });
    expect([...(outputs[0]!.data as Float32Array)]).toEqual([5]);
  });

  test('is taken over gRPC, and from a handler', async () => {
    const inputs = [
      { name: 'x', datatype: 'FP32', shape: [1] },
      { name: 'w', datatype: 'FP32', shape: [1] },
    ];
    expect(await sumOverGrpc(inputs, [raw(1), raw(2)])).toBe(3);
    expect(await sumOverGrpc(inputs.slice(0, 1), [raw(1)])).toBe(11);
    for (const [body, y] of [
      [{ x: [1], w: [2] }, [3]],
      [{ x: [1] }, [11]],
    ]) {
      const reply = await fetch(`${host.url}/function/handled`, { method: 'POST', body: JSON.stringify(body) });
      expect(await reply.json()).toEqual({ y });
    }
  });

  test('is not mixed up when calls with and without it share an instance', async () => {
    const calls = Array.from({ length: 24 }, async (_, call) => {
      const w = call % 3 === 0 ? undefined : call * 100;
      const given = [floats('x', [call]), ...(w === undefined ? [] : [floats('w', [w])])];
      expect(await inferred('optional', ...given)).toEqual([call + (w ?? 10)]);
    });
    await Promise.all(calls);
  });

  test('is refused by name when it is wrong, and listed when another is asked for', async () => {
    expect(await infer('optional', floats('x', [1]), floats('w', [1, 2], [1, 2]))).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("input 'w' has 2 dimensions, but the model takes 1 dimension [k]") },
    });
    expect(await infer('optional', floats('x', [1]), floats('v', [1]))).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("the model has no input 'v'; it has 'x', 'w'") },
    });
    expect(await infer('optional', floats('w', [1]))).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining("input 'x' (FP32 [n]) is missing") },
    });
  });

  test.skipIf(redisMissing !== undefined)('is kept in an asynchronous call', async () => {
    const accepted = await fetch(`${host.url}/v2/models/optional/infer`, {
      method: 'POST',
      headers: { Prefer: 'respond-async' },
      body: JSON.stringify({ inputs: [floats('x', [1]), floats('w', [7])] }),
    });
    expect(accepted.status).toBe(202);
    for (;;) {
      const reply = await fetch(host.url + accepted.headers.get('location')!);
      if (reply.status === 202) continue;
      expect(await reply.json()).toMatchObject({ outputs: [{ data: [8] }] });
      return;
    }
  });
});

test('an input of unknown rank takes any shape', async () => {
  expect((await jsonOf('/functions/ranked'))['inputs']).toEqual([
    { name: 'x', datatype: 'FP32', shape: [-1], any_rank: true },
  ]);
  expect(await jsonOf('/v2/models/ranked/config')).toMatchObject({ max_batch_size: 0 });
  for (const shape of [[], [1], [1, 1, 1]]) {
    const { status, body } = await infer('ranked', floats('x', [3], shape));
    expect([status, body.outputs[0]]).toMatchObject([200, { shape, data: [-3] }]);
  }
  const calls = Array.from({ length: 8 }, (_, call) => infer('ranked', floats('x', [call + 1], [1, 1])));
  expect((await Promise.all(calls)).map(({ body }) => body.outputs[0]!.data)).toEqual(
    calls.map((_, call) => [-call - 1]),
  );
});

test('sizes of one name may differ where ONNX Runtime runs them; where it does not they explain why', async () => {
  expect(await inferred('agreeing', floats('a', [1, 2]), floats('b', [10]))).toEqual([11, 12]);
  expect(await infer('agreeing', floats('a', [1, 2]), floats('b', [1, 2, 3]))).toMatchObject({
    status: 400,
    body: { error: expect.stringMatching(/^input 'b' has 3 as dimension 0, but 'n' is 2 in input 'a': .*Add/) },
  });
});

describe('a publication', () => {
  test('serves the tensors, names the other outputs, and keeps the file as it is', async () => {
    const odd = modelOf({ stages: [], edges: ['a ZipMap', 'an optional output'], fault: undefined }, true);
    const remarks = [
      "the output 'probability' is a sequence; the tensor that ZipMap makes it of is served in its place",
      "the output 'maybe' is an optional; it is not served",
    ];
    const bytes = serializeModel(odd.build());
    const reply = await fetch(`${host.url}/functions/zip`, { method: 'PUT', body: new Uint8Array(bytes) });
    expect([reply.status, await reply.json()]).toMatchObject([
      201,
      {
        sha256: createHash('sha256').update(bytes).digest('hex'),
        outputs: [{ name: 'probability', datatype: 'FP32', shape: [-1, 2] }, { name: 'y' }],
        remarks,
      },
    ]);
    const { body } = await infer('zip', floats('x', [1, 3, 2, 2]));
    expect(body.outputs).toMatchObject([{ name: 'probability', shape: [2, 2], data: [0.25, 0.75, 0.5, 0.5] }, {}]);
    const turntable = new Turntable({ url: host.url });
    expect(await turntable.publish('zip-again', bytes)).toMatchObject({ created: true, remarks });
  });

  test('by the command prints them, and brings files that the model names with a dot', async () => {
    const odd = modelOf(
      {
        stages: ['weights in a file with a dot', 'an empty tensor in an empty file'],
        edges: ['a sequence without a type'],
        fault: undefined,
      },
      true,
    );
    const folder = join(host.folder, 'files');
    await mkdir(join(folder, 'sub'), { recursive: true });
    for (const [name, bytes] of odd.files) await writeFile(join(folder, name), bytes);
    const path = join(folder, 'model.onnx');
    await writeFile(path, serializeModel(odd.build()));
    const { exitCode, stdout, stderr } = await runCommand(process.execPath, [
      'bin/turntable.js',
      'publish',
      'dotted',
      path,
      '--url',
      host.url,
    ]);
    expect([exitCode, stderr]).toEqual([0, '']);
    expect(stdout).toContain("note: the output 'list' is a sequence; it is not served");
    expect(await inferred('dotted', floats('x', [1, 1, 1, 1]))).toEqual([2, 3, 4, 5]);
  });

  test('without any tensor is refused with what to do', async () => {
    const model = new OddModel(true);
    model.add('SequenceConstruct', ['x'], {}, '', ['list']);
    model.output('list', undefined);
    const reply = await put('none', model.build());
    expect([reply.status, await reply.json()]).toMatchObject([
      422,
      {
        error: expect.stringMatching(
          /it has no output that is a tensor \(the output 'list' is a sequence; it is not served\): export it with tensors .*zipmap=False/,
        ),
      },
    ]);
  });

  test('of an input that is no tensor is refused with what to do', async () => {
    const model = new OddModel(true);
    model.inputs.push({ name: 'maybe', type: { optionalType: { elemType: ofFloats('').type } } });
    model.nodes.push(nodeProto('OptionalGetElement', ['maybe'], ['y']));
    model.output('y', ofFloats('y').type);
    const reply = await put('none', model.build());
    expect([reply.status, await reply.json()]).toMatchObject([
      422,
      {
        error: expect.stringContaining(
          "the input 'maybe' is an optional; only tensors can be served: export the model",
        ),
      },
    ]);
  });
});
