import { ConfigError } from '../config/config-error.ts';
import { fileOf } from '../config/config-file.ts';
import type { HostConfig } from '../config/config.ts';

const secretLengthMin = 16;

/**
 * The secret of the fleet; undefined if the host is in none.
 *
 * @throws ConfigError if the host could not join the configured fleet
 */
export function fleetSecret({
  fleet,
  redis,
  store,
}: Pick<HostConfig, 'fleet' | 'redis' | 'store'>): string | undefined {
  if (fleet.name === undefined) return undefined;
  if (redis.url === undefined) {
    throw new ConfigError(
      `the hosts of the fleet '${fleet.name}' find each other in Redis: set its address with --redis`,
    );
  }
  if (store.place === undefined) {
    throw new ConfigError(
      `the hosts of the fleet '${fleet.name}' share one store of functions: name a folder or a bucket with --store`,
    );
  }
  const { secret, secretFile } = fleet;
  if (secret !== undefined && secretFile !== undefined) {
    throw new ConfigError('both "fleet.secret" and "fleet.secretFile" are set; one is enough');
  }
  if (secret === undefined && secretFile === undefined) {
    throw new ConfigError(
      `joining the fleet '${fleet.name}' needs its secret: set TURNTABLE_FLEET_SECRET, or name a file with ` +
        '--fleet-secret-file',
    );
  }
  return secret ?? secretIn(secretFile!);
}

/** The certificates in "fleet.caFile". @throws ConfigError */
export function fleetCa({ fleet }: Pick<HostConfig, 'fleet'>): string | undefined {
  if (fleet.caFile === undefined) return undefined;
  const text = fileOf('fleet.caFile', fleet.caFile).toString().trim();
  if (text.includes('-----BEGIN CERTIFICATE-----')) return text;
  throw new ConfigError(`"fleet.caFile": ${fleet.caFile} holds no certificate in PEM form`);
}

function secretIn(file: string): string {
  const text = fileOf('fleet.secretFile', file).toString().trim();
  if (text.length >= secretLengthMin) return text;
  throw new ConfigError(
    `"fleet.secretFile": ${file} holds ${text.length} characters; a secret has at least ${secretLengthMin}`,
  );
}
