/**
 * Reports which GPUs and libraries this machine has. Runs in a child process, since an unsuitable library may crash it.
 */
import { callOnce, childEnvironment, compiledModule, GoneError, type PeerEnd } from '../../process/index.ts';

export type CudaProbe =
  | {
      readonly state: 'opens';
      /** '13.0' */
      readonly cudaVersion: string;
      /** 'NVRTC 13.0' */
      readonly compiler: string;
      readonly libraries: Readonly<Record<'libcuda' | 'libnvrtc' | 'libcublasLt', ProbedLibrary>>;
      readonly devices: readonly ProbedDevice[];
    }
  /** The reason names each file that was tried. */
  | { readonly state: 'fails'; readonly reason: string };

export interface ProbedLibrary {
  readonly path: string;
  /** How it was found: 'the dynamic linker', 'a Python package', the variable that names it. */
  readonly origin: string;
}

export interface ProbedDevice {
  readonly name: string;
  readonly uuid: string;
  readonly pciBusId: string;
  readonly computeCapability: string;
  readonly totalBytes: number;
}

export interface ProbeApi {
  probe(): CudaProbe;
}

const timeMsMax = 20_000;

const module = compiledModule('./probe-process.js', import.meta.url);

/** Loads the driver and its libraries like the engine, without using a GPU. Never rejects. */
export async function probeCuda(environment: NodeJS.ProcessEnv = childEnvironment()): Promise<CudaProbe> {
  try {
    const remote = { what: 'the process that loads the driver', process: { module, environment } };
    return await callOnce<ProbeApi, 'probe'>(remote, 'probe', undefined, { timeMsMax });
  } catch (error) {
    return { state: 'fails', reason: error instanceof GoneError ? describeEnd(error.end) : (error as Error).message };
  }
}

function describeEnd({ isLate, signal, words, reason }: PeerEnd): string {
  if (isLate) return `loading the driver took longer than ${timeMsMax / 1000} s`;
  if (signal !== null) return `loading the driver ended the process by ${signal}`;
  return `loading the driver ended the process: ${words.trim() || reason}`;
}
