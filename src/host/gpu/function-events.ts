/** Translates what the live scheduler reports about a function on the GPUs into an event of the function's record. */
import { GpuError } from '../../gpu/index.ts';
import type { GpuEviction, GpuReport } from '../../live/index.ts';
import { evicted, lostWithProcess, type FunctionEvent } from './function-state.ts';
import { isOfProcess } from './unless-it-died.ts';

/** The event for the function's record; undefined if the report says nothing about the function itself. */
export function eventOf(report: GpuReport): FunctionEvent | undefined {
  switch (report.kind) {
    case 'run succeeded':
    case 'arrived':
      return report;
    case 'run failed': {
      const { error } = report;
      // The function did not cause the end of the GPU process, or that the caller left. An input that was found invalid
      // was valid: another place has answered it.
      const isOfFunction = error instanceof GpuError && !isOfProcess(error) && error.code !== 'cancelled';
      return isOfFunction ? { kind: 'run failed', reason: error.message } : undefined;
    }
    case 'evicted': {
      const { gpu, isWhole } = report.eviction;
      return { kind: 'left', gpu, isWhole, cause: coldCauseAfter(report.eviction) };
    }
  }
}

function coldCauseAfter({ cause, by, isWhole }: GpuEviction): string {
  switch (cause) {
    case 'capacity':
    case 'trim':
    case 'migration':
    case 'host':
    case 'out-of-memory':
      return evicted(isWhole ? 'room' : 'room for its last layers', by);
    case 'profiling':
      return evicted('room to measure a function', by);
    case 'unload':
      return evicted('unloaded');
    case 'failed-run':
      return evicted('a run of it failed');
    case 'plan-changed':
      return 'changed';
    case 'gpu-lost':
      return lostWithProcess;
  }
}
