/**
 * All readers of external data, in one process. Each must read the input or throw an error of its kind, with a sentence
 * that says what is wrong; any other error is a fault.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runPostprocess, runPreprocess } from '../../src/cpu/instance/handler-runner.ts';
import { OtherCalls } from '../../src/cpu/instance/others.ts';
import { CpuError } from '../../src/cpu/index.ts';
import { HostError } from '../../src/host/errors.ts';
import { ConfigError } from '../../src/host/config/config-error.ts';
import { loadConfig } from '../../src/host/index.ts';
import { decodeInfer } from '../../src/host/infer/oip.ts';
import { modelSpec } from '../../src/host/infer/model-spec.ts';
import { decodePlain } from '../../src/host/infer/plain.ts';
import { parseFolderSettings, parseUploadSettings } from '../../src/host/store/settings.ts';
import { checkModel, describeModel, OnnxError, parseModel } from '../../src/onnx/index.ts';
import { PlanError, planColdStart } from '../../src/plan/index.ts';
import { loadMachine } from '../../src/hardware/index.ts';
import {
  parseGraphProfile,
  parseLayerProfile,
  parsePoolProfile,
  parseServiceProfile,
  ProfileError,
} from '../../src/profile/index.ts';
import { decodeAnswer, decodeInput, encodeAnswer, encodeInput } from '../../src/queue/payload.ts';
import { parseManifest, sealManifest } from '../../src/queue/manifest.ts';
import { deriveSeed, Xoshiro } from '../../src/replay/generate/random.ts';
import { openForeign } from '../../scripts/convert-trace/open.ts';
import { openTrace, parseReport, ReportError, TraceError, type RandomSource } from '../../src/replay/index.ts';
import { encodeMessage, FrameDecoder, runSteps, TensorError, type Tensor } from '../../src/tensor/index.ts';
import { projectRoot } from '../servers.ts';
import { sumGraph, sumModel } from '../chaos/models.ts';
import { mutateBytes, mutateJson, mutateText } from './mutate.ts';

type ErrorClass = abstract new (...given: never[]) => Error;

export interface Reader {
  readonly corpus: () => readonly Buffer[];
  readonly mutate: (corpus: readonly Buffer[], random: RandomSource) => Buffer;
  /** Errors with which it may refuse an input. */
  readonly refusals: readonly ErrorClass[];
  readonly read: (input: Buffer) => unknown;
}

const folder = mkdtempSync(join(tmpdir(), 'turntable-fuzz-'));
const file = join(folder, 'input');
const tensor: Tensor = { name: 'x', datatype: 'FP32', shape: [1, 2], data: new Uint8Array(8) };
const spec = modelSpec(describeModel(sumGraph(1).build()));
const machine = loadMachine('p3.8xlarge');
const profile = {
  unit: 'ms',
  layers: [1, 2].map((at) => ({ name: `l${at}`, kind: 'linear', bytes: 4000 * at, load: 1, exec: 1, dha: 2 })),
};
const graphProfile = {
  unit: 'ms',
  bandwidth: 10,
  latency: 0.01,
  nodes: [
    { name: 'a', cpu: [1], gpu: 0.5, bytes: 10 },
    { name: 'b', cpu: [1], gpu: 0.5, bytes: 20 },
  ],
  edges: [['a', 'b', 10]],
};

const json = (values: readonly unknown[]): (() => readonly Buffer[]) => {
  return () => values.map((value) => Buffer.from(JSON.stringify(value)));
};

/** Mostly damages the header and corrects its length: otherwise few inputs would get past the first twelve bytes. */
function mutateFrame(corpus: readonly Buffer[], random: RandomSource): Buffer {
  const seed = corpus[random.below(corpus.length)]!;
  const headerBytes = seed.readUInt32LE(0);
  if (seed[12] !== 0x7b || 12 + headerBytes > seed.length || random.below(3) === 0) return mutateText(corpus, random);
  const header = JSON.stringify(mutateJson(JSON.parse(seed.toString('utf8', 12, 12 + headerBytes)), random)) ?? '';
  const prefix = Buffer.from(seed.subarray(0, 12));
  prefix.writeUInt32LE(Buffer.byteLength(header), 0);
  return Buffer.concat([prefix, Buffer.from(header), seed.subarray(12 + headerBytes)]);
}

const parsed = (input: Buffer): unknown => {
  try {
    return JSON.parse(input.toString()) as unknown;
  } catch {
    return undefined; // The reader of the file reports this itself.
  }
};

