import type { Redis as Client } from 'ioredis';
import { loadRedisQueue, readRedisFacts } from '../../queue/index.ts';

/** Asks Redis for PING, for what calls run, its version and its settings about loss. Never throws, nor gives back the URL's password. */
export async function askRedis(url: string, timeoutMs: number, prefix = 'turntable') {
  const { isRefusal, openRedis, probeRedis, redisAddress } = await loadRedisQueue();
  if (!URL.canParse(url)) {
    return { state: 'silent' as const, address: 'an address that is no URL', reason: 'redis.url is not a URL' };
  }
  const address = redisAddress(url);
  let client: Client | undefined;
  const connectionErrors: Error[] = [];
  let timer: NodeJS.Timeout | undefined;
  try {
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    });
    client = openRedis(url, { lazyConnect: true, enableReadyCheck: false, retryStrategy: () => null });
    // What ends the connection says more than that it ended.
    client.on('error', (error: Error) => connectionErrors.push(error));
    const startedMs = performance.now();
    const asked = (async () => {
      await client.connect();
      await client.ping();
      const pingMs = performance.now() - startedMs;
      await probeRedis(client, prefix);
      return { pingMs, ...(await readRedisFacts(client)) };
    })();
    return { state: 'answers' as const, address, ...(await Promise.race([asked, silence])) };
  } catch (error) {
    const reason = connectionErrors.at(-1) ?? (error as Error);
    const refusal = [error, reason].find(isRefusal);
    if (refusal !== undefined) return { state: 'locked' as const, address, reason: refusal.message };
    const isForeign = /RESP type|^Protocol error/.test(reason.message);
    return {
      state: 'silent' as const,
      address,
      reason: isForeign ? 'what answers does not speak the protocol of Redis' : reason.message,
    };
  } finally {
    clearTimeout(timer);
    client?.disconnect();
  }
}
