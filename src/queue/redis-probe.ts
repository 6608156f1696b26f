import { createHash } from 'node:crypto';
import type { Redis } from 'ioredis';

/** What calls do: a script that writes several keys. */
const script =
  "for _, key in ipairs(KEYS) do redis.call('SET', key, '', 'PX', 1000) redis.call('DEL', key) end return 1";
const scriptSha1 = createHash('sha1').update(script).digest('hex');

/** Errors of Redis whose own words do not say what to do. */
const problems: readonly (readonly [form: RegExp, words: (message: string) => string])[] = [
  [
    /^(?:CROSSSLOT|MOVED|ASK|CLUSTERDOWN)\b/,
    (message) =>
      'it is a cluster, which runs no script over the keys of two slots; calls need a Redis that is none ' +
      `(${message.split(' ', 1)[0]})`,
  ],
  [
    /^NOPERM\b.*'(?:eval|evalsha)'/,
    (message) => `its user may not run scripts, and each call runs some: allow it +eval and +evalsha (${message})`,
  ],
  [/^NOPERM\b|can't run this command/, (message) => `its user may not do what calls do (${message})`],
];

/** Redis answered, and cannot be used; the name is that of ioredis' own errors. */
class Unusable extends Error {
  override readonly name = 'ReplyError';
}

/**
 * Runs what calls run, so that a cluster, a replica, a full memory or a user without scripts shows before the first call.
 * @throws ioredis' errors, and one in our words for a cluster
 */
export async function probeRedis(client: Pick<Redis, 'eval' | 'evalsha' | 'info'>, prefix: string): Promise<void> {
  const names = [`${prefix}:probe`, `${prefix}:probe:second`];
  try {
    await client.eval(script, names.length, ...names);
    await client.evalsha(scriptSha1, names.length, ...names);
    await client.info('server');
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const words = problems.find(([form]) => form.test(error.message))?.[1];
    throw words === undefined ? error : new Unusable(words(error.message), { cause: error });
  }
}
