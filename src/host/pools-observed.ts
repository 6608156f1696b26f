import type { CpuPools } from '../cpu/index.ts';

/** Told of every invocation that the pools of this machine run. */
export interface PoolsObserver {
  arrived(key: string): void;
  /** It was answered, or failed. */
  ended(): void;
  /**
   * It was answered by an instance that was ready: `latencyMs` after it had come to the pool, `serviceMs` after it had
   * come to the instance.
   */
  answeredWarm(key: string, latencyMs: number, serviceMs: number): void;
}

/** The same pools, observed: whoever invokes, nobody is missed. */
export function observedPools(pools: CpuPools, observer: PoolsObserver): CpuPools {
  return {
    invoke: async (key, input, options) => {
      const startMs = performance.now();
      observer.arrived(key);
      try {
        const result = await pools.invoke(key, input, options);
        // What its model took elsewhere says nothing of this pool.
        if (!result.coldStart && result.modelElsewhere !== true) {
          const latencyMs = performance.now() - startMs;
          observer.answeredWarm(key, latencyMs, latencyMs - result.timings.queueMs);
        }
        return result;
      } finally {
        observer.ended();
      }
    },
    started: () => pools.started(),
    register: (spec, limits) => pools.register(spec, limits),
    unregister: (key) => pools.unregister(key),
    load: (key, options) => pools.load(key, options),
    unload: (key) => pools.unload(key),
    configure: (key, configuration, options) => pools.configure(key, configuration, options),
    coresFor: (key) => pools.coresFor(key),
    leaseCores: (owner, count) => pools.leaseCores(owner, count),
    evict: (key) => pools.evict(key),
    state: (key) => pools.state(key),
    states: () => pools.states(),
    resources: () => pools.resources(),
    stop: (graceMs) => pools.stop(graceMs),
  };
}
