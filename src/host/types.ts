/** The interface between the host's parts: registry, model store, HTTP and pools. Types only. */
import type { ProgramPrecision } from '../gpu/index.ts';
import type { ModelMetadata } from '../onnx/index.ts';
import type { ReadableContent, WantedContent } from '../store/index.ts';
import type { Tensor } from '../tensor/index.ts';
import type { HeaderOf, Traffic } from './rollout/traffic.ts';

export type { ModelMetadata, TensorSpec } from '../onnx/index.ts';

/** `function.json` with its defaults filled in; the schema is wrangler-free-config/function.schema.json. */
export interface FunctionSettings {
  readonly description: string;
  /** A sample body, or '@' and the path of a file with one, relative to where the host was started. */
  readonly example?: string;
  /** Names of the classes of its outputs, by index; for classification. */
  readonly labels?: readonly string[];
  /** Most rows of one request; absent: limited by the body's size. */
  readonly rowsMax?: number;
  /** Path of the ONNX file, relative to the function's folder. Uploads: 'model.onnx'. */
  readonly model: string;
  /** Milliseconds from arrival within which an answer counts as goodput ("slo": "100ms"). */
  readonly sloMs: number;
  /** Path of the handler module relative to the function's folder; folder functions only. */
  readonly handler: string | undefined;
  readonly batching: {
    readonly batchMax: number;
    readonly delayMs: number;
    /** The owner vouches for rows whose independence no check can find out. */
    readonly assume?: 'independent' | undefined;
  };
  /** A pinned function keeps its instances and is loaded when the host starts. */
  readonly pinned: boolean;
  /** 1 = highest. */
  readonly priority: number;
  /** For calls that are predicted to miss their SLO everywhere; undefined: the host's setting. */
  readonly admission: 'best-effort' | 'shed' | undefined;
  readonly cpu: { readonly instancesMax: number | undefined; readonly threads: number | undefined };
  /** Left out: the host's setting. */
  readonly gpu?: { readonly precision: ProgramPrecision };
  /** `own`: its instances share no process with other functions'. */
  readonly isolation: 'own' | 'shared';
  readonly timeouts: { readonly handlerMs: number; readonly loadMs: number; readonly inferMs: number };
}

/** Settings of a function in a load request; they hold until it is loaded without them. */
export interface SettingsOverride {
  readonly rowsMax?: number;
  readonly batchMax?: number;
  readonly delayMs?: number;
  readonly instancesMax?: number;
}

/** Whether a version can serve. */
export type VersionState =
  | { readonly status: 'ready' }
  | { readonly status: 'validating' }
  /** Its files are in the store, and not here. */
  | { readonly status: 'elsewhere' }
  /** The validator refused the model, or its files are gone. */
  | { readonly status: 'unavailable'; readonly reason: string };

/** Whether rows of calls may share a run, and be split among several: what is known of their independence. */
export type RowsState =
  /** `by`: what shows it. Runs confirmed what the graph shows. */
  | { readonly kind: 'independent'; readonly by: 'graph' | 'runs' | 'owner' }
  | { readonly kind: 'alone'; readonly reason: string }
  | { readonly kind: 'checking' }
  /** The inputs of a call decide. */
  | { readonly kind: 'waiting'; readonly reason: string };

/** One version of a function. */
export interface FunctionVersion {
  readonly name: string;
  readonly version: string;
  /** `name@version`. */
  readonly key: string;
  readonly source: 'folder' | 'upload';
  readonly settings: FunctionSettings;
  readonly modelPath: string;
  /** Lower-case hex; of the model file itself. */
  readonly modelSha256: string;
  /** Model file and external data together. */
  readonly modelBytes: number;
  /** The manifest, where its model is stored in chunks; `modelPath` is then a graph whose tensors are in these. */
  readonly chunks?: WantedContent;
  /** Changes whenever a file of external data does. Only folder functions have it, since uploads never change. */
  readonly externalDataStamp?: string;
  /** Compiled handler module, absolute. */
  readonly handlerPath: string | undefined;
  /** Milliseconds since 1970. */
  readonly publishedAtMs: number;
  /** Undefined until it has been validated. */
  readonly metadata: ModelMetadata | undefined;
  readonly state: VersionState;
  /** Undefined while it is not ready, or does not join calls. */
  readonly rows?: RowsState | undefined;
}

