import type { Redis } from 'ioredis';

/** What calls do: a script that writes several keys. */
const script = "for _, key in ipairs(KEYS) do redis.call('DEL', key) end return 1";
const isOfCluster = (message: string): boolean => /^(?:CROSSSLOT|MOVED|ASK|CLUSTERDOWN)\b/.test(message);

/** Redis answered, and cannot be used; the name is that of ioredis' own errors. */
class Unusable extends Error {
  override readonly name = 'ReplyError';
}

/**
 * Runs what calls run, so that a cluster, a replica or a user without scripts shows before the first call.
 * @throws ioredis' errors, and one in our words for a cluster
 */
export async function probeRedis(client: Pick<Redis, 'eval'>, prefix: string): Promise<void> {
  try {
    await client.eval(script, 2, `${prefix}:probe`, `${prefix}:probe:second`);
  } catch (error) {
    if (!(error instanceof Error) || !isOfCluster(error.message)) throw error;
    const words = 'it is a cluster, which runs no script over the keys of two slots; calls need a Redis that is none';
    throw new Unusable(`${words} (${error.message.split(' ', 1)[0]})`, { cause: error });
  }
}
