/**
 * Prometheus metrics. The numbers are kept by {@link Statistics} and by the pools; they become series only when they
 * are scraped, and a scrape is never a use of a function.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { collectDefaultMetrics, Registry as PromRegistry } from 'prom-client';
import type { CpuPools, PoolState } from '../cpu/index.ts';
import { Exposition, type AddSample, type HistogramSample } from './exposition.ts';
import { Histogram, ratioBuckets, secondsBuckets, type Statistics, type VersionStatistics } from './statistics.ts';
import type { GpuHost } from './gpu/index.ts';
import { addGpuMetrics } from './metrics-gpu.ts';
import { addGatewayMetrics, addMachineMetrics, addModelMeshMetrics } from './metrics-inherited.ts';
import { addQueueMetrics } from './metrics-queue.ts';
import { addTo, modelLabels, pooled, readyInstances } from './metrics-samples.ts';
import type { Shadows } from './shadows.ts';
import type { Queueing } from './queueing/index.ts';
import type { FunctionVersion, Registry } from './types.ts';

export interface MetricsOptions {
  readonly registry: Registry;
  readonly pools: CpuPools;
  readonly statistics: Statistics;
  /** Bytes of memory that models may fill on this machine. */
  readonly memoryBytes: number;
  /** What carries work elsewhere; absent: nothing does. */
  readonly queueing?: Queueing | undefined;
  /** Invocations that ran elsewhere after a worker or Redis had failed them. */
  readonly cameBack?: (() => number) | undefined;
  /** What came of copies of calls, by function; absent: there are none. */
  readonly shadows?: Pick<Shadows, 'all'>;
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

