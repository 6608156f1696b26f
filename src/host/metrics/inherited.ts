/**
 * Series under the names that dashboards of ModelMesh, OpenFaaS and Triton query; docs/coming-from.md has the tables.
 */
import { readCoreTimes, readMemory } from '../../hardware/index.ts';
import type { Exposition, HistogramSample } from './exposition.ts';
import { busyShare } from '../history/index.ts';
import { addTo, loadedVersions, type Metered } from './samples.ts';
import {
  codeOfStatus,
  Histogram,
  secondsBuckets,
  type Statistics,
  type VersionStatistics,
} from '../records/statistics.ts';
import { getOrMake } from '../../tools/index.ts';
import { allVersions, stateShown } from '../rollout/versions.ts';

/** ModelMesh labels requests by the method of gRPC's inference service, whatever protocol they used. */
const inferMethod = 'inference.GRPCInferenceService/ModelInfer';

export function addModelMeshMetrics(options: Metered): void {
  const { exposition, registry, statistics, gpus, memory, invoker } = options;
  const { counter, gauge, histogram } = exposition;
  // No series before the first observation.
  const single = (name: string, help: string, read: () => Histogram, labels = {}): void =>
    histogram(name, help, () => [{ labels, histogram: read() }].filter((sample) => sample.histogram.count > 0));
  const summed = (name: string, help: string, read: (version: VersionStatistics) => Histogram, labels = {}): void =>
    single(
      name,
      help,
      () => {
        const sum = new Histogram(secondsBuckets);
        for (const version of statistics.versions()) addTo(sum, read(version));
        return inMilliseconds(sum);
      },
      labels,
    );
  summed('modelmesh_cache_miss_milliseconds', 'What invocations waited for loads', ({ loadSeconds }) => loadSeconds);
  single(
    'modelmesh_loadmodel_milliseconds',
    'Loads, into CPU instances and onto GPUs',
    () => statistics.loadMilliseconds,
  );
  single('modelmesh_unloadmodel_milliseconds', 'Unloads that were asked for', () => statistics.unloadMilliseconds);
  single(
    'modelmesh_age_at_eviction_milliseconds',
    'Age of evicted instances',
    () => statistics.ageAtEvictionMilliseconds,
  );
  single('modelmesh_loaded_model_size_bytes', 'Bytes of models when they were loaded', () => statistics.loadedBytes);
  summed(
    'modelmesh_req_queue_delay_milliseconds',
    'Waiting of invocations, without loads',
    ({ queueSeconds }) => queueSeconds,
  );
  counter(
    'modelmesh_loadmodel_failure',
    'Loads that failed and were told to a client',
    () => statistics.errors.get('model-load-failed') ?? 0,
  );
  const byCode = (name: string, help: string, read: () => Map<string, Histogram>): void =>
    histogram(name, help, () =>
      Array.from(read(), ([code, one]): HistogramSample => ({ labels: { method: inferMethod, code }, histogram: one })),
    );
  byCode('modelmesh_api_request_milliseconds', 'Calls of functions, by code of gRPC', () => callsByCode(statistics));
  summed('modelmesh_invoke_model_milliseconds', 'Invocations that were answered', ({ totalSeconds }) => totalSeconds, {
    method: inferMethod,
    code: 'OK',
  });
  byCode('modelmesh_request_size_bytes', 'Bodies of calls', () => statistics.requestBytes);
  byCode('modelmesh_response_size_bytes', 'Bodies of replies to calls', () => statistics.replyBytes);

  const loaded = (): LoadedSum => sumOfLoaded(options);
  gauge(
    'modelmesh_models_loaded_total',
    'Versions with an instance that is ready, or weights on a GPU',
    () => loaded().versions,
  );
  gauge('modelmesh_models_managed_total', 'Versions that are registered', () => allVersions(registry).length);
  gauge(
    'modelmesh_models_with_failure_total',
    'Versions that cannot serve',
    () =>
      allVersions(registry).filter((version) => stateShown(version, invoker.outOfService).status === 'unavailable')
        .length,
  );
  gauge('modelmesh_instance_models_total', 'Copies of models in CPU instances and on GPUs', () => loaded().copies);
  gauge('modelmesh_instance_lru_seconds', 'Latest use of the model unused for longest, since 1970', () => {
    const { lastUseMs } = loaded();
    return lastUseMs && lastUseMs / 1000;
  });
  gauge('modelmesh_instance_lru_age_seconds', 'Seconds since that use', () => {
    const { lastUseMs } = loaded();
    return lastUseMs && Math.max(0, (Date.now() - lastUseMs) / 1000);
  });
  const capacityBytes = (): number =>
    (gpus?.info?.devices ?? []).reduce((bytes, { limitBytes }) => bytes + limitBytes, memory.totalBytes);
  gauge('modelmesh_instance_capacity_bytes', 'Bytes of memory that models may fill, that of GPUs too', capacityBytes);
  gauge('modelmesh_instance_used_bytes', 'Bytes of the loaded models, once for each copy', () => loaded().bytes);
  gauge('modelmesh_instance_used_bps', 'The same in hundredths of a percent of the capacity', () =>
    Math.round((loaded().bytes / capacityBytes()) * 10_000),
  );
}

