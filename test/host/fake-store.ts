/** A store in memory, and the versions that it holds. */
import { createHash } from 'node:crypto';
import { HostError } from '../../src/host/errors.ts';
import type { Traffic } from '../../src/host/rollout/traffic.ts';
import type {
  FunctionVersion,
  ModelMetadata,
  ModelStore,
  Publication,
  RegistryChange,
  TensorSpec,
} from '../../src/host/types.ts';
import type { DataType } from '../../src/tensor/index.ts';
import { waitLimitMs } from '../time-limits.ts';

export function spec(name: string, datatype: DataType, shape: readonly (number | string)[]): TensorSpec {
  return {
    name,
    datatype,
    shape: shape.map((size) => (typeof size === 'number' ? size : -1)),
    dimensionNames: shape.map((size) => (typeof size === 'number' || size === '?' ? undefined : size)),
  };
}

export function metadata(inputs: readonly TensorSpec[], outputs: readonly TensorSpec[]): ModelMetadata {
  return { inputs, outputs, opset: 17, producer: 'test', nodeCount: 1, parameterCount: 4, weightBytes: 16 };
}

/** x: FP32 [batch, 2] to y: FP32 [batch, 2]. */
export const pairModel = metadata([spec('x', 'FP32', ['batch', 2])], [spec('y', 'FP32', ['batch', 2])]);

export function functionVersion(name: string, changes: Partial<FunctionVersion> = {}): FunctionVersion {
  const version = changes.version ?? '1';
  return {
    name,
    version,
    key: `${name}@${version}`,
    source: 'upload',
    settings: {
      description: 'a function of the tests',
      model: 'model.onnx',
      sloMs: 100,
      handler: undefined,
      batching: { batchMax: 4, delayMs: 2 },
      pinned: false,
      priority: 100,
      admission: undefined,
      isolation: 'shared',
      cpu: { instancesMax: undefined, threads: undefined },
      timeouts: { handlerMs: waitLimitMs, loadMs: waitLimitMs, inferMs: waitLimitMs },
    },
    modelPath: '/nowhere/model.onnx',
    modelSha256: 'ab'.repeat(32),
    modelBytes: 1000,
    handlerPath: undefined,
    publishedAtMs: 1_700_000_000_000,
    metadata: pairModel,
    state: { status: 'ready' },
    rows: { kind: 'independent', by: 'runs' },
    ...changes,
  };
}

/** A store in memory that follows the docstrings of ModelStore. */
export class FakeStore implements ModelStore {
  readonly #versions = new Map<string, FunctionVersion[]>();
  readonly #listeners: ((change: RegistryChange) => void)[] = [];
  readonly blobs = new Map<string, Buffer>();
  readonly reloads: string[] = [];
  /** What each publication received. */
  readonly uploads: { files: Map<string, Buffer>; settings: unknown; aborted: boolean }[] = [];
  /** The next commit throws this. */
  refusal: HostError | undefined;

  put(version: FunctionVersion): void {
    const list = this.#versions.get(version.name) ?? [];
    const at = list.findIndex(({ key }) => key === version.key);
    const before = at === -1 ? undefined : list[at];
    if (at === -1) list.push(version);
    else list[at] = version;
    this.#versions.set(version.name, list);
    for (const listener of this.#listeners) listener({ before, after: version });
  }

  names(): readonly string[] {
    return [...this.#versions.keys()];
  }

  versions(name: string): readonly FunctionVersion[] {
    return this.#versions.get(name) ?? [];
  }

  find(name: string, version?: string): FunctionVersion | undefined {
    const list = this.versions(name);
    return version === undefined ? list.at(-1) : list.find((each) => each.version === version);
  }

  showRows(): void {}

  rowsMix(): void {}

  learn(): undefined {
    return undefined;
  }

  choose(name: string): FunctionVersion | undefined {
    return this.find(name);
  }

  traffic(): undefined {
    return undefined;
  }

  async changeSettings(): Promise<void> {
    throw new Error('this store changes no settings');
  }

  async changeTraffic(): Promise<Traffic> {
    throw new Error('this store divides no traffic');
  }

  onChange(listener: (change: RegistryChange) => void): void {
    this.#listeners.push(listener);
  }

  async start(): Promise<void> {}

  hurry(): void {}

  async beginPublish(name: string, version: string | undefined): Promise<Publication> {
    if (name === 'busy') throw new HostError('publish-in-progress', 'another upload is under way');
    const upload = { files: new Map<string, Buffer>(), settings: undefined as unknown, aborted: false };
    this.uploads.push(upload);
    return {
      writeFile: async (filename, stream) => {
        const chunks: Uint8Array[] = [];
        for await (const chunk of stream) chunks.push(chunk);
        upload.files.set(filename, Buffer.concat(chunks));
      },
      useBlob: async (filename, sha256) => {
        const blob = this.blobs.get(sha256);
        if (blob === undefined) throw new HostError('unknown-blob', 'no blob with this sha256 is stored');
        upload.files.set(filename, blob);
      },
      commit: async (settings) => {
        upload.settings = settings;
        if (this.refusal !== undefined) throw this.refusal;
        const model = upload.files.get('model.onnx');
        if (model === undefined) throw new HostError('bad-request', "the upload brings no 'model.onnx'");
        const modelSha256 = sha256Of(model);
        const known = this.versions(name).find((each) => each.modelSha256 === modelSha256);
        if (known !== undefined) return { version: known, created: false };
        const number = version ?? String(this.versions(name).length + 1);
        const made = functionVersion(name, { version: number, modelSha256, modelBytes: model.byteLength });
        this.put(made);
        return { version: made, created: true };
      },
      abort: async () => {
        upload.aborted = true;
      },
    };
  }

  async remove(name: string, version: string | undefined): Promise<void> {
    const list = this.versions(name);
    if (list.length === 0) throw new HostError('unknown-function', `there is no function '${name}'`);
    const gone = version === undefined ? list : list.filter((each) => each.version === version);
    const kept = list.filter((each) => !gone.includes(each));
    if (kept.length === 0) this.#versions.delete(name);
    else this.#versions.set(name, kept);
    for (const before of gone) for (const listener of this.#listeners) listener({ before, after: undefined });
  }

  async reload(name: string): Promise<void> {
    this.reloads.push(name);
  }

  openContent(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  hasBlob(sha256: string): boolean {
    return this.blobs.has(sha256);
  }

  async putBlob(sha256: string, stream: AsyncIterable<Uint8Array>): Promise<void> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    const bytes = Buffer.concat(chunks);
    if (sha256Of(bytes) !== sha256) throw new HostError('digest-mismatch', 'the bytes have another sha256');
    this.blobs.set(sha256, bytes);
  }
}

export function sha256Of(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
