/**
 * Prometheus metrics. The numbers are kept by {@link Statistics} and by the pools; they become series only when they are
 * scraped, and a scrape is never a use of a function.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import {
  collectDefaultMetrics,
  Counter,
  Gauge,
  Histogram as PromHistogram,
  Registry as PromRegistry,
} from 'prom-client';
import type { CpuPools, PoolState } from '../cpu/index.ts';
import { Histogram, ratioBuckets, secondsBuckets, type Statistics, type VersionStatistics } from './statistics.ts';
import type { GpuHost } from './gpu/index.ts';
import { addGpuMetrics } from './metrics-gpu.ts';
import { addQueueMetrics } from './metrics-queue.ts';
import type { Placer, Queueing } from './queueing/index.ts';
import type { FunctionVersion, Registry } from './types.ts';

export interface MetricsOptions {
  readonly registry: Registry;
  readonly pools: CpuPools;
  readonly statistics: Statistics;
  /** Bytes of memory that models may fill on this machine. */
  readonly memoryBytes: number;
  /** What carries work elsewhere; absent: nothing does. */
  readonly queueing?: Queueing | undefined;
  readonly placer?: Placer | undefined;
  /** Absent where the host drives no GPU. */
  readonly gpus?: GpuHost | undefined;
  /** Threads of an instance of the version. */
  readonly threadsOf: (version: FunctionVersion) => number;
  /** Most rows of a run of the version. */
  readonly batchMaxOf: (version: FunctionVersion) => number;
}

export interface Metrics {
  readonly contentType: string;
  /** The exposition text. */
  text(): Promise<string>;
  /** Stops measuring the event loop's delay. */
  close(): void;
}

type Labels = Readonly<Record<string, string | number>>;

