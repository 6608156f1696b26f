/**
 * Every value through the whole host: all datatypes, shapes with zeros, scalars and large ones, over HTTP as JSON and
 * as binary data, over gRPC as raw and as typed contents, asynchronously, in a callback, and by a worker behind Redis,
 * compared with a direct session of ONNX Runtime.
 */
import { EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { credentials, type Client, type ServiceError } from '@grpc/grpc-js';
import { ModelSession } from '../../src/cpu/instance/session.ts';
import { loadProtos, serviceOf } from '../../src/host/grpc/index.ts';
import { describeModel, elementTypeOf, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { PoolTaker, sealManifest } from '../../src/queue/index.ts';
import { OverflowQueue, RedisLink, startRemoteWorker } from '../../src/queue/redis.ts';
import {
  arrayOf,
  bytesElements,
  dataTypes,
  elementBytes,
  elementCount,
  elements,
  packBytes,
  parseDocument,
  runSteps,
  type DataType,
  type JsonForm,
  type JsonText,
  type Tensor,
} from '../../src/tensor/index.ts';
import { given } from '../../src/tools/index.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';
import { silentLog } from '../support/silent-log.ts';
import { tensorText } from '../support/tensor-json.ts';
import { FolderStore } from '../../src/store/index.ts';
import { memberWith } from '../support/test-member.ts';
import { waitLimitMs } from '../time-limits.ts';

const ranks = [0, 1, 3];
/** One input for each datatype and rank. */
const kinds = dataTypes.flatMap((datatype) => ranks.map((rank) => ({ datatype, rank })));
/** Names that objects would reorder or lose. */
const inputNames = kinds.map(({ datatype, rank }, at) => (at === 1 ? 'constructor' : `${datatype} ${rank}`));
const outputNames = kinds.map((_, at) =>
  at === 2 ? '__proto__' : at === 5 ? 'toString' : String((at * 17) % kinds.length),
);

/** Each output is an input. @param wanted which of the kinds */
function model(wanted = kinds): GraphBuilder {
  const graph = new GraphBuilder('same');
  for (const [at, { datatype, rank }] of kinds.entries()) {
    if (!wanted.includes(kinds[at]!)) continue;
    const type = elementTypeOf(datatype);
    const shape = Array.from({ length: rank }, (_, dimension) => `d${at}_${dimension}`);
    const x = graph.input(inputNames[at]!, type, shape);
    graph.output(graph.node('Identity', [x]), type, shape, outputNames[at]);
  }
  return graph;
}

/** Half precision travels in gRPC only as raw bytes. */
const isTyped = ({ datatype }: { readonly datatype: DataType }): boolean => datatype !== 'FP16' && datatype !== 'BF16';

let host: ReluHost;
let folder: string;
let session: ModelSession;
let client: Client;
const ended: (() => unknown)[] = [];
let redis: RedisServer | undefined;

/** Receives callbacks, and emits each with its body. */
class Receiver extends EventEmitter {
  readonly #server = createServer((request, response) => void this.#take(request, response));

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  async start(): Promise<void> {
    await once(this.#server.listen(0, '127.0.0.1'), 'listening');
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    response.end();
    this.emit('called', request, body);
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
const receiver = new Receiver();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-values-'));
  ended.push(() => rm(folder, { recursive: true }));
  const modelPath = join(folder, 'model.onnx');
  await writeModel(model().build(), modelPath);
  const { opening } = describeModel(model().build());
  session = await ModelSession.open(modelPath, { threads: 1, spinning: false, isAlone: false }, opening);
  await receiver.start();
  ended.push(() => receiver.close());
  redis = redisMissing === undefined ? await RedisServer.start() : undefined;
  host = await startReluHost([], {
    flags: {
      'grpc.port': '0',
      ...(redis === undefined ? {} : { 'redis.url': redis.url, 'async.callbackAllow': '127.0.0.1' }),
    },
    prepare: async (functions) => {
      for (const [name, graph] of [
        ['same', model()],
        ['typed', model(kinds.filter(isTyped))],
      ] as const) {
        const place = join(functions, name);
        await mkdir(place, { recursive: true });
        await writeModel(graph.build(), join(place, 'model.onnx'));
        await writeFile(join(place, 'function.json'), JSON.stringify({ slo: '60s' }));
      }
    },
  });
  const service = serviceOf(loadProtos(), 'inference', 'GRPCInferenceService');
  client = new service(`127.0.0.1:${host.grpcPort}`, credentials.createInsecure(), {
    'grpc.max_receive_message_length': -1,
  });
});
afterAll(async () => {
  client.close();
  await host[Symbol.asyncDispose]();
  await redis?.[Symbol.asyncDispose]();
  for (const end of ended.reverse()) await end();
});

/** Any bits, with NaN only in the form that text can give back; strings without NUL. */
function dataOf(datatype: DataType, count: number, bytes: Uint8Array, texts: readonly string[]): Uint8Array {
  if (datatype === 'BYTES') {
    return packBytes(Array.from({ length: count }, (_, index) => texts[index % Math.max(1, texts.length)] ?? ''));
  }
  const filled = Uint8Array.from({ length: count * elementBytes[datatype] }, (_, at) => bytes[at % bytes.length] ?? 7);
  if (datatype === 'BOOL') return filled.map((byte) => byte & 1);
  if (datatype === 'FP16' || datatype === 'BF16') {
    const [infinity, nan] = datatype === 'FP16' ? [0x7c00, 0x7e00] : [0x7f80, 0x7fc0];
    return new Uint8Array(
      new Uint16Array(filled.buffer).map((bits) => ((bits & 0x7fff) > infinity ? nan : bits)).buffer,
    );
  }
  if (datatype !== 'FP32' && datatype !== 'FP64') return filled;
  const values = new arrayOf[datatype](filled.buffer);
  values.forEach((value, index) => {
    if (Number.isNaN(value)) values[index] = NaN;
  });
  return new Uint8Array(values.buffer);
}

const inputs: fc.Arbitrary<Tensor[]> = fc
  .tuple(...kinds.map(() => fc.array(fc.constantFrom(0, 1, 2, 3, 40), { minLength: 3, maxLength: 3 })))
  .chain((sizes) =>
    fc
      .tuple(
        fc.uint8Array({ minLength: 1, maxLength: 64 }),
        fc.array(
          fc.string({ unit: 'grapheme' }).map((text) => text.replaceAll('\0', '')),
          { maxLength: 4 },
        ),
      )
      .map(([bytes, texts]) =>
        kinds.map(({ datatype, rank }, at): Tensor => {
          const shape = sizes[at]!.slice(0, rank);
          const data = dataOf(datatype, elementCount(shape), bytes, texts);
          return { name: inputNames[at]!, datatype, shape, data };
        }),
      ),
  );

interface Shown {
  readonly name: string;
  readonly datatype: string;
  readonly shape: readonly number[];
  /** Hexadecimal digits of binary data, or the JSON text. */
  readonly data: string;
}

const inHex = ({ name, datatype, shape, data }: Tensor): Shown => ({
  name,
  datatype,
  shape,
  data: Buffer.from(data).toString('hex'),
});

const inText = (tensor: Tensor): Shown => ({ ...inHex(tensor), data: tensorText(tensor) });

interface Request {
  readonly method: 'POST';
  readonly body: Buffer<ArrayBuffer>;
  readonly headers: Record<string, string>;
}

/** A request whose tensors are all JSON or all binary data. */
function requestOf(tensors: readonly Tensor[], isBinary: boolean): Request {
  const entries = tensors.map((tensor) => {
    const { name, datatype, shape, data } = tensor;
    const described = JSON.stringify({ name, datatype, shape }).slice(0, -1);
    if (!isBinary) return `${described},"data":${tensorText(tensor)}}`;
    return `${described},"parameters":{"binary_data_size":${data.byteLength}}}`;
  });
  const head = Buffer.from(`{"inputs":[${entries.join()}],"parameters":{"binary_data_output":${isBinary}}}`);
  const payload = isBinary ? tensors.map(({ data }) => data) : [];
  return {
    method: 'POST',
    body: Buffer.concat([head, ...payload]),
    headers: isBinary ? { 'Inference-Header-Content-Length': String(head.byteLength) } : {},
  };
}

async function shownReply(reply: Response): Promise<Shown[]> {
  const { status, headers } = reply;
  const bytes = Buffer.from(await reply.arrayBuffer());
  return shownBody(status, bytes, headers.get('inference-header-content-length') ?? undefined);
}

function shownBody(status: number, bytes: Buffer, headerLength: string | undefined): Shown[] {
  const length = Number(headerLength ?? bytes.byteLength);
  const parsed = runSteps(parseDocument(bytes.subarray(0, length), replyForm)) as {
    outputs: {
      name: string;
      datatype: string;
      shape: number[];
      data?: JsonText;
      parameters?: { binary_data_size: number };
    }[];
  };
  expect({ status, parsed }).toMatchObject({ status: 200 });
  let at = length;
  return parsed.outputs.map(({ name, datatype, shape, data, parameters }) => ({
    name,
    datatype,
    shape,
    data:
      data === undefined
        ? bytes.subarray(at, (at += parameters!.binary_data_size)).toString('hex')
        : data.bytes.toString('utf8', data.start, data.end),
  }));
}

const replyForm: JsonForm = {
  members: new Map([['outputs', { items: { members: new Map([['data', 'tensor']]) } }]]),
};

async function overHttp(tensors: readonly Tensor[], isBinary: boolean): Promise<Shown[]> {
  return await shownReply(await fetch(`${host.url}/v2/models/same/infer`, requestOf(tensors, isBinary)));
}

/** Accepted with 202, then polled until the reply is there. */
async function overAsync(tensors: readonly Tensor[], isBinary: boolean): Promise<Shown[]> {
  const { headers, ...request } = requestOf(tensors, isBinary);
  const accepted = await fetch(`${host.url}/v2/models/same/infer`, {
    ...request,
    headers: { ...headers, Prefer: 'respond-async' },
  });
  expect([accepted.status, await accepted.json()]).toMatchObject([202, { function: 'same' }]);
  const ended = async (): Promise<Response | undefined> => {
    const reply = await fetch(host.url + accepted.headers.get('location')!);
    if (reply.status !== 202) return reply;
    await reply.body?.cancel();
    return undefined;
  };
  return await shownReply(await vi.waitUntil(ended, { interval: 10 }));
}

/** What a callback's receiver gets. */
async function overCallback(tensors: readonly Tensor[], isBinary: boolean): Promise<Shown[]> {
  const { headers, ...request } = requestOf(tensors, isBinary);
  const arrived = once(receiver, 'called') as Promise<[IncomingMessage, Buffer]>;
  const accepted = await fetch(`${host.url}/v2/models/same/infer`, {
    ...request,
    headers: { ...headers, Prefer: 'respond-async', 'X-Callback-Url': receiver.url },
  });
  expect(accepted.status).toBe(202);
  await accepted.body?.cancel();
  const [{ headers: given }, body] = await arrived;
  const length = given['inference-header-content-length'];
  return shownBody(Number(given['x-function-status']), body, Array.isArray(length) ? length[0] : length);
}

interface GrpcReply {
  readonly outputs: readonly { readonly name: string; readonly datatype: string; readonly shape: readonly string[] }[];
  readonly raw_output_contents: readonly Buffer[];
}

async function overGrpc(name: string, tensors: readonly Tensor[], isRaw: boolean): Promise<Shown[]> {
  const request = {
    model_name: name,
    inputs: tensors.map((tensor) => ({
      name: tensor.name,
      datatype: tensor.datatype,
      shape: tensor.shape,
      ...(isRaw ? {} : { contents: contentsOf(tensor) }),
    })),
    raw_input_contents: isRaw ? tensors.map(({ data }) => Buffer.from(data)) : [],
  };
  const methods = client as unknown as {
    ModelInfer(request: object, callback: (error: ServiceError | null, reply: GrpcReply) => void): void;
  };
  const { outputs, raw_output_contents: raw } = await new Promise<GrpcReply>((resolve, reject) =>
    methods.ModelInfer(request, (error, reply) => (error === null ? resolve(reply) : reject(error))),
  );
  return outputs.map(({ name: output, datatype, shape }, at) => ({
    name: output,
    datatype,
    shape: shape.map(Number),
    data: raw[at]!.toString('hex'),
  }));
}

/** The protocol's list for each datatype, as filled by a client. */
function contentsOf(tensor: Tensor): object {
  const numbers = (): unknown[] => [...elements(tensor)];
  switch (tensor.datatype) {
    case 'BYTES':
      return { bytes_contents: Array.from(bytesElements(tensor), (element) => Buffer.from(element)) };
    case 'BOOL':
      return { bool_contents: Array.from(tensor.data, (byte) => byte === 1) };
    case 'INT64':
      return { int64_contents: numbers().map(String) };
    case 'UINT64':
      return { uint64_contents: numbers().map(String) };
    case 'FP32':
      return { fp32_contents: numbers() };
    case 'FP64':
      return { fp64_contents: numbers() };
    case 'INT8':
    case 'INT16':
    case 'INT32':
      return { int_contents: numbers() };
    case 'UINT8':
    case 'UINT16':
    case 'UINT32':
      return { uint_contents: numbers() };
    case 'FP16':
    case 'BF16':
      throw new Error(`${tensor.datatype} has no typed contents`);
  }
}

/** A direct session's answer; the model returns its inputs. */
async function directly(tensors: readonly Tensor[]): Promise<Tensor[]> {
  const direct = session.runTensors(tensors);
  expect(direct.map(({ name }) => name)).toEqual(outputNames);
  expect(direct.map(({ data }) => Buffer.from(data).toString('hex'))).toEqual(tensors.map((each) => inHex(each).data));
  return [...direct];
}

test("HTTP gives a direct session's outputs, in the declared order, as JSON and as binary data", async () => {
  await fc.assert(
    fc.asyncProperty(inputs, async (tensors) => {
      const direct = await directly(tensors);
      expect(await overHttp(tensors, true)).toEqual(direct.map(inHex));
      expect(await overHttp(tensors, false)).toEqual(direct.map(inText));
    }),
    { numRuns: 20 },
  );
});

test('gRPC gives the same, for raw and for typed contents', async () => {
  await fc.assert(
    fc.asyncProperty(inputs, async (tensors) => {
      const direct = (await directly(tensors)).map(inHex);
      expect(await overGrpc('same', tensors, true)).toEqual(direct);
      const typed = direct.filter((_, at) => isTyped(tensors[at]!));
      expect(await overGrpc('typed', tensors.filter(isTyped), false)).toEqual(typed);
    }),
    { numRuns: 15 },
  );
});

describe.skipIf(redisMissing !== undefined)('over Redis', () => {
  test('an asynchronous infer gives the same, as JSON and as binary data', async () => {
    await fc.assert(
      fc.asyncProperty(inputs, async (tensors) => {
        const direct = await directly(tensors);
        expect(await overAsync(tensors, true)).toEqual(direct.map(inHex));
        expect(await overAsync(tensors, false)).toEqual(direct.map(inText));
      }),
      { numRuns: 8 },
    );
  });

  test("a callback's body has the same, as JSON and as binary data", async () => {
    await fc.assert(
      fc.asyncProperty(inputs, async (tensors) => {
        const direct = await directly(tensors);
        expect(await overCallback(tensors, true)).toEqual(direct.map(inHex));
        expect(await overCallback(tensors, false)).toEqual(direct.map(inText));
      }),
      { numRuns: 8 },
    );
  });

  test('a worker gives the same', async () => {
    const { queue, key } = await startWorker();
    await fc.assert(
      fc.asyncProperty(inputs, async (tensors) => {
        const direct = await directly(tensors);
        const { worker, result } = await queue.submit(key, { kind: 'tensors', tensors });
        expect(worker).toBe('lab-7');
        const given = result.output.kind === 'tensors' ? result.output.tensors : [];
        expect(given.map(inHex)).toEqual(direct.map(inHex));
      }),
      { numRuns: 8 },
    );
  });
});

/** A worker that fetches the model from the host, and its queue. */
async function startWorker(): Promise<{ queue: OverflowQueue; key: string }> {
  const { sha256, bytes } = (await (await fetch(`${host.url}/functions/same`)).json()) as {
    sha256: string;
    bytes: number;
  };
  const key = 'same@1';
  const limits = {
    batchMax: 1,
    batchDelayMs: 0,
    handlerTimeoutMs: waitLimitMs,
    loadTimeoutMs: waitLimitMs,
    inferTimeoutMs: waitLimitMs,
  };
  const { opening } = describeModel(model().build());
  const manifest = sealManifest({ key, files: [{ name: 'model.onnx', sha256, bytes }], limits, ...given({ opening }) });
  const links = [0, 1].map(() => new RedisLink({ url: redis!.url, prefix: 'values' }));
  const [link, workerLink] = links as [RedisLink, RedisLink];
  await Promise.all(links.map((each) => each.ready(waitLimitMs)));
  const taker = new PoolTaker({
    name: 'lab-7',
    cores: 1,
    pools: { blankInstances: 1, memoryBytes: 2 ** 30, log: () => undefined },
    store: new FolderStore(join(host.folder, 'data')),
    models: join(folder, 'worker'),
    modelBytesMax: 1e7,
    threads: 1,
    queueMax: 10,
    idleMs: 3_600_000,
    log: silentLog,
  });
  await taker.start();
  const worker = await startRemoteWorker({ link: workerLink, taker, log: silentLog });
  const queue = new OverflowQueue({
    link,
    manifestOf: () => manifest,
    payloadBytesMax: 1e8,
    outstandingMax: 10,
    log: silentLog,
  });
  const member = memberWith(link, [manifest]);
  queue.start(member);
  await member.start();
  ended.push(async () => {
    await queue.stop(0);
    await member.leave();
    await worker.stop(0);
    await taker.stop();
    for (const each of links) each.close();
  });
  // Workers emit no event here for their reports, twice a second.
  await vi.waitUntil(() => queue.offer(key), { interval: 10 });
  return { queue, key };
}
