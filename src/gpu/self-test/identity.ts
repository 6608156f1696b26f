import { createHash } from 'node:crypto';
import { readGpuDriver } from '../../hardware/index.ts';
import type { Cuda } from '../driver/types.ts';
import { engineVersion } from '../program/engine-version.ts';

/** A hash of GPUs, driver, libraries and engine version. A self-test's result holds for one identity. */
export function identityOf(cuda: Cuda): string {
  const gpus = cuda.devices.map(({ uuid, name }) => [uuid, name]);
  const { version } = readGpuDriver();
  const content = [gpus, version, cuda.driverVersion, cuda.compiler.version, cuda.productsVersion, engineVersion()];
  return createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 32);
}
