/** Metrics of invocations: how they ended, how long they waited, where they ran. */
import type { HistogramSample } from './exposition.ts';
import { addTo, readyInstances, type Metered } from './samples.ts';
import { rowsMaxOf, threadsOf } from '../pools/pools-in-step.ts';
import { Histogram, ratioBuckets, secondsBuckets, type VersionStatistics } from '../records/statistics.ts';
import { getOrMake } from '../../tools/index.ts';
import { allVersions } from '../rollout/versions.ts';

export function addInvocationMetrics(options: Metered): void {
  addOutcomes(options);
  addRows(options);
  addLatencies(options);
  addConfigurations(options);
  addPlacements(options);
}

function addOutcomes({ exposition: { counter, gauge }, statistics, inPools, invoker }: Metered): void {
  gauge('turntable_stopped', 'Versions that get no process, because they have killed the ones before', (set) => {
    for (const [version] of inPools()) {
      if (invoker.outOfService.stopped(version) === undefined) continue;
      set({ function: version.name, version: version.version }, 1);
    }
  });
  counter('turntable_goodput_total', 'Invocations by their end against the SLO', (add) => {
    for (const { name, outcomes } of statistics.versions()) {
      for (const [outcome, count] of Object.entries(outcomes)) add({ function: name, outcome }, count);
    }
  });
  counter('turntable_missed_total', 'Invocations that missed their SLO, by what took most of their time', (add) => {
    for (const { name, misses } of statistics.versions()) {
      for (const [cause, count] of misses) add({ function: name, cause }, count);
    }
  });
  counter('turntable_missed_seconds_total', 'Time of calls beyond their SLO, by whether its cause is known', (add) => {
    for (const { name, lateMs, unexplainedMs } of statistics.versions()) {
      add({ function: name, explained: 'yes' }, (lateMs - unexplainedMs) / 1000);
      add({ function: name, explained: 'no' }, unexplainedMs / 1000);
    }
  });
  gauge('turntable_overdue_calls', 'Calls that are open and have passed their SLO', (set) => {
    for (const [name, { calls }] of invoker.open.overdue()) set({ function: name }, calls);
  });
  gauge(
    'turntable_oldest_open_call_seconds',
    'Age of the oldest call that is open',
    () => invoker.open.oldestMs() / 1000,
  );
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
  counter('turntable_disk_starts_total', 'Cold starts on GPUs that waited for weights from disk', (add) => {
    for (const { name, diskStarts } of statistics.versions()) add({ function: name }, diskStarts);
  });
  counter('turntable_disk_wait_seconds_total', 'Time for which instances waited for the disk', (add) => {
    for (const { name, disk } of statistics.versions()) add({ function: name }, disk.ms / 1000);
  });
  counter('turntable_disk_read_bytes_total', 'What they read meanwhile', (add) => {
    for (const { name, disk } of statistics.versions()) add({ function: name }, disk.bytes);
  });
  counter('turntable_evictions_total', 'Instances that were given up', (add) => {
    for (const { name, evictions } of statistics.versions()) {
      for (const [cause, count] of evictions) add({ function: name, cause }, count);
    }
  });
}

/** Where a function wants to join calls: whether its rows are independent of each other. */
function addRows({ exposition: { gauge }, registry }: Metered): void {
  gauge('turntable_joining', 'What is known of the rows of functions that are to join calls', (set) => {
    for (const version of allVersions(registry)) {
      if (version.rows !== undefined)
        set({ function: version.name, version: version.version, rows: version.rows.kind }, 1);
    }
  });
}

function addLatencies({ exposition: { histogram }, statistics, gpus }: Metered): void {
  const seconds = (name: string, help: string, read: (version: VersionStatistics) => Histogram): void =>
    histogram(name, help, () => byFunction(statistics.versions(), secondsBuckets, read));
  // No series before the first prediction.
  const ratios = (name: string, help: string, read: (version: VersionStatistics) => Histogram): void =>
    histogram(name, help, () => {
      const predicted = [...statistics.versions()].filter((version) => read(version).count > 0);
      return byFunction(predicted, ratioBuckets, read);
    });
  seconds('turntable_queue_seconds', 'Waiting, without load', ({ queueSeconds }) => queueSeconds);
  seconds('turntable_load_seconds', 'Waiting for a load, cold starts only', ({ loadSeconds }) => loadSeconds);
  seconds('turntable_inference_seconds', 'Running the model', ({ inferenceSeconds }) => inferenceSeconds);
  seconds('turntable_total_seconds', 'From arrival to answer', ({ totalSeconds }) => totalSeconds);
  ratios(
    'turntable_prediction_error_ratio',
    'Mean latency on the CPU pool, |predicted / observed - 1| of each window',
    ({ predictionError }) => predictionError,
  );
  if (gpus === undefined) return;
  ratios(
    'turntable_gpu_prediction_error_ratio',
    'Latency of invocations on GPUs, |predicted / observed - 1| of each',
    ({ gpuPredictionError }) => gpuPredictionError,
  );
}

/** One series per function, summed over its versions. */
function byFunction(
  versions: Iterable<VersionStatistics>,
  buckets: readonly number[],
  read: (version: VersionStatistics) => Histogram,
): HistogramSample[] {
  const merged = new Map<string, Histogram>();
  for (const version of versions) {
    const sum = getOrMake(merged, version.name, () => new Histogram(buckets));
    addTo(sum, read(version));
  }
  return Array.from(merged, ([name, sum]) => ({ labels: { function: name }, histogram: sum }));
}

function addConfigurations({ exposition: { gauge }, inPools, config }: Metered): void {
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
        const [instances, threads] = [readyInstances(state), threadsOf(version, config)];
        set({ function: name, version: number, instances, threads, batch: rowsMaxOf(version, config) }, 1);
      }
    },
  );
}

function addPlacements({ exposition: { counter }, statistics, invoker }: Metered): void {
  counter(
    'turntable_overflow_total',
    'Invocations that ran elsewhere than they would have otherwise, by the place that they left, the one they ' +
      'went to, and why',
    (add) => {
      for (const { name, overflows } of statistics.versions()) {
        for (const [words, count] of overflows) {
          const [from = '', to = '', reason = ''] = words.split(' ');
          add({ function: name, from, to, reason }, count);
        }
      }
    },
  );
  counter(
    'turntable_brought_total',
    'Calls that were late at every place, and ran so that the calls behind them find their function there',
    (add) => {
      for (const { name, brought } of statistics.versions()) if (brought > 0) add({ function: name }, brought);
    },
  );
  counter(
    'turntable_split_requests_total',
    'Requests of many rows that ran in parts on several lanes',
    () => invoker.splitRequests,
  );
  counter('turntable_cold_causes_total', 'Cold starts on GPUs by their cause', (add) => {
    for (const { name, coldCauses } of statistics.versions()) {
      // The evicting function is shown in headers and on screens; as a label it would make a series for each pair of
      // functions.
      for (const [cause, count] of coldCauses) add({ function: name, cause: cause.replace(/ by .*/, '') }, count);
    }
  });
}