/** Every function that the host knows. Reads are synchronous and cheap: they are on the path of each request. */
export interface Registry {
  names(): readonly string[];
  versions(name: string): readonly FunctionVersion[];
  /** The given version; without one the current version: the newest, unless the traffic goes to another. */
  find(name: string, version?: string): FunctionVersion | undefined;
  /** Called after every change, with the version before (undefined: new) and after (undefined: removed). */
  onChange(listener: (change: RegistryChange) => void): void;
}

/** Who publishes a model. */
export interface Publisher {
  /** Models of one publisher are opened one at a time, publishers in rotation: an API key's name, or an address. */
  readonly name: string;
  /** Aborted when nobody waits for the publication any more. */
  readonly signal: AbortSignal;
}

export interface RegistryChange {
  readonly before: FunctionVersion | undefined;
  readonly after: FunctionVersion | undefined;
}

/** The store of uploaded functions, and the registry of all functions. */
export interface ModelStore extends Registry {
  /** Cleans up after a kill, reads `functionsDir` and every published version, validates new ones. */
  start(): Promise<void>;
  /** A caller waits for this version: if it is still 'validating', it is validated before the others. */
  hurry(version: FunctionVersion): void;
  /** Undefined if it is here; else resolves when it is, if it was just published elsewhere. */
  learn(name: string, version: string | undefined): Promise<unknown> | undefined;
  /** The version for one call that names none, by the function's traffic. */
  choose(name: string, headerOf: HeaderOf): FunctionVersion | undefined;
  /** How calls are divided; undefined if all go to the newest version. */
  traffic(name: string): Traffic | undefined;
  /** Starts an upload. Throws HostError 'bad-name', 'version-exists', 'publish-in-progress' or 'folder-function'. */
  beginPublish(name: string, version: string | undefined, publisher?: Publisher): Promise<Publication>;
  /** Removes one version, or all. Throws HostError 'unknown-function', 'unknown-version' or 'folder-function'. */
  remove(name: string, version: string | undefined): Promise<void>;
  /**
   * Reads a folder function again from its folder, so that an edit takes effect without a restart. `override` replaces
   * the settings of all versions; without it they have their own again. Throws HostError 'model-refused' if the edit is
   * broken and the function served before; the previous state then goes on serving.
   */
  reload(name: string, override?: SettingsOverride): Promise<void>;
  /**
   * Changes settings of one version, or of all existing ones, permanently; a later upload's settings start from them.
   * Throws HostError 'bad-settings', 'unknown-function' or 'unknown-version'.
   */
  changeSettings(name: string, version: string | undefined, change: Readonly<Record<string, unknown>>): Promise<void>;
  /** A call's inputs, for a version whose rows wait for some. */
  showRows(version: FunctionVersion, inputs: readonly Tensor[]): void;
  /** A joined run of this version (`name@version`) gave a call a wrong answer, which nobody got. */
  rowsMix(key: string, reason: string): void;
  /** Changes how calls are divided. Throws what `change` throws, HostError 'unknown-function' or 'unknown-version'. */
  changeTraffic(name: string, change: (now: Traffic) => Traffic): Promise<Traffic>;
  /** Whether a blob is stored, by the lower-case hex of its sha256. */
  hasBlob(sha256: string): boolean;
  /** A stored or published file with this hash, if its bytes still have that hash. */
  openContent(sha256: string): Promise<ReadableContent | undefined>;
  /**
   * Stores a stream under its sha256; on a wrong hash or size stores nothing and throws HostError 'digest-mismatch' or
   * 'body-too-large'.
   */
  putBlob(sha256: string, stream: AsyncIterable<Uint8Array>): Promise<void>;
}

/** One upload, from its first byte to the switch. None of it is visible before `commit` has resolved. */
export interface Publication {
  /** Streams one file to disk: 'model.onnx', or external data under the name that the model uses. */
  writeFile(filename: string, stream: AsyncIterable<Uint8Array>): Promise<void>;
  /** Uses a stored blob as a file. Throws HostError 'unknown-blob'. */
  useBlob(filename: string, sha256: string): Promise<void>;
  /**
   * Validates and switches over. `created` is false if the same bytes and settings were published before.
   * Throws HostError 'bad-settings', 'model-refused', 'version-exists'; the old version goes on serving.
   *
   * @param holdBack if another version serves, it goes on; the new one waits for {@link ModelStore.changeTraffic}
   */
  commit(
    settings: unknown,
    holdBack?: boolean,
  ): Promise<{ readonly version: FunctionVersion; readonly created: boolean }>;
  /** Drops everything of this upload; harmless after commit. */
  abort(): Promise<void>;
}
