/** Converts the live scheduler's news about a function to an event of its record. */
import { GpuError } from '../../gpu/index.ts';
import type { GpuEviction, GpuNews } from '../../live/index.ts';
import { evicted, lostWithProcess, type FunctionEvent } from './function-state.ts';
import { isOfProcess } from './unless-it-died.ts';

/** The event for the function's record. */
export function eventOf(news: GpuNews): FunctionEvent | undefined {
  switch (news.kind) {
    case 'run succeeded':
    case 'arrived':
      return news;
    case 'run failed': {
      const { error } = news;
      // The function did not cause the end of the GPU process, or that the caller left. An input that was found invalid
      // was valid: another place has answered it.
      const isOfFunction = error instanceof GpuError && !isOfProcess(error) && error.code !== 'cancelled';
      return isOfFunction ? { kind: 'run failed', reason: error.message } : undefined;
    }
    case 'evicted': {
      const { gpu, isWhole } = news.eviction;
      return { kind: 'left', gpu, isWhole, cause: coldCauseAfter(news.eviction) };
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
