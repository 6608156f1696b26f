import { release } from 'node:os';
import { readCores, readGpuDriver, readMemory } from '../src/hardware/index.ts';

/** What a figure must say about the machine it was measured on. */
export interface Machine {
  readonly processor: string;
  readonly coresUsable: number;
  readonly memoryBytes: number;
  readonly gpus: readonly string[];
  readonly node: string;
  readonly system: string;
}

export function describeMachine(): Machine {
  const cores = readCores();
  return {
    processor: cores.model ?? 'unknown processor',
    coresUsable: cores.usable,
    memoryBytes: readMemory().totalBytes,
    gpus: readGpuDriver({ libraryPath: process.env['LD_LIBRARY_PATH'] }).gpus.map(({ model }) => model),
    node: process.versions.node,
    system: `${process.platform} ${release()} ${process.arch}`,
  };
}
