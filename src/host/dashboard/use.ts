/** `GET /api/use`: how busy cores, GPUs and queue are now. */
import type { UseAnswer } from './api-types.ts';
import type { ViewSources } from './views.ts';

export function useAnswer({ pools, statistics, gpus }: ViewSources, nowMs: number): UseAnswer {
  const states = pools.states();
  const instances = states.flatMap((state) => state.instances);
  const { cores, coresShared, memoryBytes, memoryUsedBytes } = pools.resources();
  const threadsBusy = instances.reduce((sum, { state, threads }) => sum + (state === 'idle' ? 0 : threads), 0);
  return {
    atMs: nowMs,
    inFlight: statistics.requestsInFlight,
    waiting: states.reduce((sum, { queueLength }) => sum + queueLength, 0),
    cpu: {
      cores,
      coresBusy: Math.min(cores, threadsBusy),
      coresLeased: cores - coresShared,
      instances: instances.length,
      memoryUsedBytes,
      memoryBytes,
    },
    gpus: (gpus?.memory() ?? []).map(({ index, name, capacityBytes, residents }) => ({
      index,
      name,
      busyShare: gpus?.busyShare(index) ?? 0,
      usedBytes: residents.reduce((sum, { bytes }) => sum + bytes, 0),
      capacityBytes,
      functions: residents.length,
      loading: residents.filter(({ state }) => state === 'loading').length,
    })),
  };
}