/** JSON cannot express all values that a handler may return: the first byte chooses a kind of value. */
function handlerValue(input: Buffer): unknown {
  const rest = input.subarray(1);
  const value = parsed(rest);
  switch ((input[0] ?? 0) % 6) {
    case 0:
      return value;
    case 1:
      return rest;
    case 2:
      return rest.toString('latin1');
    case 3:
      return { ...(value as object), arrayBuffer: () => Promise.resolve(rest), headers: new Map(), status: rest[0] };
    case 4:
      return [{ name: 'x', datatype: 'INT64', shape: [1], data: [BigInt(rest.length)], ...(value as object) }];
    default:
      return Symbol('value');
  }
}

const call = { method: 'POST', url: '/', headers: {}, body: new Uint8Array(), text: () => '', json: () => null };

export const readers: Readonly<Record<string, Reader>> = {
  frames: {
    corpus: () => [
      Buffer.concat(
        encodeMessage({ header: { op: 'run', calls: [{ kind: 'tensors', count: 1 }] }, tensors: [tensor] }),
      ),
      Buffer.concat(encodeMessage({ header: { op: 'started' }, tensors: [] })),
    ],
    mutate: mutateFrame,
    refusals: [TensorError],
    read: (input) => {
      const decoder = new FrameDecoder();
      for (let at = 0; at < input.length; at += 7) decoder.push(input.subarray(at, at + 7));
      return new FrameDecoder().push(input);
    },
  },
  redis: {
    corpus: () => [
      encodeInput({ kind: 'tensors', tensors: [tensor] }),
      encodeInput({
        kind: 'request',
        request: { method: 'POST', url: '/', headers: { a: 'b' }, body: new Uint8Array(3) },
      }),
      encodeAnswer({ id: 'a', worker: 'w', answer: { kind: 'refused', reason: 'full' } }),
      encodeAnswer({ id: 'a', worker: 'w', answer: { kind: 'error', error: new CpuError('inference-failed', 'no') } }),
      Buffer.from(
        JSON.stringify(
          sealManifest({
            key: 'f@1',
            files: [{ name: 'model.onnx', sha256: 'a'.repeat(64), bytes: 1 }],
            limits: { batchMax: 1, batchDelayMs: 0, handlerTimeoutMs: 1, loadTimeoutMs: 1, inferTimeoutMs: 1 },
          }),
        ),
      ),
    ],
    mutate: mutateFrame,
    refusals: [TensorError],
    read: (input) => {
      parseManifest(input.toString());
      const isInput = attempt(() => decodeInput(input));
      const isAnswer = attempt(() => decodeAnswer(input));
      if (!isInput && !isAnswer) throw new TensorError('neither');
      return undefined;
    },
  },
  onnx: {
    corpus: () => [
      Buffer.from(sumModel(1)),
      readFileSync(join(projectRoot, 'functions/language-id/model.onnx')).subarray(0, 4096),
    ],
    mutate: mutateBytes,
    refusals: [OnnxError],
    read: (input) => {
      const model = parseModel(input);
      checkModel(model);
      return describeModel(model);
    },
  },
  requests: {
    corpus: json([
      { input: [[1]] },
      { inputs: { x: [[1]] } },
      { id: 'a', inputs: [{ name: 'x', shape: [1, 1], datatype: 'FP32', data: [1] }], outputs: [{ name: 'y' }] },
      {
        inputs: [{ name: 'x', shape: [1, 1], datatype: 'FP32', parameters: { binary_data_size: 4 } }],
        parameters: { timeout: 1 },
      },
    ]),
    mutate: mutateText,
    refusals: [HostError, TensorError],
    read: (input) => {
      const isPlain = attempt(() => runSteps(decodePlain(input, spec)));
      const isInfer = attempt(() => runSteps(decodeInfer(input, undefined, spec)));
      const isBinary = attempt(() =>
        runSteps(decodeInfer(Buffer.concat([input, Buffer.alloc(4)]), input.length, spec)),
      );
      if (!isPlain && !isInfer && !isBinary) throw new TensorError('none of them');
      return undefined;
    },
  },
  traces: {
    corpus: () =>
      ['azure-2021-sample.csv', 'azure-sample.csv', 'shipped-functions.jsonl'].map((name) => {
        const text = readFileSync(join(projectRoot, 'traces', name), 'utf8');
        return Buffer.from(text.split('\n').slice(0, 4).join('\n').slice(0, 8000));
      }),
    mutate: mutateBytes,
    refusals: [TraceError],
    read: async (input) => {
      writeFileSync(file, input);
      const [own, foreign] = await Promise.allSettled([openTrace(file), openForeign(file)]);
      if (own.status === 'fulfilled') return own.value;
      if (foreign.status === 'fulfilled') return foreign.value;
      // Each is to refuse with its own error; one that breaks otherwise is the finding.
      throw own.reason instanceof TraceError ? foreign.reason : own.reason;
    },
  },
  configuration: {
    corpus: json([
      { listen: { host: '127.0.0.1', port: 8000 }, dataDir: 'data', limits: { body: '64MiB' }, cpu: { cores: 2 } },
      {
        redis: { url: 'redis://127.0.0.1:6379/2' },
        async: { callbackAllow: ['10.1.0.0/16'], keep: '1h' },
        apiKeys: ['a-long-key'],
      },
      { gpu: { topology: '0+1 2+3', memory: '1GiB' }, defaults: { slo: '100ms', timeouts: { load: '5s' } } },
    ]),
    mutate: mutateText,
    refusals: [ConfigError],
    read: (input) => {
      writeFileSync(file, input);
      return loadConfig({ file, environment: {}, coresUsable: 2 });
    },
  },
  settings: {
    corpus: json([
      { slo: '100ms', batching: { max: 4, delay: '5ms' }, cpu: { instances: 2, threads: 1 }, pinned: true },
      { model: 'model.onnx', handler: 'handler.ts', labels: 'a\nb', example: '@body.json', timeouts: { infer: '5s' } },
    ]),
    mutate: mutateText,
    refusals: [HostError],
    read: (input) => {
      const value = parsed(input);
      const isFolder = attempt(() => parseFolderSettings(value));
      const isUpload = attempt(() => parseUploadSettings(value, 'a'.repeat(64)));
      if (!isFolder && !isUpload) throw new HostError('bad-settings', 'neither');
      return undefined;
    },
  },
  plans: {
    corpus: () => [
      ...json([profile, profile, graphProfile])(),
      readFileSync(join(projectRoot, 'plans/h200/gpt2.json')).subarray(0, 20_000),
    ],
    mutate: mutateText,
    refusals: [ProfileError, PlanError, ReportError],
    read: (input) => {
      const value = parsed(input);
      for (const parse of [parseGraphProfile, parsePoolProfile, parseServiceProfile]) attempt(() => parse(value));
      attempt(() => parseReport(input.toString(), 'input'));
      return planColdStart(parseLayerProfile(value), machine, 'pt+dha', { primary: 0 });
    },
  },
  handlers: {
    corpus: () => [
      ...[0, 3, 4].map((kind) =>
        Buffer.concat([Buffer.from([kind]), Buffer.from('{"status":200,"shape":[1],"data":[1]}')]),
      ),
      Buffer.from('\u0001bytes'),
      Buffer.from('\u0005'),
    ],
    mutate: mutateBytes,
    refusals: [CpuError],
    read: async (input) => {
      const value = handlerValue(input);
      const handler = { preprocess: () => value as never, postprocess: () => value };
      const { context } = new OtherCalls(() => undefined);
      const reply = await runPostprocess(handler, [tensor], call, context);
      checkReply(reply);
      return await runPreprocess(handler, call, context);
    },
  },
};

