/** Series under Triton's names: counts and times of each version's invocations. */
import type { Metered } from './samples.ts';
import type { VersionStatistics } from '../records/statistics.ts';

const modelLabels = ({ name: model, version }: Pick<VersionStatistics, 'name' | 'version'>) => ({ model, version });

export function addTritonMetrics({ exposition: { counter, gauge }, statistics, inPools }: Metered): void {
  /** A counter with one series a version. */
  const versionCounter = (name: string, help: string, read: (version: VersionStatistics) => number): void => {
    counter(name, help, (add) => {
      for (const version of statistics.versions()) add(modelLabels(version), read(version));
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
    ['compute_input', 'making the input ready', (version: VersionStatistics) => version.preprocessMs],
    ['compute_infer', 'running the model', (version: VersionStatistics) => version.inferMs],
    ['compute_output', 'making the output ready', (version: VersionStatistics) => version.postprocessMs],
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
}
