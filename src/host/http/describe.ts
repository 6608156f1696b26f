/** Functions as the outside sees them: OIP metadata, Triton's configuration and statistics, and the host's own form. */
import { elementBytes } from '../../tensor/index.ts';
import { formatDuration, given } from '../../tools/index.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import type { OutOfService } from '../calls/out-of-service.ts';
import type { VersionStatistics } from '../records/statistics.ts';
import { instancesMaxOf, threadsOf } from '../pools/pools-in-step.ts';
import type { FunctionVersion, ModelMetadata, Registry, TensorSpec } from '../types.ts';
import { allVersions, rowsView, stateShown } from '../rollout/versions.ts';
import { modelSpec, namedTensors } from '../infer/model-spec.ts';
import type { HostContext } from './host-context.ts';

/** Name of the runtime and format in Triton's list of platforms. */
const platform = 'onnxruntime_onnx';

/** `GET /v2/models/{m}`: the Open Inference Protocol's model metadata. */
export function oipMetadata(registry: Registry, version: FunctionVersion): object {
  const { inputs, optionalInputs, outputs } = modelSpec(metadataOf(version));
  return {
    name: version.name,
    versions: registry.versions(version.name).map((each) => each.version),
    platform,
    inputs: [...inputs.map(tensorMetadata), ...optionalInputs.map((input) => optional(tensorMetadata(input)))],
    outputs: outputs.map(tensorMetadata),
  };
}

/** As Triton marks an input that a request may leave out. */
const optional = <Described extends object>(described: Described) => ({ ...described, optional: true });

function tensorMetadata({ name, datatype, shape }: TensorSpec): object {
  return { name, datatype, shape };
}

/** Throws HostError 'not-ready' with the reason if the model has not been validated, or was refused. */
function metadataOf(version: FunctionVersion): ModelMetadata {
  if (version.metadata !== undefined) return version.metadata;
  const reason = version.state.status === 'unavailable' ? version.state.reason : 'it has not been validated yet';
  throw new HostError('not-ready', `function '${version.name}' version ${version.version} has no metadata: ${reason}`);
}

/** `GET /v2/models/{m}/config`: Triton's model configuration, as far as it applies here. */
export function tritonConfig(
  version: FunctionVersion,
  { cpu: defaults, limits }: Pick<HostConfig, 'cpu' | 'limits'>,
): object {
  const metadata = metadataOf(version);
  const { batched, optionalInputs } = modelSpec(metadata);
  const { settings } = version;
  const instances = instancesMaxOf(version, { cpu: defaults });
  return {
    name: version.name,
    platform,
    backend: 'onnxruntime',
    default_model_filename: settings.model,
    // Triton's clients take 0 for 'has no batch dimension'.
    max_batch_size: batched ? (settings.rowsMax ?? rowsThatFit(metadata.inputs, limits.bodyBytesMax)) : 0,
    // An optional input has no rows of the batch.
    input: [
      ...metadata.inputs.map((input) => describe(input, batched)),
      ...optionalInputs.map((input) => optional(describe(input, false))),
    ],
    output: metadata.outputs.map((output) => describe(output, batched)),
    ...(batched && settings.batching.batchMax > 1 && version.rows?.kind !== 'alone'
      ? { dynamic_batching: { max_queue_delay_microseconds: Math.round(settings.batching.delayMs * 1000) } }
      : undefined),
    instance_group: [{ name: version.key, kind: 'KIND_CPU', count: instances }],
    parameters: {
      slo: { string_value: formatDuration(settings.sloMs) },
      threads: { string_value: String(threadsOf(version, { cpu: defaults })) },
    },
  };
}

function describe({ name, datatype, shape }: TensorSpec, hasRows: boolean) {
  const type = datatype === 'BYTES' ? 'STRING' : datatype;
  return { name, data_type: `TYPE_${type}`, dims: hasRows ? shape.slice(1) : shape };
}

/** Rows of a request that fit into a body: the limit of a client's batch if there is no other. */
function rowsThatFit(inputs: readonly TensorSpec[], bodyBytesMax: number): number {
  const rowBytes = inputs.reduce((sum, { datatype, shape }) => {
    const elements = shape.slice(1).reduce((product, size) => product * Math.max(1, size), 1);
    return sum + elements * (elementBytes[datatype] || 4);
  }, 0);
  return Math.max(1, Math.min(2 ** 31 - 1, Math.floor(bodyBytesMax / Math.max(1, rowBytes))));
}

