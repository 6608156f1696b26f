/** What the loader finds on this machine, asked in a process of its own: a library that does not suit the machine may end it. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

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
  /** The reason says what was looked for and where. */
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

/** JavaScript from dist/ even when this runs from src/, as in tests. */
const script = fileURLToPath(
  new URL(
    import.meta.url.endsWith('.ts') ? '../../../dist/gpu/driver/probe-process.js' : './probe-process.js',
    import.meta.url,
  ),
);

/** Loads the driver and its libraries as the engine would, without using a GPU. Never rejects. */
export function probeCuda(environment: NodeJS.ProcessEnv = process.env): Promise<CudaProbe> {
  return new Promise((resolve) => {
    execFile(process.execPath, [script], { timeout: timeoutMs, env: environment }, (error, stdout) => {
      try {
        resolve(JSON.parse(stdout) as CudaProbe);
      } catch {
        const signal = error !== null && typeof error.signal === 'string' ? error.signal : undefined;
        const reason = error?.killed
          ? `loading the driver took longer than ${timeoutMs / 1000} s`
          : signal === undefined
            ? `loading the driver ended the process: ${error?.message ?? 'it said nothing'}`
            : `loading the driver ended the process by ${signal}`;
        resolve({ state: 'fails', reason });
      }
    });
  });
}
