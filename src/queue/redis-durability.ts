import type { Redis } from 'ioredis';

/**
 * Settings of Redis on which it depends whether an accepted call can be lost, and what each of them costs where it is
 * otherwise.
 */
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

/** What Redis has for them, by name; undefined where CONFIG is forbidden, as managed servers do. */
export async function readDurableSettings(
  client: Pick<Redis, 'config'>,
): Promise<ReadonlyMap<string, string> | undefined> {
  try {
    // Pairs of a name and a value, or an object with the newer protocol.
    const replies: unknown[] = await Promise.all(durableSettings.map(({ name }) => client.config('GET', name)));
    return new Map(
      replies.map((reply) => {
        const [name, value] = (Array.isArray(reply) ? reply : Object.entries(reply as object).flat()) as unknown[];
        return [String(name), String(value)];
      }),
    );
  } catch {
    return undefined;
  }
}
