/** The child process of probe.ts. */
import { readFileSync } from 'node:fs';
import { basename, isAbsolute } from 'node:path';
import { serve } from '../../process/index.ts';
import { loadLibrary, type LibraryName } from './libraries.ts';
import { openCuda } from './open.ts';
import type { CudaProbe, ProbeApi, ProbedLibrary } from './probe.ts';

function probe(): CudaProbe {
  try {
    using cuda = openCuda();
    const major = Math.floor(cuda.driverVersion / 1000);
    const library = (name: LibraryName): ProbedLibrary => {
      const { file, origin } = loadLibrary(name, name === 'libcuda' ? {} : { cudaMajor: major });
      return { path: pathOf(file), origin };
    };
    return {
      state: 'opens',
      cudaVersion: `${major}.${Math.floor((cuda.driverVersion % 1000) / 10)}`,
      compiler: cuda.compiler.version,
      libraries: {
        libcuda: library('libcuda'),
        libnvrtc: library('libnvrtc'),
        libcublasLt: library('libcublasLt'),
      },
      devices: cuda.devices.map(({ name, uuid, pciBusId, computeCapability, totalBytes }) => ({
        name,
        uuid,
        pciBusId,
        computeCapability: `${computeCapability.major}.${computeCapability.minor}`,
        totalBytes,
      })),
    };
  } catch (error) {
    return { state: 'fails', reason: (error as Error).message };
  }
}

/** The path at which the linker found a library that was loaded by its bare name. */
function pathOf(file: string): string {
  if (isAbsolute(file)) return file;
  const mapped = readFileSync('/proc/self/maps', 'utf8').match(/\/\S.*$/gm) ?? [];
  return mapped.find((path) => basename(path).startsWith(file)) ?? file;
}

serve<ProbeApi>({ probe });
