/** The client of a host over HTTP, for programs in Node and in browsers. */
import { BadRequestError, ConnectionError, errorOf, NotFoundError, OverloadedError, TurntableError } from './errors.ts';
import { decodeInfer, encodeInfer, type InferRequest } from './infer.ts';
import type { ClientTensor } from './tensors.ts';

export interface TurntableOptions {
  /** `http://127.0.0.1:8000`, the default. */
  readonly url?: string;
  /** Needed for management, and on hosts that require a key for every call. */
  readonly apiKey?: string | undefined;
  /** Replaces the global `fetch`. */
  readonly fetch?: typeof fetch;
}

/** Options of every call. */
export interface CallOptions {
  /** Undefined: the version that serves. */
  readonly version?: string | undefined;
  /** Overrides the function's SLO for this call. */
  readonly sloMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Where a call ran, and where its time went. */
export interface CallFacts {
  /** `gpu0 warm`, `cpu pool cold`, ... */
  readonly placement: string | undefined;
  readonly coldStart: boolean;
  readonly queueMs: number | undefined;
  readonly inferenceMs: number | undefined;
  readonly totalMs: number | undefined;
  readonly requestId: string | undefined;
}

export interface InferResult extends CallFacts {
  readonly id: string | undefined;
  readonly model: string;
  readonly version: string;
  readonly outputs: readonly ClientTensor[];
  /** @throws RangeError naming the outputs that there are */
  output(name: string): ClientTensor;
}

export interface PublishOptions {
  readonly version?: string | undefined;
  /** As in function.json: `{ slo: '50ms', batching: { max: 8 } }`. Settings left out stay as in the version before. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /**
   * Percent of the calls that the new version gets; default 100. With 0 it gets none until {@link Turntable.promote}.
   */
  readonly traffic?: number | undefined;
  /** The model's external data files, by the names in the model. */
  readonly files?: ReadonlyMap<string, Blob>;
  readonly signal?: AbortSignal | undefined;
}

/** How the calls of a function are divided among its versions. */
export interface TrafficInfo {
  /** Percent of the calls by version. */
  readonly shares: Readonly<Record<string, number>>;
  /** Header whose value decides which version a call goes to, so that a user stays with one version. */
  readonly key: string | null;
  /** Whether a new version loses its share again automatically when half of its calls fail. */
  readonly fallback: boolean;
  readonly before: string | null;
  readonly on_trial: string | null;
  readonly fell_back: { readonly version: string; readonly reason: string; readonly at: string } | null;
}

/** What {@link Turntable.changeTraffic} may change; fields left out stay. */
export type TrafficChange = Partial<Pick<TrafficInfo, 'shares' | 'key' | 'fallback'>>;

export interface VersionInfo extends FunctionInfo {
  readonly serves: boolean;
  readonly percent: number;
  readonly on_trial: boolean;
  readonly published_at: string;
  /** Number of calls by outcome: in_slo, late, shed, failed. */
  readonly answers: Readonly<Record<string, number>>;
}

export interface Published {
  readonly name: string;
  readonly version: string;
  /** False if the same bytes and settings were already published. */
  readonly created: boolean;
  /** What is served otherwise than the model's file says, such as outputs that are no tensors. */
  readonly remarks?: readonly string[];
}

export type BodyLike = string | Uint8Array | Blob;

/** One function as the host describes it; `GET /functions` has all fields. */
export interface FunctionInfo {
  readonly name: string;
  readonly version: string;
  /** `elsewhere`: its files are at other hosts of the fleet, which answer its calls. */
  readonly state: 'ready' | 'elsewhere' | 'validating' | 'unavailable';
  readonly [field: string]: unknown;
}

export class Turntable {
  readonly url: string;
  readonly #apiKey: string | undefined;
  readonly #fetch: typeof fetch;

  constructor({ url = 'http://127.0.0.1:8000', apiKey, fetch: given = globalThis.fetch }: TurntableOptions = {}) {
    this.url = url.replace(/\/+$/, '');
    this.#apiKey = apiKey;
    // A browser's fetch must be called on its window.
    this.#fetch = (...args) => given(...args);
  }

  /** Sends one request. @throws TurntableError unless the host answers with success */
  async request(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.#apiKey !== undefined && !headers.has('authorization')) {
      headers.set('authorization', `Bearer ${this.#apiKey}`);
    }
    let response: Response;
    try {
      response = await this.#fetch(this.url + path, { ...init, headers });
    } catch (error) {
      if (init.signal?.aborted === true) throw error;
      const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new ConnectionError(
        `the host at ${this.url} could not be reached: ${reason}`,
        { status: 0 },
        { cause: error },
      );
    }
    if (!response.ok) throw errorOf(response.status, await response.text(), response.headers);
    return response;
  }

