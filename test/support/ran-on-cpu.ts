import type { PoolTimings } from '../../src/cpu/index.ts';
import type { Ran } from '../../src/host/calls/placement.ts';

/** An answer of the CPU pool that took these times. */
export function ranOnCpu(times: Partial<PoolTimings>, coldStart = false): Ran {
  return {
    result: {
      output: { kind: 'tensors', tensors: [] },
      timings: { queueMs: 0, loadMs: 0, preprocessMs: 0, inferMs: 0, postprocessMs: 0, ...times },
      coldStart,
      batchSize: 1,
      instancePid: 1,
    },
    placement: { kind: 'cpu-pool', coldStart },
  };
}
