/** Replies as JSON Schema: the Open Inference Protocol's objects, Triton's extensions, and the host's own. */

const text = { type: 'string' } as const;
const whole = { type: 'integer', minimum: 0 } as const;
const flag = { type: 'boolean' } as const;
const listOf = (items: object): object => ({ type: 'array', items });
/** Promises these members; others may be present. */
const objectOf = (properties: Readonly<Record<string, object>>, optional: readonly string[] = []): object => ({
  type: 'object',
  properties,
  required: Object.keys(properties).filter((name) => !optional.includes(name)),
});

const datatype = {
  type: 'string',
  // prettier-ignore
  enum: ['BOOL', 'UINT8', 'UINT16', 'UINT32', 'UINT64', 'INT8', 'INT16', 'INT32', 'INT64',
    'FP16', 'BF16', 'FP32', 'FP64', 'BYTES'],
};
/** In metadata -1 stands for a size that varies. */
const sizes = listOf({ type: 'integer', minimum: -1 });
const parameters = { type: 'object', additionalProperties: { type: ['boolean', 'integer', 'number', 'string'] } };
/** `optional`: a request may leave the input out; the model has a value for it. */
const tensorMetadata = objectOf({ name: text, datatype, shape: sizes, optional: flag }, ['optional']);
const tensorConfig = objectOf({ name: text, data_type: text, dims: sizes, optional: flag }, ['optional']);
const tensorData = { type: 'array', description: 'Flat or nested, row-major; NaN and infinities as strings.' };
const duration = objectOf({ count: whole, ns: whole });
const states = ['READY', 'LOADING', 'UNAVAILABLE'];

const statistics = objectOf({
  name: text,
  version: text,
  last_inference: whole,
  inference_count: whole,
  execution_count: whole,
  inference_stats: objectOf({
    success: duration,
    fail: duration,
    queue: duration,
    compute_input: duration,
    compute_infer: duration,
    compute_output: duration,
    cache_hit: duration,
    cache_miss: duration,
  }),
  batch_stats: listOf(objectOf({ batch_size: whole, compute_input: duration, compute_infer: duration })),
});

const traffic = objectOf({
  name: text,
  shares: { type: 'object', additionalProperties: { type: 'number' } },
  key: { type: ['string', 'null'] },
  fallback: flag,
  before: { type: ['string', 'null'] },
  on_trial: { type: ['string', 'null'] },
  fell_back: { type: ['object', 'null'] },
});

const functionView = {
  ...objectOf({
    name: text,
    version: text,
    state: { enum: ['ready', 'elsewhere', 'validating', 'unavailable'] },
    source: { enum: ['folder', 'upload'] },
    slo_ms: { type: 'number' },
    sha256: text,
    bytes: whole,
    published_at: text,
    instances: whole,
    waiting: whole,
    invocations: whole,
    url: text,
  }),
};

export const replySchemas = {
  ServerMetadata: objectOf({ name: text, version: text, extensions: listOf(text) }),
  Live: objectOf({ live: { const: true } }),
  Ready: objectOf({ ready: { const: true } }),
  ModelList: objectOf({ models: listOf(text) }),
  ModelMetadata: objectOf({
    name: text,
    versions: listOf(text),
    platform: text,
    inputs: listOf(tensorMetadata),
    outputs: listOf(tensorMetadata),
  }),
  ModelReady: objectOf({ name: text, version: text, ready: { const: true } }),
  ModelConfig: objectOf({
    name: text,
    platform: text,
    backend: text,
    max_batch_size: whole,
    input: listOf(tensorConfig),
    output: listOf(tensorConfig),
    instance_group: listOf(objectOf({ name: text, kind: text, count: whole })),
  }),
  ModelStatistics: objectOf({ model_stats: listOf(statistics) }),
  RepositoryIndex: listOf(objectOf({ name: text, version: text, state: { enum: states }, reason: text })),
  Loaded: objectOf({ name: text, version: text, state: { const: 'READY' } }),
  Unloaded: objectOf({ name: text, unloaded: listOf(text) }),
  InferReply: objectOf(
    {
      id: text,
      model_name: text,
      model_version: text,
      outputs: listOf(
        objectOf({ name: text, datatype, shape: listOf(whole), data: tensorData, parameters }, ['data', 'parameters']),
      ),
    },
    ['id'],
  ),
  LogSettings: objectOf({
    log_file: text,
    log_info: flag,
    log_warning: flag,
    log_error: flag,
    log_verbose_level: whole,
    log_format: text,
  }),
  TraceSettings: objectOf({ trace_level: listOf(text), trace_rate: text, trace_count: text, log_frequency: text }),
  Regions: listOf({ type: 'object' }),
  FunctionView: functionView,
  VersionList: objectOf({ name: text, versions: listOf(functionView), traffic }),
  Traffic: traffic,
  Log: objectOf({
    name: text,
    lines: listOf(
      objectOf({
        seq: whole,
        at: text,
        source: { enum: ['host', 'handler', 'instance'] },
        level: { enum: ['debug', 'info', 'warn', 'error'] },
        version: { type: ['string', 'null'] },
        text,
      }),
    ),
  }),
  FunctionList: objectOf({ functions: listOf(functionView) }),
  Workers: objectOf({ redis: { type: 'object' }, workers: listOf({ type: 'object' }) }),
  AcceptedCall: objectOf({ id: text, status: { const: 'accepted' }, function: text, url: text }),
  CallStatus: objectOf({ id: text, status: text, function: text, accepted_at: text, url: text }),
  Description: objectOf({ openapi: text, info: { type: 'object' }, paths: { type: 'object' } }),
} as const satisfies Readonly<Record<string, object>>;

export type ReplyName = keyof typeof replySchemas;

export const inferRequestSchema = objectOf(
  {
    id: text,
    parameters,
    inputs: listOf(
      objectOf({ name: text, shape: listOf(whole), datatype, data: tensorData, parameters }, ['data', 'parameters']),
    ),
    outputs: listOf(objectOf({ name: text, parameters }, ['parameters'])),
  },
  ['id', 'parameters', 'outputs'],
);

export const errorSchema = objectOf({ error: text });
