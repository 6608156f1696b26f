/** The host of the serving benchmark: one BERT-Base under many names, of which part fits on the GPUs. */
import { link, mkdir, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openSnapshot, readScheduler, type HostSnapshot } from '../simulated/host-snapshot.ts';
import type { ColdStartMode } from '../../src/plan/index.ts';
import type { PolicyName } from '../../src/schedule/index.ts';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { startGpuServer, type GpuServer, type Patience } from '../gpu-server.ts';
import { projectRoot, type Servers } from '../servers.ts';

/** The sizes of a run. */
export interface Sizes {
  readonly model: Readonly<Record<string, number>>;
  /** Memory of each GPU for functions, and pinned host memory for all of them. */
  readonly gpuBytes: number;
  readonly hostBytes: number;
  readonly functions: number;
  /** Repetitions of each measurement of a layer. */
  readonly profileIterations: number;
}

/** One way to serve. */
export interface System {
  readonly name: string;
  readonly mode: ColdStartMode;
  readonly policy: PolicyName;
  /** Whether plans may divide a function between the GPU and the CPU. */
  readonly hybrid: 'off' | 'memory';
}

export const functionName = (index: number): string => `bert-${String(index).padStart(3, '0')}`;

/** Writes the model once; every function is a link to it. */
export async function writeFunctions(
  servers: Servers,
  { model, functions }: Sizes,
  isEmulated: boolean,
): Promise<void> {
  const path = join(servers.folder, 'model.onnx');
  await writeModel(buildArchitecture('bert-base', model).model, path);
  for (let index = 0; index < functions; index++) {
    const folder = join(servers.folder, 'functions', functionName(index));
    await mkdir(folder, { recursive: true });
    await link(path, join(folder, 'model.onnx'));
    await writeFile(join(folder, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '100ms' }));
  }
  // Kernels are compiled once for all runs; those for the emulated driver, which no GPU can load, are kept apart.
  const compiled = join(isEmulated ? tmpdir() : join(projectRoot, '.cache'), 'turntable-bench-gpu', 'compiled');
  await mkdir(compiled, { recursive: true });
  await mkdir(join(servers.folder, 'data', 'cache'), { recursive: true });
  await symlink(compiled, join(servers.folder, 'data', 'cache', 'gpu'));
}

export interface ServingHost extends GpuServer {
  /** Of every planned function. */
  readonly snapshot: HostSnapshot;
}

export interface ServingOptions {
  readonly allowsEmulated: boolean;
  readonly progress: (text: string) => void;
  readonly patience?: Patience | undefined;
}

/**
 * A host with every function planned for the GPUs, or with as many as there was time for.
 * @throws BenchmarkNotPossible if its GPUs do not start, or a function cannot run on them; NotInTime
 */
export async function startServing(
  servers: Servers,
  { mode, policy, hybrid }: System,
  sizes: Sizes,
  environment: Readonly<Record<string, string>>,
  given: ServingOptions,
): Promise<ServingHost> {
  const flags = {
    '--gpu-mode': mode,
    '--gpu-policy': policy,
    '--gpu-hybrid': hybrid,
    '--gpu-memory': `${sizes.gpuBytes}B`,
    '--gpu-host-memory': `${sizes.hostBytes}B`,
    '--gpu-profile-iterations': String(sizes.profileIterations),
  };
  const server = await startGpuServer(servers, { flags, functionCount: sizes.functions, environment, ...given });
  const { address, planned } = server;
  const snapshot = await openSnapshot(address, await readScheduler(address), planned);
  return { ...server, snapshot };
}
