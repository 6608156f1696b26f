/** How instances on demand are shown. */
import type { Instance } from './instance.ts';
import type { PoolState } from './types.ts';

export function instanceStates(
  ready: readonly Instance[],
  loading: Instance | undefined,
  threads: number,
  nowMs: number,
): PoolState['instances'] {
  const shown: PoolState['instances'][number][] = ready.map(({ pid, state, idleSinceMs }) => ({
    pid,
    state: state === 'busy' ? 'busy' : 'idle',
    idleForMs: state === 'idle' ? nowMs - idleSinceMs : 0,
    threads,
    cores: [],
  }));
  if (loading !== undefined) shown.push({ pid: loading.pid, state: 'loading', idleForMs: 0, threads, cores: [] });
  return shown;
}
