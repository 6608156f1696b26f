/** What the doctor finds: plain data, apart from what it means and how it is shown. */
import type { CudaProbe } from '../../gpu/index.ts';
import type { Cores, GpuDriver, Memory } from '../../hardware/index.ts';

export interface Facts {
  readonly config: ConfigFacts;
  readonly cores: Cores;
  readonly memory: Memory;
  readonly runtime: RuntimeFacts;
  readonly dataDir: FolderFacts;
  readonly functions: FunctionsFacts;
  readonly port: PortFacts;
  readonly redis: RedisFacts;
  /** Whether the kernel can keep processes off the network (cpu.modelNetwork), and whether the host asks for that. */
  readonly networkFilter: { readonly isThere: boolean; readonly isWanted: boolean };
  readonly gpuDriver: GpuDriver;
  readonly libraries: readonly LibraryFacts[];
  /** What came of loading the driver and its libraries as the GPU engine does. */
  readonly cuda: CudaProbe;
}

export interface ConfigFacts {
  /** The file that was read. */
  readonly file: string | undefined;
  readonly warnings: readonly string[];
  /** Why the host would refuse to listen with it. */
  readonly refusal: string | undefined;
}

export interface RuntimeFacts {
  readonly node: string;
  /** Version in package.json's "engines". */
  readonly nodeMinimum: string;
  readonly turntable: string;
  readonly onnxruntime: OnnxRuntimeFacts;
}

export type OnnxRuntimeFacts =
  | { readonly state: 'loads'; readonly version: string | undefined; readonly providers: readonly ProviderFacts[] }
  | { readonly state: 'fails'; readonly version: string | undefined; readonly reason: string };

export interface ProviderFacts {
  readonly name: string;
  /** Whether its library came with the package; the others are fetched by the owner of the hardware. */
  readonly bundled: boolean;
}

export type FolderFacts =
  | { readonly state: 'writable'; readonly path: string; readonly exists: boolean; readonly freeBytes: number }
  | { readonly state: 'unusable'; readonly path: string; readonly reason: string };

export type FunctionsFacts =
  | { readonly state: 'read'; readonly path: string; readonly functions: readonly FunctionFacts[] }
  | { readonly state: 'unusable'; readonly path: string; readonly reason: string };

export type FunctionFacts =
  | { readonly state: 'good'; readonly name: string; readonly modelBytes: number; readonly handler: string | undefined }
  | { readonly state: 'broken'; readonly name: string; readonly reason: string };

export type PortFacts = { readonly host: string; readonly port: number } & (
  { readonly state: 'free' | 'turntable' | 'taken' } | { readonly state: 'unusable'; readonly reason: string }
);

export type RedisFacts = { readonly address: string } & (
  | {
      readonly state: 'answers';
      readonly version: string | undefined;
      readonly pingMs: number;
      /** By name; undefined where it does not say, as managed servers do. */
      readonly settings: ReadonlyMap<string, string> | undefined;
    }
  | { readonly state: 'locked' | 'silent'; readonly reason: string }
);

export interface LibraryFacts {
  readonly name: string;
  readonly path: string | undefined;
}