/** Values that the host writes unchanged. */
function checkReply({ status, headers }: { readonly status: number; readonly headers: object }): void {
  if (!Number.isInteger(status) || status < 200 || status > 599) throw new RangeError(`a reply with status ${status}`);
  const written = new Headers();
  for (const [name, value] of Object.entries(headers)) written.set(name, String(value));
}

/** Whether the input is one of several things: only refusals of the expected kinds mean that it is not. */
function attempt(read: () => unknown): boolean {
  try {
    read();
    return true;
  } catch (error) {
    const said = [TensorError, HostError, ProfileError, ReportError].some((kind) => error instanceof kind);
    if (said && sentenceProblem(error as Error) === undefined) return false;
    throw error;
  }
}

export interface Order {
  readonly reader: string;
  readonly seed: number;
  /** Inputs by number: the same number and seed make the same input. */
  readonly from: number;
  readonly to: number;
  /** Used instead of random inputs, in base64. */
  readonly given?: readonly string[];
}

export interface Report {
  readonly findings: readonly Finding[];
  readonly refused: number;
}

export interface Finding {
  readonly reader: string;
  readonly what: string;
  readonly inputBase64: string;
}

const corpora = new Map<string, readonly Buffer[]>();

/** An input of an order by its number. */
export function inputOf({ reader: name, seed, given }: Order, number: number): Buffer {
  if (given !== undefined) return Buffer.from(given[number]!, 'base64');
  const reader = readers[name]!;
  const corpus = corpora.get(name) ?? reader.corpus();
  corpora.set(name, corpus);
  return reader.mutate(corpus, new Xoshiro(deriveSeed(seed, number)));
}

/** What is wrong with an error as an answer to bad input. */
export function sentenceProblem({ message }: Error): string | undefined {
  if (message === '') return 'its message is empty';
  if (message.length > 2000) return `its message has ${message.length} characters`;
  return /\bundefined is not|is not a function|Cannot read properties|is not iterable/.test(message)
    ? 'its message is of JavaScript, not of the input'
    : undefined;
}