/** One entry of Triton's `model_stats`. Reading it is never a use. */
export function tritonStatistics(version: FunctionVersion, statistics: VersionStatistics): object {
  const { successes, failures } = statistics;
  const failed = Object.values(failures).reduce((sum, count) => sum + count, 0);
  return {
    name: version.name,
    version: version.version,
    last_inference: statistics.lastInferenceAtMs,
    inference_count: statistics.inferences,
    execution_count: Math.round(statistics.executions),
    inference_stats: {
      success: duration(successes, statistics.requestMs),
      fail: duration(failed, statistics.failureMs),
      queue: duration(successes, statistics.queueMs),
      compute_input: duration(successes, statistics.preprocessMs),
      compute_infer: duration(successes, statistics.inferMs),
      compute_output: duration(successes, statistics.postprocessMs),
      cache_hit: duration(0, 0),
      cache_miss: duration(0, 0),
    },
    // As in Triton, a size is rows of a run, and not calls that shared it.
    batch_stats: [...statistics.batches]
      .sort(([left], [right]) => left - right)
      .map(([rows, batch]) => ({
        batch_size: rows,
        compute_input: duration(batch.executions, batch.preprocessMs),
        compute_infer: duration(batch.executions, batch.inferMs),
        compute_output: duration(batch.executions, batch.postprocessMs),
      })),
    turntable: {
      hits: successes - statistics.coldStarts,
      gpu_hits: statistics.gpuHits,
      cold_starts: statistics.coldStarts,
      gpu_cold_starts: Object.fromEntries(statistics.gpuColdStarts),
      disk_starts: statistics.diskStarts,
      evictions: Object.fromEntries(statistics.evictions),
    },
  };
}

function duration(count: number, ms: number): { count: number; ns: number } {
  return { count: Math.round(count), ns: Math.round(ms * 1e6) };
}

/** `POST /v2/repository/index`: every version, or with `readyOnly` the ready ones. */
export function repositoryIndex(registry: Registry, outOfService: OutOfService, readyOnly: boolean): object[] {
  return allVersions(registry)
    .map((version) => ({ version, why: outOfService.why(version) }))
    .filter(({ version, why }) => !readyOnly || (servable.has(version.state.status) && why === undefined))
    .map(({ version, why }) => indexEntry(version, why));
}

/** What takes calls here. */
const servable: ReadonlySet<string> = new Set(['ready', 'elsewhere']);

function indexEntry({ name, version, state }: FunctionVersion, outOfService: string | undefined): object {
  if (outOfService !== undefined) return { name, version, state: 'UNAVAILABLE', reason: outOfService };
  switch (state.status) {
    case 'ready':
    case 'elsewhere': // This host answers the request.
      return { name, version, state: 'READY', reason: '' };
    case 'validating':
      return { name, version, state: 'LOADING', reason: 'the model is being validated' };
    case 'unavailable':
      return { name, version, state: 'UNAVAILABLE', reason: state.reason };
  }
}

/** What is listed of a function. */
export type ListedFunction = ReturnType<typeof functionView>;

/** The host's own API view of one version. */
export function functionView(
  version: FunctionVersion,
  { pools, statistics, invoker }: Pick<HostContext, 'pools' | 'statistics' | 'invoker'>,
) {
  const { name, settings, metadata } = version;
  const state = stateShown(version, invoker.outOfService);
  const pool = pools.state(version.key);
  return {
    name,
    version: version.version,
    state: state.status,
    ...(state.status === 'unavailable' ? { reason: state.reason } : undefined),
    description: settings.description,
    example: settings.example,
    source: version.source,
    slo: formatDuration(settings.sloMs),
    slo_ms: settings.sloMs,
    handler: version.handlerPath !== undefined,
    pinned: settings.pinned,
    ...given({ gpu: settings.gpu }),
    priority: settings.priority,
    batching: {
      max: settings.batching.batchMax,
      delay: formatDuration(settings.batching.delayMs),
      ...given({ assume: settings.batching.assume, rows: rowsView(version) }),
    },
    sha256: version.modelSha256,
    bytes: version.modelBytes,
    published_at: new Date(version.publishedAtMs).toISOString(),
    ...(metadata === undefined
      ? undefined
      : {
          ...namedTensors(metadata),
          ...(metadata.remarks === undefined ? undefined : { remarks: metadata.remarks }),
          parameters: metadata.parameterCount,
          opset: metadata.opset,
          producer: metadata.producer,
        }),
    instances: pool?.instances.length ?? 0,
    waiting: pool?.queueLength ?? 0,
    invocations: statistics.find(version.key)?.successes ?? 0,
    url: functionPath(version),
  };
}

/** Where the version is called. */
export function functionPath({ name, version }: FunctionVersion): string {
  return `/function/${encodeURIComponent(name)}/versions/${encodeURIComponent(version)}`;
}