type LoadedSum = ReturnType<typeof sumOfLoaded>;

function sumOfLoaded({ registry, pools, gpus, statistics }: Metered) {
  const there = loadedVersions(registry, pools, gpus).filter(({ copies }) => copies > 0);
  const uses = there.map(({ version }) => statistics.find(version.key)?.lastCallAtMs ?? 0).filter((ms) => ms > 0);
  return {
    versions: there.length,
    copies: there.reduce((sum, { copies }) => sum + copies, 0),
    bytes: there.reduce((sum, { bytes }) => sum + bytes, 0),
    /** Last use of the loaded version that was unused longest. */
    lastUseMs: uses.length === 0 ? undefined : Math.min(...uses),
  };
}

export function addGatewayMetrics({
  exposition: { counter, gauge, histogram },
  registry,
  pools,
  statistics,
  gpus,
}: Metered): void {
  counter('gateway_function_invocation_total', 'Calls of functions that have ended', (add) => {
    for (const [name, byStatus] of statistics.calls()) {
      for (const [code, seconds] of byStatus) add({ function_name: name, code }, seconds.count);
    }
  });
  counter('gateway_function_invocation_started', 'Calls of functions that have begun', (add) => {
    for (const [name, count] of statistics.started()) add({ function_name: name }, count);
  });
  histogram('gateway_functions_seconds', 'Duration of calls of functions', () =>
    Array.from(statistics.calls(), ([name, byStatus]) =>
      Array.from(byStatus, ([code, seconds]) => ({ labels: { function_name: name, code }, histogram: seconds })),
    ).flat(),
  );
  gauge(
    'gateway_service_count',
    'Copies of each function that are ready: CPU instances, and GPUs that hold it',
    (set) => {
      const counts = new Map(registry.names().map((name) => [name, 0]));
      for (const { version, copies } of loadedVersions(registry, pools, gpus)) {
        counts.set(version.name, (counts.get(version.name) ?? 0) + copies);
      }
      for (const [name, count] of counts) set({ function_name: name }, count);
    },
  );
}

/** For the whole machine, as Triton reports them. */
export function addMachineMetrics({ gauge }: Exposition): void {
  let [before, beforeMs] = [readCoreTimes(), performance.now()];
  let utilization = 0;
  gauge('nv_cpu_utilization', 'Share of the cores that was busy since about the last scrape, 0 to 1', () => {
    const nowMs = performance.now();
    // Two scrapers in quick succession would leave too short an interval to measure.
    if (nowMs - beforeMs > 1000) {
      const now = readCoreTimes();
      utilization = busyShare(before, now);
      [before, beforeMs] = [now, nowMs];
    }
    return utilization;
  });
  gauge('nv_cpu_memory_total_bytes', 'Main memory that this host may use', () => readMemory().ownBytes);
  gauge('nv_cpu_memory_used_bytes', 'Of it in use', () => {
    const { totalBytes, availableBytes, limitUsedBytes = totalBytes - availableBytes } = readMemory();
    return limitUsedBytes;
  });
}

function callsByCode(statistics: Statistics): Map<string, Histogram> {
  const byCode = new Map<string, Histogram>();
  for (const byStatus of statistics.calls().values()) {
    for (const [status, seconds] of byStatus) {
      const sum = getOrMake(byCode, codeOfStatus(status), () => new Histogram(secondsBuckets));
      addTo(sum, seconds);
    }
  }
  return new Map(Array.from(byCode, ([code, sum]) => [code, inMilliseconds(sum)]));
}

function inMilliseconds({ bounds, counts, sum, count }: Histogram): Histogram {
  const made = new Histogram(bounds.map((bound) => bound * 1000));
  made.counts.splice(0, counts.length, ...counts);
  made.sum = sum * 1000;
  made.count = count;
  return made;
}