  /** Runs a model on tensors, in the binary form of the Open Inference Protocol. */
  async infer(name: string, request: InferRequest, options: CallOptions = {}): Promise<InferResult> {
    const { body, headerLength } = encodeInfer(request);
    const response = await this.request(`${path('/v2/models', name, options.version)}/infer`, {
      ...initOf(options, {
        'content-type': 'application/octet-stream',
        'inference-header-content-length': String(headerLength),
      }),
      method: 'POST',
      body: body as Uint8Array<ArrayBuffer>,
    });
    const length = response.headers.get('inference-header-content-length');
    const decoded = decodeInfer(
      new Uint8Array(await response.arrayBuffer()),
      length === null ? undefined : Number(length),
    );
    return {
      ...factsOf(response.headers),
      ...decoded,
      output(wanted) {
        const found = decoded.outputs.find((each) => each.name === wanted);
        if (found !== undefined) return found;
        const names = decoded.outputs.map((each) => `'${each.name}'`).join(', ');
        throw new RangeError(`the reply has no output '${wanted}'; it has ${names}`);
      },
    };
  }

  /** Calls a function: a body for its handler, or plain JSON `{"input": nested numbers}` if it has none. */
  async call(name: string, body: BodyLike, options: CallOptions = {}): Promise<Response> {
    const init = initOf(options, contentTypeOf(body));
    return await this.request(path('/function', name, options.version), {
      ...init,
      method: 'POST',
      body: body as NonNullable<RequestInit['body']>,
    });
  }

  /** {@link call} with a JSON value; reads the reply as JSON. */
  async callJson<Reply = unknown>(name: string, value: unknown, options: CallOptions = {}): Promise<Reply> {
    const headers = { 'content-type': 'application/json', ...options.headers };
    const response = await this.call(name, JSON.stringify(value), { ...options, headers });
    return (await response.json()) as Reply;
  }

  /**
   * Queues a call to run later; it survives restarts of the host. @param id the call runs once even if it is sent twice
   */
  async callLater(
    name: string,
    body: BodyLike,
    {
      callbackUrl,
      id,
      ...options
    }: CallOptions & { readonly callbackUrl?: string | undefined; readonly id?: string | undefined } = {},
  ): Promise<AsyncCall> {
    const headers = {
      ...contentTypeOf(body),
      ...(callbackUrl === undefined ? {} : { 'x-callback-url': callbackUrl }),
      ...(id === undefined ? {} : { 'x-call-id': id }),
    };
    const response = await this.request(path('/async-function', name, options.version), {
      ...initOf(options, headers),
      method: 'POST',
      body: body as NonNullable<RequestInit['body']>,
    });
    return new AsyncCall(this, ((await response.json()) as { id: string }).id);
  }

  /** A call that was accepted earlier, for this program or another. */
  asyncCall(id: string): AsyncCall {
    return new AsyncCall(this, id);
  }

