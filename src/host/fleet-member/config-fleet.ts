import { isMemberName } from '../../fleet/index.ts';
import { ConfigError } from '../config/config-error.ts';
import type { HostConfig } from '../config/config.ts';
import { isLoopback } from '../config/listen.ts';

type FleetConfig = Pick<HostConfig, 'fleet' | 'redis' | 'store' | 'listen'>;

/** @throws ConfigError if the host could not join the configured fleet */
export function checkFleet({ fleet, redis, store, listen }: FleetConfig): void {
  const { name, advertise, tls } = fleet;
  if (name === undefined) return;
  if (redis.url === undefined) {
    throw new ConfigError(`the hosts of the fleet '${name}' find each other in Redis: set its address with --redis`);
  }
  if (store.place === undefined) {
    throw new ConfigError(
      `the hosts of the fleet '${name}' share one store of functions: name a folder or a bucket with --store`,
    );
  }
  if (advertise !== undefined && !isMemberName(advertise)) {
    throw new ConfigError(
      `"fleet.advertise" is '${advertise}', and must be the host and port where the fleet's other hosts reach this ` +
        'one, such as 10.0.0.5:8002',
    );
  }
  const files = [tls.certFile, tls.keyFile, tls.caFile];
  if (files.includes(undefined) && files.some((file) => file !== undefined)) {
    throw new ConfigError('"fleet.tlsCert", "fleet.tlsKey" and "fleet.tlsCa" are set together, or none of them');
  }
  if (tls.certFile === undefined && !isLoopback(listen.host)) {
    throw new ConfigError(
      `the fleet '${name}' may not listen on ${listen.host} without TLS, only on loopback: make ` +
        'certificates with `turntable key HOST --tls FOLDER`, and name them with --fleet-tls-cert, --fleet-tls-key and ' +
        '--fleet-tls-ca (or listen on 127.0.0.1)',
    );
  }
}
