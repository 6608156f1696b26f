/** How instances on demand are shown. */
import type { Instance } from './instance.ts';
import type { OnDemandInstances } from './on-demand.ts';
import type { PoolState } from './types.ts';

export function instanceStates(
  ready: OnDemandInstances,
  loading: Instance | undefined,
  threads: number,
  nowMs: number,
): PoolState['instances'] {
  const shown: PoolState['instances'][number][] = Array.from(ready, ({ pid, state, idleSinceMs, holdsModel }) => ({
    pid,
    state: state === 'busy' ? 'busy' : 'idle',
    idleForMs: state === 'idle' ? nowMs - idleSinceMs : 0,
    threads,
    cores: [],
    ...(holdsModel ? {} : { holdsModel }),
  }));
  if (loading !== undefined) shown.push({ pid: loading.pid, state: 'loading', idleForMs: 0, threads, cores: [] });
  return shown;
}