export function createMetrics(options: MetricsOptions): Metrics {
  const { registry, pools, statistics, memoryBytes, threadsOf, batchMaxOf } = options;
  const prom = new PromRegistry();
  collectDefaultMetrics({ register: prom });

  const counter = (name: string, help: string, labelNames: string[], read: (add: AddSample) => void): void => {
    const made = new Counter({
      name,
      help,
      labelNames,
      registers: [],
      collect: () => {
        made.reset();
        read((labels, value) => made.inc(labels, value));
      },
    });
    prom.registerMetric(made);
  };
  const gauge = (name: string, help: string, labelNames: string[], read: (set: AddSample) => void): void => {
    const made = new Gauge({
      name,
      help,
      labelNames,
      registers: [],
      collect: () => {
        made.reset();
        read((labels, value) => made.set(labels, value));
      },
    });
    prom.registerMetric(made);
  };
  const histogram = (name: string, help: string, labelNames: string[], read: () => HistogramSample[]): void => {
    prom.registerMetric(new ReadHistogram(name, help, labelNames, read));
  };
  /** A counter with one series a version. */
  const versionCounter = (name: string, help: string, read: (version: VersionStatistics) => number): void => {
    counter(name, help, ['model', 'version'], (add) => {
      for (const version of statistics.versions()) add(modelLabels(version), read(version));
    });
  };
  const versionHistogram = (name: string, help: string, read: (version: VersionStatistics) => Histogram): void => {
    histogram(name, help, ['function'], () => {
      // One series a function: its versions together.
      const merged = new Map<string, Histogram>();
      for (const version of statistics.versions()) {
        const sum = merged.get(version.name) ?? new Histogram(secondsBuckets);
        addTo(sum, read(version));
        merged.set(version.name, sum);
      }
      return Array.from(merged, ([name, sum]) => ({ labels: { function: name }, histogram: sum }));
    });
  };

  versionCounter('nv_inference_request_success', 'Invocations that were answered', ({ successes }) => successes);
  counter('nv_inference_request_failure', 'Invocations that failed', ['model', 'version', 'reason'], (add) => {
    for (const version of statistics.versions()) {
      for (const [reason, count] of Object.entries(version.failures)) add({ ...modelLabels(version), reason }, count);
    }
  });
  versionCounter('nv_inference_count', 'Inferences: the rows of all batches', ({ inferences }) => inferences);
  versionCounter('nv_inference_exec_count', 'Runs of the model', ({ executions }) => Math.round(executions));
  gauge('nv_inference_pending_request_count', 'Invocations that wait', ['model', 'version'], (set) => {
    for (const [version, state] of pooled(registry, pools)) set(modelLabels(version), state.queueLength);
  });
  const durations = [
    ['request', 'from arrival to answer', (version: VersionStatistics) => version.requestMs],
    ['queue', 'waiting', (version: VersionStatistics) => version.queueMs],
    ['compute_input', 'making the input ready', (version: VersionStatistics) => version.computeInputMs],
    ['compute_infer', 'running the model', (version: VersionStatistics) => version.computeInferMs],
    ['compute_output', 'making the output ready', (version: VersionStatistics) => version.computeOutputMs],
  ] as const;
  for (const [part, what, readMs] of durations) {
    versionCounter(
      `nv_inference_${part}_duration_us`,
      `Microseconds spent ${what}, all successful invocations`,
      (version) => Math.round(readMs(version) * 1000),
    );
  }
  gauge('nv_model_load_duration_secs', 'Seconds that the latest load took', ['model', 'version'], (set) => {
    for (const version of statistics.versions()) {
      if (version.lastLoadMs !== undefined) set(modelLabels(version), version.lastLoadMs / 1000);
    }
  });

  const single = (name: string, help: string, one: Histogram): void =>
    // Nothing is said of what has not happened yet.
    histogram(name, help, [], () => (one.count === 0 ? [] : [{ labels: {}, histogram: one }]));
  single('modelmesh_cache_miss_milliseconds', 'What invocations waited for loads', statistics.cacheMissMilliseconds);
  single('modelmesh_loadmodel_milliseconds', 'Loads that somebody waited for', statistics.loadMilliseconds);
  single('modelmesh_unloadmodel_milliseconds', 'Unloads that were asked for', statistics.unloadMilliseconds);
  single('modelmesh_age_at_eviction_milliseconds', 'Age of evicted instances', statistics.ageAtEvictionMilliseconds);
  single('modelmesh_loaded_model_size_bytes', 'Bytes of models when they were loaded', statistics.loadedBytes);
  gauge('modelmesh_models_loaded_total', 'Versions with an instance that is ready', [], (set) =>
    set({}, pools.states().filter((state) => readyInstances(state) > 0).length),
  );
  gauge('modelmesh_models_managed_total', 'Versions that are registered', [], (set) =>
    set({}, allVersions(registry).length),
  );
  gauge('modelmesh_instance_capacity_bytes', 'Bytes of memory that models may fill', [], (set) => set({}, memoryBytes));
  gauge('modelmesh_instance_used_bytes', 'Bytes of the loaded models, once for each instance', [], (set) => {
    let used = 0;
    for (const [version, state] of pooled(registry, pools)) used += version.modelBytes * readyInstances(state);
    set({}, used);
  });

  counter('gateway_function_invocation_total', 'Calls of functions over HTTP', ['function_name', 'code'], (add) => {
    for (const [name, byStatus] of statistics.calls()) {
      for (const [code, { seconds }] of byStatus) add({ function_name: name, code }, seconds.count);
    }
  });
  histogram('gateway_functions_seconds', 'Duration of calls over HTTP', ['function_name', 'code'], () =>
    Array.from(statistics.calls(), ([name, byStatus]) =>
      Array.from(byStatus, ([code, { seconds }]) => ({ labels: { function_name: name, code }, histogram: seconds })),
    ).flat(),
  );

  counter('turntable_goodput_total', 'Invocations by their end against the SLO', ['function', 'outcome'], (add) => {
    for (const { name, outcomes } of statistics.versions()) {
      for (const [outcome, count] of Object.entries(outcomes)) add({ function: name, outcome }, count);
    }
  });
  counter('turntable_cold_starts_total', 'Invocations that waited for a load', ['function', 'plan'], (add) => {
    for (const { name, coldStarts, gpuColdStarts } of statistics.versions()) {
      let onGpus = 0;
      for (const [plan, count] of gpuColdStarts) {
        add({ function: name, plan }, count);
        onGpus += count;
      }
      add({ function: name, plan: 'cpu' }, coldStarts - onGpus);
    }
  });
  counter('turntable_evictions_total', 'Instances that were given up', ['function', 'cause'], (add) => {
    for (const { name, evictions } of statistics.versions()) {
      for (const [cause, count] of evictions) add({ function: name, cause }, count);
    }
  });
  versionHistogram('turntable_queue_seconds', 'Waiting, without load', ({ queueSeconds }) => queueSeconds);
  versionHistogram('turntable_load_seconds', 'Waiting for a load, cold starts only', ({ loadSeconds }) => loadSeconds);
  versionHistogram('turntable_inference_seconds', 'Running the model', ({ inferenceSeconds }) => inferenceSeconds);
  versionHistogram('turntable_total_seconds', 'From arrival to answer', ({ totalSeconds }) => totalSeconds);
  histogram(
    'turntable_prediction_error_ratio',
    'Mean latency on the CPU pool, |predicted / observed - 1| of each window',
    ['function'],
    () => {
      const merged = new Map<string, Histogram>();
      for (const { name, predictionError } of statistics.versions()) {
        if (predictionError.count === 0) continue;
        const sum = merged.get(name) ?? new Histogram(ratioBuckets);
        addTo(sum, predictionError);
        merged.set(name, sum);
      }
      return Array.from(merged, ([name, sum]) => ({ labels: { function: name }, histogram: sum }));
    },
  );
  gauge(
    'turntable_pool_configuration_info',
    'The <i,t,b> of each pool, a series for each group: on demand the instances now',
    ['function', 'version', 'instances', 'threads', 'batch'],
    (set) => {
      for (const [version, state] of pooled(registry, pools)) {
        if (state.configuration !== undefined) {
          for (const { instances, threads, batch } of state.configuration.groups) {
            set({ function: version.name, version: version.version, instances, threads, batch }, 1);
          }
          continue;
        }
        const { name, version: number } = version;
        const batch = batchMaxOf(version);
        set(
          { function: name, version: number, instances: readyInstances(state), threads: threadsOf(version), batch },
          1,
        );
      }
    },
  );
  if (options.queueing?.remote === true) {
    const { queueing, placer } = options;
    addQueueMetrics({ counter, gauge, queueing, placer, statistics });
  }
  if (options.gpus !== undefined) {
    addGpuMetrics(prom, options.gpus);
    histogram(
      'turntable_gpu_prediction_error_ratio',
      'Latency of invocations on GPUs, |predicted / observed - 1| of each',
      ['function'],
      () => {
        const merged = new Map<string, Histogram>();
        for (const { name, gpuPredictionError } of statistics.versions()) {
          if (gpuPredictionError.count === 0) continue;
          const sum = merged.get(name) ?? new Histogram(ratioBuckets);
          addTo(sum, gpuPredictionError);
          merged.set(name, sum);
        }
        return Array.from(merged, ([name, sum]) => ({ labels: { function: name }, histogram: sum }));
      },
    );
  }
  gauge('turntable_requests_in_flight', 'Requests that count against the limit now', [], (set) =>
    set({}, statistics.requestsInFlight),
  );
  counter('turntable_errors_total', 'Failures that clients were told, by code', ['code'], (add) => {
    for (const [code, count] of statistics.errors) add({ code }, count);
  });

  // Its own sampler: the default metrics reset theirs on each scrape, at 10 ms.
  const resolutionMs = 5;
  const loopDelay = monitorEventLoopDelay({ resolution: resolutionMs });
  loopDelay.enable();
  gauge(
    'turntable_event_loop_delay_seconds',
    "Delay of the host's event loop since the last scrape",
    ['quantile'],
    (set) => {
      for (const quantile of [0.5, 0.99, 1]) {
        // What Node records is the time between two ticks of its timer, so that no delay at all is the resolution.
        const betweenNs = quantile === 1 ? loopDelay.max : loopDelay.percentile(quantile * 100);
        set({ quantile }, loopDelay.count === 0 ? 0 : Math.max(0, betweenNs / 1e9 - resolutionMs / 1000));
      }
      loopDelay.reset();
    },
  );

  return {
    contentType: prom.contentType,
    text: () => prom.metrics(),
    close: () => {
      loopDelay.disable();
      prom.clear();
    },
  };
}