  /** Publishes a model. It serves once this resolves; until then the version before does. */
  async publish(name: string, model: Blob | Uint8Array, options: PublishOptions = {}): Promise<Published> {
    const form = new FormData();
    const settings = { ...options.settings, ...(options.version === undefined ? {} : { version: options.version }) };
    form.set('settings', new Blob([JSON.stringify(settings)], { type: 'application/json' }));
    // A browser's Blob, unlike Node's, takes no bytes that could be shared.
    // eslint-disable-next-line typescript/no-unnecessary-type-assertion -- for the types of browsers
    form.set('model', model instanceof Blob ? model : new Blob([model as Uint8Array<ArrayBuffer>]), 'model.onnx');
    for (const [filename, file] of options.files ?? []) form.append('file', file, filename);
    const query = options.traffic === undefined ? '' : `?traffic=${options.traffic}`;
    const response = await this.request(path('/functions', name, undefined) + query, {
      method: 'PUT',
      body: form,
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const { version, remarks } = (await response.json()) as { version: string; remarks?: readonly string[] };
    return { name, version, created: response.status === 201, ...(remarks === undefined ? {} : { remarks }) };
  }

  async functions(): Promise<readonly FunctionInfo[]> {
    return ((await (await this.request('/functions')).json()) as { functions: FunctionInfo[] }).functions;
  }

  /**
   * Changes settings without an upload, at once and permanently: `{ slo: '50ms', batching: { max: 4 } }`. Null restores
   * the published value.
   * @param version undefined: all versions
   */
  async set(name: string, change: Readonly<Record<string, unknown>>, version?: string): Promise<FunctionInfo> {
    return (await this.#json('PATCH', path('/functions', name, version), change)) as FunctionInfo;
  }

  async versions(name: string): Promise<{ readonly versions: readonly VersionInfo[]; readonly traffic: TrafficInfo }> {
    return (await this.#json('GET', `${path('/functions', name, undefined)}/versions`)) as never;
  }

  /** Divides calls among versions. A version that had no calls before is loaded and tried first. */
  async changeTraffic(name: string, change: TrafficChange): Promise<TrafficInfo> {
    return (await this.#json('PATCH', `${path('/functions', name, undefined)}/traffic`, change)) as TrafficInfo;
  }

  /** @param percent of the calls; the version that serves most keeps the rest */
  async promote(name: string, version: string, percent = 100): Promise<TrafficInfo> {
    return (await this.#json('POST', `${path('/functions', name, version)}/promote?percent=${percent}`)) as TrafficInfo;
  }

  /** Gives all calls to the version that served before. */
  async rollBack(name: string): Promise<TrafficInfo> {
    return (await this.#json('POST', `${path('/functions', name, undefined)}/rollback`)) as TrafficInfo;
  }

  async #json(method: string, where: string, body?: object): Promise<unknown> {
    const sent =
      body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
    return await (await this.request(where, { method, ...sent })).json();
  }

  /** @param version undefined: all versions */
  async remove(name: string, version?: string): Promise<void> {
    await this.request(path('/functions', name, version), { method: 'DELETE' });
  }

  async load(name: string): Promise<void> {
    await this.request(`/v2/repository/models/${encodeURIComponent(name)}/load`, { method: 'POST' });
  }

  async unload(name: string): Promise<void> {
    await this.request(`/v2/repository/models/${encodeURIComponent(name)}/unload`, { method: 'POST' });
  }

  /** Whether the host, or a function of it, is ready to serve. */
  async isReady(name?: string, version?: string): Promise<boolean> {
    try {
      await this.request(name === undefined ? '/v2/health/ready' : `${path('/v2/models', name, version)}/ready`);
      return true;
    } catch (error) {
      if (error instanceof OverloadedError || error instanceof NotFoundError || error instanceof BadRequestError)
        return false;
      throw error;
    }
  }
}

export type AsyncState = 'waiting' | 'running' | 'finished' | 'cancelled';

/** A call that a host has accepted. */
export class AsyncCall {
  readonly id: string;
  readonly #client: Turntable;

  constructor(client: Turntable, id: string) {
    this.#client = client;
    this.id = id;
  }

  async status(): Promise<{ readonly status: AsyncState; readonly [field: string]: unknown }> {
    return (await (await this.#client.request(`${this.#path}/status`)).json()) as { status: AsyncState };
  }

  /**
   * The reply of the call, waiting for it if necessary; rejects if the call failed, with the error of a direct call.
   * @param pollMs pause between two requests
   */
  async result({
    pollMs = 200,
    signal,
  }: { readonly pollMs?: number; readonly signal?: AbortSignal } = {}): Promise<Response> {
    for (;;) {
      const response = await this.#client.request(this.#path, signal === undefined ? {} : { signal });
      const state = response.headers.get('x-call-status');
      if (state === 'cancelled') throw new TurntableError(`the call '${this.id}' was cancelled`, { status: 200 });
      if (response.status !== 202) return response;
      await response.body?.cancel();
      await pause(pollMs, signal);
    }
  }

  async cancel(): Promise<void> {
    await this.#client.request(this.#path, { method: 'DELETE' });
  }

  get #path(): string {
    return `/async-function/${encodeURIComponent(this.id)}`;
  }
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/** Path of a function, or of one version. */
export function path(prefix: string, name: string, version: string | undefined): string {
  const ofName = `${prefix}/${encodeURIComponent(name)}`;
  return version === undefined ? ofName : `${ofName}/versions/${encodeURIComponent(version)}`;
}

function initOf({ sloMs, signal, headers }: CallOptions, own: Readonly<Record<string, string>>): RequestInit {
  return {
    headers: { ...own, ...(sloMs === undefined ? {} : { 'x-turntable-slo': `${sloMs}ms` }), ...headers },
    ...(signal === undefined ? {} : { signal }),
  };
}

function contentTypeOf(body: BodyLike): Record<string, string> {
  if (typeof body === 'string') return { 'content-type': 'text/plain; charset=utf-8' };
  const type = body instanceof Blob ? body.type : '';
  return { 'content-type': type === '' ? 'application/octet-stream' : type };
}

/** What the headers of a reply say about its call. */
export function factsOf(headers: Headers): CallFacts {
  const number = (name: string): number | undefined => {
    const value = headers.get(name);
    return value === null ? undefined : Number(value);
  };
  return {
    placement: headers.get('x-turntable-placement') ?? undefined,
    coldStart: headers.get('x-model-cold-start') === 'true',
    queueMs: number('x-queue-time'),
    inferenceMs: number('x-inference-time'),
    totalMs: number('x-total-time'),
    requestId: headers.get('x-request-id') ?? undefined,
  };
}