export function createMetrics(options: MetricsOptions): Metrics {
  const { registry, pools, statistics, memoryBytes, threadsOf, batchMaxOf } = options;
  const prom = new PromRegistry();
  collectDefaultMetrics({ register: prom });

  const exposition = new Exposition();
  const counter = (name: string, help: string, read: (add: AddSample) => void): void =>
    exposition.counter(name, help, read);
  const gauge = (name: string, help: string, read: (set: AddSample) => void): void =>
    exposition.gauge(name, help, read);
  const histogram = (name: string, help: string, read: () => Iterable<HistogramSample>): void =>
    exposition.histogram(name, help, read);
  /** What all pools are at, looked at once for each scrape. */
  let scraped: readonly [FunctionVersion, PoolState][] | undefined;
  const inPools = (): readonly [FunctionVersion, PoolState][] => (scraped ??= pooled(registry, pools));
  /** A counter with one series a version. */
  const versionCounter = (name: string, help: string, read: (version: VersionStatistics) => number): void => {
    counter(name, help, (add) => {
      for (const version of statistics.versions()) add(modelLabels(version), read(version));
    });
  };
  const versionHistogram = (name: string, help: string, read: (version: VersionStatistics) => Histogram): void => {
    histogram(name, help, () => {
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
  counter('nv_inference_request_failure', 'Invocations that failed', (add) => {
    for (const version of statistics.versions()) {
      for (const [reason, count] of Object.entries(version.failures)) add({ ...modelLabels(version), reason }, count);
    }
  });
  versionCounter('nv_inference_count', 'Inferences: the rows of all batches', ({ inferences }) => inferences);
  versionCounter('nv_inference_exec_count', 'Runs of the model', ({ executions }) => Math.round(executions));
  gauge('nv_inference_pending_request_count', 'Invocations that wait', (set) => {
    for (const [version, state] of inPools()) set(modelLabels(version), state.queueLength);
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
  gauge('nv_model_load_duration_secs', 'Seconds that the latest load took', (set) => {
    for (const version of statistics.versions()) {
      if (version.lastLoadMs !== undefined) set(modelLabels(version), version.lastLoadMs / 1000);
    }
  });

  const inherited = { counter, gauge, histogram, registry, pools, statistics, gpus: options.gpus };
  addModelMeshMetrics({ ...inherited, memoryBytes });
  addGatewayMetrics(inherited);
  addMachineMetrics(gauge);

  counter('turntable_goodput_total', 'Invocations by their end against the SLO', (add) => {
    for (const { name, outcomes } of statistics.versions()) {
      for (const [outcome, count] of Object.entries(outcomes)) add({ function: name, outcome }, count);
    }
  });
  counter('turntable_cold_starts_total', 'Invocations that waited for a load', (add) => {
    for (const { name, coldStarts, gpuColdStarts } of statistics.versions()) {
      let onGpus = 0;
      for (const [plan, count] of gpuColdStarts) {
        add({ function: name, plan }, count);
        onGpus += count;
      }
      add({ function: name, plan: 'cpu' }, coldStarts - onGpus);
    }
  });
  counter('turntable_evictions_total', 'Instances that were given up', (add) => {
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
    (set) => {
      for (const [version, state] of inPools()) {
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
  counter(
    'turntable_overflow_total',
    'Invocations that ran elsewhere than they would have otherwise, by the place that they left, the one they went to, and why',
    (add) => {
      for (const { name, overflows } of statistics.versions()) {
        for (const [words, count] of overflows) {
          const [from = '', to = '', reason = ''] = words.split(' ');
          add({ function: name, from, to, reason }, count);
        }
      }
    },
  );
  counter('turntable_shadow_answers_total', 'Copies of calls that a version got, by how its answer compared', (add) => {
    for (const [name, { version, same, different, failed, skipped }] of options.shadows?.all() ?? []) {
      for (const [result, count] of Object.entries({ same, different, failed, skipped })) {
        add({ function: name, version, result }, count);
      }
    }
  });
  counter('turntable_cold_causes_total', 'Cold starts on GPUs by their cause', (add) => {
    for (const { name, coldCauses } of statistics.versions()) {
      // By whom it was evicted is for headers and screens; here it would be a series for each pair of functions.
      for (const [cause, count] of coldCauses) add({ function: name, cause: cause.replace(/ by .*/, '') }, count);
    }
  });
  const { queueing, cameBack = (): number => 0 } = options;
  if (queueing?.overflow !== undefined) {
    addQueueMetrics({ counter, gauge, queueing, overflow: queueing.overflow, cameBack });
  }
  if (options.gpus !== undefined) {
    addGpuMetrics(prom, options.gpus);
    histogram(
      'turntable_gpu_prediction_error_ratio',
      'Latency of invocations on GPUs, |predicted / observed - 1| of each',
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
  gauge('turntable_requests_in_flight', 'Requests that count against the limit now', (set) =>
    set({}, statistics.requestsInFlight),
  );
  counter('turntable_errors_total', 'Failures that clients were told, by code', (add) => {
    for (const [code, count] of statistics.errors) add({ code }, count);
  });

  // Its own sampler: the default metrics reset theirs on each scrape, at 10 ms.
  const resolutionMs = 5;
  const loopDelay = monitorEventLoopDelay({ resolution: resolutionMs });
  loopDelay.enable();
  gauge('turntable_event_loop_delay_seconds', "Delay of the host's event loop since the last scrape", (set) => {
    const read = { p50: loopDelay.percentile(50), p99: loopDelay.percentile(99), max: loopDelay.max };
    for (const [statistic, betweenNs] of Object.entries(read)) {
      // What Node records is the time between two ticks of its timer, so that no delay at all is the resolution.
      set({ statistic }, loopDelay.count === 0 ? 0 : Math.max(0, betweenNs / 1e9 - resolutionMs / 1000));
    }
    loopDelay.reset();
  });

  return {
    contentType: prom.contentType,
    text: async () => {
      scraped = undefined;
      // Those of the process and of the GPUs are few, however many functions there are.
      return `${await exposition.text()}${await prom.metrics()}`;
    },
    close: () => {
      loopDelay.disable();
      prom.clear();
    },
  };
}