type AddSample = (labels: Record<string, string | number>, value: number) => void;

interface HistogramSample {
  readonly labels: Labels;
  readonly histogram: Histogram;
}

/** A histogram whose counts stand elsewhere; prom-client's own would hash its labels at each observation. */
class ReadHistogram extends PromHistogram {
  readonly #name: string;
  readonly #help: string;
  readonly #read: () => HistogramSample[];

  constructor(name: string, help: string, labelNames: string[], read: () => HistogramSample[]) {
    super({ name, help, labelNames, registers: [] });
    this.#name = name;
    this.#help = help;
    this.#read = read;
  }

  override get(): ReturnType<PromHistogram['get']> {
    const values = this.#read().flatMap(({ labels, histogram }) => samplesOf(this.#name, labels, histogram));
    const result = { name: this.#name, help: this.#help, type: 'histogram', values, aggregator: 'sum' };
    // The declared type of `type` is an enum that prom-client does not hold to at run time: it is this string.
    return Promise.resolve(result as unknown as Awaited<ReturnType<PromHistogram['get']>>);
  }

  /** What the registry calls when it writes text. */
  getForPromString(): ReturnType<PromHistogram['get']> {
    return this.get();
  }
}

function samplesOf(name: string, labels: Labels, { bounds, counts, sum, count }: Histogram): object[] {
  const samples: object[] = [];
  let below = 0;
  for (const [index, bound] of bounds.entries()) {
    below += counts[index] ?? 0;
    samples.push({ metricName: `${name}_bucket`, labels: { ...labels, le: bound }, value: below });
  }
  samples.push(
    { metricName: `${name}_bucket`, labels: { ...labels, le: '+Inf' }, value: count },
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  );
  return samples;
}

function addTo(sum: Histogram, part: Histogram): void {
  sum.sum += part.sum;
  sum.count += part.count;
  for (const [index, count] of part.counts.entries()) sum.counts[index] = (sum.counts[index] ?? 0) + count;
}

function modelLabels({ name, version }: { readonly name: string; readonly version: string }): Record<string, string> {
  return { model: name, version };
}

function allVersions(registry: Registry): FunctionVersion[] {
  return registry.names().flatMap((name) => registry.versions(name));
}

function pooled(registry: Registry, pools: CpuPools): [FunctionVersion, PoolState][] {
  const states = new Map(pools.states().map((state) => [state.key, state]));
  return allVersions(registry).flatMap((version): [FunctionVersion, PoolState][] => {
    const state = states.get(version.key);
    return state === undefined ? [] : [[version, state]];
  });
}

function readyInstances({ instances }: PoolState): number {
  return instances.filter(({ state }) => state !== 'loading').length;
}
