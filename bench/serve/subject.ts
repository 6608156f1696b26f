/** The host of the serving benchmark: one BERT-Base under many names, of which a part fits on the GPUs. */
import { once } from 'node:events';
import { link, mkdir, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openSnapshot, readScheduler, type HostSnapshot } from '../../src/cli/replay/beside.ts';
import type { HostAddress } from '../../src/cli/client.ts';
import type { ColdStartMode } from '../../src/plan/index.ts';
import type { PolicyName } from '../../src/schedule/index.ts';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { BenchmarkNotPossible } from '../benchmark.ts';
import { projectRoot, type Servers, type StartedServer } from '../servers.ts';

/** What the benchmark is run at. */
export interface Sizes {
  readonly model: Readonly<Record<string, number>>;
  /** Of each GPU for functions, and pinned host memory for all of them. */
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
  // Kernels are compiled once for all runs; those for the emulated driver, which no GPU can load, stand apart.
  const compiled = join(isEmulated ? tmpdir() : join(projectRoot, '.cache'), 'turntable-bench-gpu', 'compiled');
  await mkdir(compiled, { recursive: true });
  await mkdir(join(servers.folder, 'data', 'cache'), { recursive: true });
  await symlink(compiled, join(servers.folder, 'data', 'cache', 'gpu'));
}

export interface ServingHost {
  readonly address: HostAddress;
  /** Of every function. */
  readonly snapshot: HostSnapshot;
  stop(): Promise<void>;
}

const pollMs = 200;
/** Registration compiles a program for each function, and measures the layers of the first. */
const plannedWithinMs = 600_000;

/**
 * A host with every function planned for the GPUs.
 * @throws BenchmarkNotPossible where its GPUs do not come up, or a function cannot run on them
 */
export async function startServing(
  servers: Servers,
  { mode, policy, hybrid }: System,
  sizes: Sizes,
  environment: Readonly<Record<string, string>>,
  { allowsEmulated, progress }: { readonly allowsEmulated: boolean; readonly progress: (text: string) => void },
): Promise<ServingHost> {
  const flags = {
    '--gpu-mode': mode,
    '--gpu-policy': policy,
    '--gpu-hybrid': hybrid,
    '--gpu-memory': `${sizes.gpuBytes}B`,
    '--gpu-host-memory': `${sizes.hostBytes}B`,
    '--gpu-profile-iterations': String(sizes.profileIterations),
    // Who is late is to be seen as late, not to be refused.
    '--limits-requests-in-flight': '100000',
    // Nothing else is to take the processor or the GPUs' time while serving is measured.
    '--cpu-profiling': 'off',
  };
  const server = await servers.startHost(Object.entries(flags).flat(), environment);
  const address: HostAddress = { url: server.url, apiKey: undefined };
  const names = Array.from({ length: sizes.functions }, (_, index) => functionName(index));
  await planned(address, names, allowsEmulated, progress);
  const snapshot = await openSnapshot(address, await readScheduler(address), names, true);
  return { address, snapshot: snapshot!, stop: () => stopServer(server) };
}

async function planned(
  address: HostAddress,
  names: readonly string[],
  allowsEmulated: boolean,
  progress: (text: string) => void,
): Promise<void> {
  const untilMs = performance.now() + plannedWithinMs;
  for (;;) {
    const scheduler = await readScheduler(address);
    if ('missing' in scheduler) throw new Error(`the host does not tell of its scheduler: ${scheduler.missing}`);
    const { status, reason, functions, isEmulated } = scheduler;
    if (status === 'none' || status === 'unavailable') {
      throw new BenchmarkNotPossible(`there is no GPU to serve from: ${reason ?? status}`);
    }
    if (isEmulated && !allowsEmulated) {
      throw new BenchmarkNotPossible(
        'the driver that the environment names is the emulated one, whose times mean nothing: --emulated is for that',
      );
    }
    const scheduled = functions.filter(({ index }) => index !== undefined).length;
    if (status === 'up' && scheduled >= names.length) return;
    await refused(address, names[0]!);
    progress(`${scheduled} of ${names.length} functions are planned`);
    if (performance.now() > untilMs)
      throw new Error(`after 10 minutes ${scheduled} of ${names.length} functions are planned`);
    await sleep(pollMs);
  }
}

/** All functions are of one model: what the first is refused for, all are. */
async function refused({ url }: HostAddress, name: string): Promise<void> {
  const { functions } = (await (await fetch(`${url}/api/functions`)).json()) as {
    readonly functions: readonly { readonly name: string; readonly plan: string | null }[];
  };
  const plan = functions.find((each) => each.name === name)?.plan;
  if (plan?.startsWith('CPU pool: ') === true) throw new BenchmarkNotPossible(`the GPUs do not run BERT-Base: ${plan}`);
}

async function stopServer({ process: child }: StartedServer): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}
