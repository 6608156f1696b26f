/** Model stores on folders in memory, and models that a test validator accepts. */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { HostError } from '../../src/host/errors.ts';
import { checkModelFile } from '../../src/host/store/model-check.ts';
import { DiskModelStore, type ModelStoreOptions, type ValidatedModel } from '../../src/host/store/index.ts';
import { ElementType, GraphBuilder, serializeModel } from '../../src/onnx/index.ts';
import type { ModelStore, Publication } from '../../src/host/types.ts';
import { makeMemoryFolder } from '../support/memory-folder.ts';

export const defaults = { sloMs: 200, handlerMs: 1000, loadMs: 60_000, inferMs: 30_000 };

/** The validator's result for a fixture model: the store itself never reads a model. */
export const metadata: ValidatedModel['metadata'] = {
  inputs: [{ name: 'x', datatype: 'FP32', shape: [-1, 4], dimensionNames: ['batch', undefined] }],
  outputs: [{ name: 'y', datatype: 'FP32', shape: [-1, 2], dimensionNames: ['batch', undefined] }],
  opset: 17,
  producer: 'fixture',
  nodeCount: 1,
  parameterCount: 8,
  weightBytes: 32,
};

/** What the validator's process does, in this one. */
export const checkedHere: ModelStoreOptions['validate'] = async (modelPath, _publisher, split) => {
  const reply = await checkModelFile({ modelPath, split });
  if (reply.outcome === 'refused') throw new HostError('model-refused', reply.reason);
  return reply;
};

const values = (count: number, seed: number): Float32Array =>
  Float32Array.from({ length: count }, (_, at) => Math.sin(at + seed));

/** Computed once: a million sines take a tenth of a second, and tests publish hundreds of these models. */
let wideValues: Float32Array | undefined;

/** A model of 4.3 MB, which is stored in chunks. Models with other heads have all chunks but one in common. */
export function headedModel(head: number): Uint8Array {
  const graph = new GraphBuilder('chunks');
  const wide = graph.weight('wide', [256, 4096], (wideValues ??= values(256 * 4096, 0)));
  const last = graph.weight('head', [4096, 5], values(4096 * 5, head));
  const x = graph.input('x', ElementType.FLOAT, ['batch', 256]);
  graph.output(graph.node('MatMul', [graph.node('MatMul', [x, wide]), last]), ElementType.FLOAT, ['batch', 5], 'y');
  return serializeModel(graph.build());
}

export interface LogLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly fields: object;
  readonly message: string;
}

export interface StoreFixture {
  readonly root: string;
  readonly dataDir: string;
  readonly functionsDir: string;
  readonly log: LogLine[];
  /** Model paths that the validator checked, in order. */
  readonly validated: string[];
  /** Another store on the same folders, as after a restart. Not started. */
  again(changes?: Partial<ModelStoreOptions>): DiskModelStore;
  /** The same, started, with every file read and compared with its hash. */
  restarted(): Promise<DiskModelStore>;
  /** Names of the files in the data folder. */
  staging(): string[];
  blobs(): string[];
  writeFunction(name: string, files: Readonly<Record<string, string | Uint8Array | object>>): void;
  [Symbol.dispose](): void;
}

/** A temporary store whose validator accepts everything, unless `changes.validate` says otherwise. */
export function storeFixture(changes: Partial<ModelStoreOptions> = {}): StoreFixture {
  const root = makeMemoryFolder('turntable-store-');
  const dataDir = join(root, 'data');
  const functionsDir = join(root, 'functions');
  mkdirSync(functionsDir);
  const log: LogLine[] = [];
  const validated: string[] = [];
  const logger: ModelStoreOptions['logger'] = {
    info: (fields, message) => void log.push({ level: 'info', fields, message }),
    warn: (fields, message) => void log.push({ level: 'warn', fields, message }),
    error: (fields, message) => void log.push({ level: 'error', fields, message }),
  };
  return {
    root,
    dataDir,
    functionsDir,
    log,
    validated,
    again(more = {}) {
      return new DiskModelStore({
        dataDir,
        functionsDir,
        defaults,
        limits: { uploadBytesMax: 1_000_000 },
        inTurn: async (_caller, _signal, work) => await work(1e9),
        checkRows: async () => ({ kind: 'independent', by: 'runs' }),
        validate: async (modelPath) => {
          validated.push(modelPath);
          return await Promise.resolve({ metadata, externalFiles: [] });
        },
        logger,
        ...changes,
        ...more,
      });
    },
    async restarted() {
      const again = this.again();
      await again.start();
      await again.verified();
      return again;
    },
    staging: () => readdirSync(join(dataDir, 'staging')),
    blobs: () => readdirSync(join(dataDir, 'blobs', 'sha256')).sort(),
    writeFunction(name, files) {
      for (const [file, content] of Object.entries(files)) {
        const path = join(functionsDir, name, file);
        mkdirSync(dirname(path), { recursive: true });
        const raw = typeof content === 'string' || content instanceof Uint8Array;
        writeFileSync(path, raw ? content : JSON.stringify(content));
      }
    },
    [Symbol.dispose]() {
      rmSync(root, { recursive: true, force: true });
    },
  };
}

export function sha256(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex');
}

/** `content` as a stream of small chunks; throws `error` at its end if given. */
export async function* streamOf(content: string | Uint8Array, error?: Error): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(content);
  const step = Math.max(1, Math.ceil(bytes.byteLength / 5));
  for (let at = 0; at < bytes.byteLength; at += step) {
    yield await Promise.resolve(bytes.subarray(at, at + step));
  }
  if (error !== undefined) throw error;
}

/** Publishes `content` as model.onnx in one go. */
export async function publish(
  store: ModelStore,
  name: string,
  content: string | Uint8Array,
  options: { version?: string; settings?: object } = {},
): ReturnType<Publication['commit']> {
  const publication = await store.beginPublish(name, options.version);
  await publication.writeFile('model.onnx', streamOf(content));
  return await publication.commit(options.settings);
}

/** What `work` throws; fails the test if it throws nothing. */
export async function failureOf(work: Promise<unknown>): Promise<HostError> {
  try {
    await work;
  } catch (error) {
    if (error instanceof HostError) return error;
    throw error;
  }
  throw new Error('it was expected to fail, but did not');
}
