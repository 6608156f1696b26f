import { ConfigError } from './config-error.ts';
import type { HostConfig } from './config.ts';
import { inNetworks } from '../../tools/index.ts';

/**
 * Refuses a configuration in which anyone on the network could publish models. Called when the host is about to listen,
 * so that `doctor` can still report on such a configuration.
 */
export function checkListen(config: Pick<HostConfig, 'listen' | 'apiKeys'>): void {
  const { certFile, keyFile } = config.listen.tls ?? {};
  if ((certFile === undefined) !== (keyFile === undefined)) {
    const [given, missing] = certFile === undefined ? ['tlsKey', 'tlsCert'] : ['tlsCert', 'tlsKey'];
    throw new ConfigError(
      `"listen.${given}" is set without "listen.${missing}": HTTPS needs a certificate and its key`,
    );
  }
  if (config.apiKeys.length > 0 || isLoopback(config.listen.host)) return;
  throw new ConfigError(
    `listening on ${config.listen.host}, which is not a loopback address, needs an API key: set TURNTABLE_API_KEYS ` +
      'or "apiKeys" in host.json (or listen on 127.0.0.1)',
  );
}

const isLoopbackAddress = inNetworks(['127.0.0.0/8', '::1', '::ffff:127.0.0.0/104']);

/**
 * Whether only this machine can reach a listener at `host`. Any name except localhost may resolve to another address.
 */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[(.*)\]$/, '$1');
  return isLoopbackAddress(bare) || bare.toLowerCase() === 'localhost';
}
