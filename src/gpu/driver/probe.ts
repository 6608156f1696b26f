/**
 * Reports which GPUs and libraries this machine has. Runs in a child process, since an unsuitable library may crash it.
 */
import { askOnce, childEnvironment, compiledModule, startProcess } from '../../process/index.ts';

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

const timeoutMs = 20_000;

const module = compiledModule('./probe-process.js', import.meta.url);

/** Loads the driver and its libraries like the engine, without using a GPU. Never rejects. */
export async function probeCuda(environment: NodeJS.ProcessEnv = childEnvironment()): Promise<CudaProbe> {
  try {
    return await askOnce(
      (events) => startProcess({ module, environment, timeMsMax: timeoutMs }, events),
      {},
      ({ failure, ended }) => {
        if (ended === undefined) return new Error(failure.message);
        if (ended.isLate) return new Error(`loading the driver took longer than ${timeoutMs / 1000} s`);
        if (ended.signal !== null) return new Error(`loading the driver ended the process by ${ended.signal}`);
        return new Error(`loading the driver ended the process: ${ended.words.trim() || ended.reason}`);
      },
    );
  } catch (error) {
    return { state: 'fails', reason: (error as Error).message };
  }
}
