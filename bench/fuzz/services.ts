/** A whole host under damaged requests over HTTP and gRPC, and the validator under damaged models. */
import { writeFile } from 'node:fs/promises';
import { connect as connectHttp2, type ClientHttp2Session, type IncomingHttpHeaders } from 'node:http2';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { RandomSource } from '../../src/replay/index.ts';
import { HostError } from '../../src/host/errors.ts';
import { Validator } from '../../src/host/store/validator.ts';
import { plainCall } from '../chaos/answers.ts';
import { sumGraph, sumModel } from '../chaos/models.ts';
import { freePort, memoryOf, Servers, type StartedServer } from '../servers.ts';
import { mutateBytes, mutateText } from './mutate.ts';

export interface Service extends AsyncDisposable {
  readonly draw: (random: RandomSource) => Buffer;
  /** Number of inputs in a small run, as a share of 300. */
  readonly share: number;
  /** What is wrong with its handling of the input; undefined if nothing. */
  take(input: Buffer): Promise<string | undefined>;
  /** A sentence if the service is no longer well; undefined if it is. */
  isWell(): Promise<string | undefined>;
}

/** Any request has its answer, or a closed connection, long before. */
const hungMs = 30_000;
const memoryBytesMax = 1536 * 2 ** 20;

const httpHead = (line: string, body: string, headers = ''): Buffer =>
  Buffer.from(
    `${line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${headers}Content-Length: ${body.length}\r\n\r\n${body}`,
  );

const inferBody = '{"id":"a","inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1]}]}';

const httpCorpus: readonly Buffer[] = [
  httpHead('POST /v2/models/sum/infer', inferBody),
  httpHead(
    'POST /v2/models/sum/infer',
    `${inferBody.replace('"data":[1]', '"parameters":{"binary_data_size":4}')}abcd`,
    'Inference-Header-Content-Length: 104\r\n',
  ),
  httpHead('POST /function/sum', '{"input":[[1]]}', 'X-Turntable-SLO: 50ms\r\nX-Request-Id: a\r\n'),
  httpHead('POST /async-function/sum', '{"input":[[1]]}', 'X-Callback-Url: http://example.com/\r\nX-Call-Id: a\r\n'),
  httpHead('PUT /functions/new?slo=5ms&batching.max=2', 'onnx'),
  httpHead(
    'PUT /functions/new',
    '--b\r\nContent-Disposition: form-data; name="settings"\r\n\r\n{}\r\n--b--\r\n',
    'Content-Type: multipart/form-data; boundary=b\r\n',
  ),
  httpHead('DELETE /functions/new/versions/1', ''),
  httpHead('POST /v2/repository/models/sum/load', '{"parameters":{"config":"{}"}}'),
  httpHead('POST /v2/repository/index', '{"ready":true}'),
  httpHead('GET /v2/models/sum/versions/1/config', ''),
  httpHead('GET /api/functions?range=1h', ''),
  httpHead('GET /metrics', '', 'Accept-Encoding: gzip, br;q=0.5\r\n'),
  httpHead('OPTIONS /v2/models/sum/infer', '', 'Origin: http://localhost\r\n'),
  httpHead('POST /v2/logging', '{"log_verbose_level":0}'),
  httpHead('POST /blobs/sha256:aa', 'bytes'),
];

/** Half of the requests are damaged only in the body, with the length corrected: they get further. */
function drawHttp(random: RandomSource): Buffer {
  if (random.below(2) === 0) return mutateBytes(httpCorpus, random);
  const seed = httpCorpus[random.below(httpCorpus.length)]!.toString('latin1');
  const bodyAt = seed.indexOf('\r\n\r\n') + 4;
  const body = mutateText([Buffer.from(seed.slice(bodyAt), 'latin1')], random);
  const head = seed.slice(0, bodyAt).replace(/Content-Length: \d+/, `Content-Length: ${body.length}`);
  return Buffer.concat([Buffer.from(head, 'latin1'), body]);
}

/** gRPC messages by method; the first byte of an input chooses. */
const grpcMethods = [
  'ModelInfer',
  'ModelMetadata',
  'ServerLive',
  'ModelReady',
  'RepositoryIndex',
  'ModelStatistics',
  'ModelConfig',
  'RepositoryModelLoad',
];
const grpcCorpus: readonly Buffer[] = [
  // model_name 'sum', an input x of [1, 1] in FP32, and its raw bytes.
  Buffer.from(
    '\u0000\u0000\u0000\u0000\u0000\u0000\u0026\u000a\u0003sum\u002a\u0011\u000a\u0001x\u0012\u0004FP32\u001a\u0002\u0001\u0001\u002a\u0002\u0012\u0000\u003a\u0004\u0000\u0000\u0080\u003f',
    'latin1',
  ),
  Buffer.from('\u0001\u0000\u0000\u0000\u0000\u0005\u000a\u0003sum', 'latin1'),
  Buffer.from('\u0002\u0000\u0000\u0000\u0000\u0000', 'latin1'),
];

