import { createHash } from 'node:crypto';
import { readGpuDriver } from '../../hardware/index.ts';
import type { Cuda } from '../driver/types.ts';
import { engineVersion } from '../program/engine-version.ts';

/** Of what the result of a self-test is true: other GPUs, another driver, library or engine need another one. */
export function identityOf(cuda: Cuda): string {
  const gpus = cuda.devices.map(({ uuid, name }) => [uuid, name]);
  const { version } = readGpuDriver();
  const content = [gpus, version, cuda.driverVersion, cuda.compiler.version, cuda.productsVersion, engineVersion()];
  return createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 32);
}
