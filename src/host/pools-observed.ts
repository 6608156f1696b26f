import type { CpuPools, PoolResult } from '../cpu/index.ts';

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
    invoke: (key, input, options) => {
      const startMs = performance.now();
      observer.arrived(key);
      const answered = pools.invoke(key, input, options);
      const ended = (result?: PoolResult): void => {
        // What its model took elsewhere says nothing of this pool.
        if (result !== undefined && !result.coldStart && result.modelElsewhere !== true) {
          const latencyMs = performance.now() - startMs;
          observer.answeredWarm(key, latencyMs, latencyMs - result.timings.queueMs);
        }
        observer.ended();
      };
      // The caller waits for the pool's own promise, and is answered after the observer.
      void answered.then(ended, () => ended());
      return answered;
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