async function startFuzzedHost(): Promise<{ servers: Servers; host: StartedServer; grpcPort: number }> {
  const servers = await Servers.create();
  await servers.addFunction('sum', sumGraph(1), { slo: '5s' });
  const grpcPort = await freePort();
  const flags = [
    '--cpu-cores',
    '1',
    '--gpu-use',
    'off',
    '--grpc-port',
    String(grpcPort),
    '--limits-body-timeout',
    '2s',
  ];
  return { servers, host: await servers.startHost(flags), grpcPort };
}

async function wellOf({ url, process: child }: StartedServer): Promise<string | undefined> {
  if (child.exitCode !== null || child.signalCode !== null) {
    return `the host ended with ${child.signalCode ?? child.exitCode}`;
  }
  const answer = await plainCall(url, 'sum')(41, '');
  if (answer.kind === 'refused' && answer.code === 'unloaded') {
    // A damaged request may be a valid one that unloads it.
    await fetch(`${url}/v2/repository/models/sum/load`, { method: 'POST' });
  } else if (answer.kind !== 'answer' || answer.value !== 42) return `41 is answered with ${JSON.stringify(answer)}`;
  const bytes = await memoryOf(child.pid!, 'RssAnon');
  return bytes > memoryBytesMax ? `the host has grown to ${bytes} bytes` : undefined;
}

export async function openHttp(): Promise<Service> {
  const { servers, host } = await startFuzzedHost();
  const { hostname, port } = new URL(host.url);
  return {
    draw: drawHttp,
    share: 0.2,
    take: async (input) => {
      const text = await exchange(hostname, Number(port), input);
      if (text === undefined) return `neither answered nor closed within ${hungMs / 1000} s`;
      return /^HTTP\/1\.1 500 /m.test(text) ? `answered with ${text.slice(0, 500)}` : undefined;
    },
    isWell: () => wellOf(host),
    [Symbol.asyncDispose]: () => servers[Symbol.asyncDispose](),
  };
}

/** Everything received until the host closes; the client closes its side after the input. */
function exchange(host: string, port: number, input: Buffer): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    let text = '';
    const timer = setTimeout(() => {
      socket.destroy();
      resolve(undefined);
    }, hungMs);
    socket.setEncoding('latin1').on('data', (chunk: string) => (text += chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(timer);
      resolve(text);
    });
    socket.end(input);
  });
}

export async function openGrpc(): Promise<Service> {
  const { servers, host, grpcPort } = await startFuzzedHost();
  let session: ClientHttp2Session | undefined;
  return {
    draw: (random) => mutateBytes(grpcCorpus, random),
    share: 0.1,
    take: async (input) => {
      if (session === undefined || session.destroyed || session.closed) {
        session = connectHttp2(`http://127.0.0.1:${grpcPort}`);
        session.on('error', () => undefined);
      }
      return await grpcCall(session, input);
    },
    isWell: () => wellOf(host),
    [Symbol.asyncDispose]: async () => {
      session?.destroy();
      await servers[Symbol.asyncDispose]();
    },
  };
}

const grpcInternal = '13';
const grpcUnknown = '2';

function grpcCall(session: ClientHttp2Session, input: Buffer): Promise<string | undefined> {
  const method = grpcMethods[(input[0] ?? 0) % grpcMethods.length]!;
  return new Promise((resolve) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': `/inference.GRPCInferenceService/${method}`,
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    let problem: string | undefined;
    const timer = setTimeout(() => {
      problem = `${method} is neither answered nor closed within ${hungMs / 1000} s`;
      stream.destroy();
    }, hungMs);
    const look = (headers: IncomingHttpHeaders): void => {
      const status = [headers['grpc-status'] ?? '0'].flat().join();
      const message = decodeURIComponent([headers['grpc-message'] ?? ''].flat().join());
      // grpc-js itself answers 13 for a message that is not protobuf, like all implementations.
      const isOwn = /deserializ|wire type|index out of range|Error parsing|max depth|message length/i.test(message);
      if ((status === grpcInternal && !isOwn) || status === grpcUnknown)
        problem = `${method}: status ${status}, ${message}`;
    };
    stream.on('response', look);
    stream.on('trailers', look);
    stream.on('error', () => undefined);
    stream.on('close', () => {
      clearTimeout(timer);
      resolve(problem);
    });
    stream.resume();
    stream.end(input.subarray(1));
  });
}

/** Models are opened completely, by ONNX Runtime too, each in its own process. */
export async function openValidator(): Promise<Service> {
  const servers = await Servers.create();
  const validator = new Validator({ timeoutMs: 60_000 });
  const path = join(await servers.makeFolder('models'), 'model.onnx');
  const models = [Buffer.from(sumModel(1))];
  return {
    draw: (random) => mutateBytes(models, random),
    share: 0.01,
    take: async (input) => {
      await writeFile(path, input);
      try {
        await validator.validate(path);
        return undefined;
      } catch (error) {
        if (error instanceof HostError && error.code === 'model-refused') {
          return /did not finish within/.test(error.message) ? error.message : undefined;
        }
        return `not refused as a model: ${error instanceof Error ? error.stack : String(error)}`;
      }
    },
    isWell: () => Promise.resolve(undefined),
    [Symbol.asyncDispose]: async () => {
      validator.stop();
      await servers[Symbol.asyncDispose]();
    },
  };
}
