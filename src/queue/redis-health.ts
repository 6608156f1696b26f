/** How Redis is: what health, metrics, the page, `top`, `doctor` and the log say of it comes from here. */
import type { Redis } from 'ioredis';

/** An evicting Redis takes calls and may lose them; the others of these take none. */
export type RedisTrouble = 'evicting' | 'full' | 'read-only' | 'down';

/** Instants are milliseconds since 1970. */
export type RedisHealth =
  | { readonly status: 'up'; readonly sinceMs: number }
  | { readonly status: RedisTrouble; readonly sinceMs: number; readonly reason: string };

/** Whether calls go through it. */
export function redisWorks({ status }: RedisHealth): boolean {
  return status === 'up' || status === 'evicting';
}

const costs: Readonly<Record<RedisTrouble, string>> = {
  evicting: 'Redis evicts keys: accepted calls and kept replies may be lost',
  full: 'The memory of Redis is full: asynchronous calls are refused, and workers get no work',
  'read-only': 'Redis takes no writes: asynchronous calls are refused, and workers get no work',
  down: 'Redis is down: asynchronous calls are refused, and workers get no work',
};

/** What Redis' state costs, as a sentence with the reason; undefined where it costs nothing. */
export function redisCost(health: RedisHealth): string | undefined {
  return health.status === 'up' ? undefined : `${costs[health.status]} (${health.reason}).`;
}

/** Whether Redis answered that it takes no writes: its memory is full; it is a replica, cannot save, or lacks replicas. */
export function refusesWrites({ message }: Error): 'full' | 'read-only' | undefined {
  // Before Redis 7, an error in a script comes last in the sentence.
  if (/\bOOM command not allowed\b/.test(message)) return 'full';
  return /^(?:READONLY|MISCONF|NOREPLICAS)\b/.test(message) ? 'read-only' : undefined;
}

/** Settings of Redis that decide whether an accepted call can be lost, and what each costs where it is otherwise. */
export const durableSettings: readonly {
  readonly name: string;
  readonly wanted: string;
  /** Follows "Redis". */
  readonly otherwise: string;
}[] = [
  { name: 'appendonly', wanted: 'yes', otherwise: 'forgets accepted calls when it restarts' },
  {
    name: 'maxmemory-policy',
    wanted: 'noeviction',
    otherwise: 'may throw accepted calls away when its memory is full',
  },
];

export interface RedisFacts {
  readonly version: string | undefined;
  /** Values of {@link durableSettings} by name, as far as Redis tells them. */
  readonly settings: ReadonlyMap<string, string>;
  /** Since Redis started; undefined if it does not tell. */
  readonly evictedKeys: number | undefined;
}

/** @throws ioredis' errors */
export async function readRedisFacts(client: Pick<Redis, 'info'>): Promise<RedisFacts> {
  // Not CONFIG, which managed servers forbid. Not one section, since old servers take one alone.
  const text = await client.info();
  const field = (name: string): string | undefined => new RegExp(`^${name}:(\\S*)`, 'm').exec(text)?.[1];
  const [aof, policy, evicted] = ['aof_enabled', 'maxmemory_policy', 'evicted_keys'].map(field);
  const settings = new Map<string, string>();
  if (aof !== undefined) settings.set('appendonly', aof === '1' ? 'yes' : 'no');
  if (policy !== undefined) settings.set('maxmemory-policy', policy);
  return {
    version: field('redis_version'),
    settings,
    evictedKeys: evicted === undefined ? undefined : Number(evicted),
  };
}
