/** A host with all functions planned for its GPUs: the start of each benchmark that serves from GPUs. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { request, type HostAddress } from '../src/cli/client.ts';
import { readScheduler } from '../src/cli/replay/host-snapshot.ts';
import type { FunctionRow, FunctionsAnswer } from '../src/host/dashboard/index.ts';
import { BenchmarkNotPossible } from './benchmark.ts';
import type { Servers, StartedServer } from './servers.ts';

export interface GpuServer {
  readonly address: HostAddress;
  /** Whether the host's GPUs are emulated, so that its times mean nothing. */
  readonly isEmulated: boolean;
  stop(): Promise<void>;
}

export interface GpuServerOptions {
  /** Flags of the host, beside those for every measurement. */
  readonly flags: Readonly<Record<string, string>>;
  readonly functionCount: number;
  readonly environment: Readonly<Record<string, string>>;
  readonly allowsEmulated: boolean;
  readonly progress: (text: string) => void;
}

const pollMs = 100;
/** Registration compiles programs, and measures the layers and operators of each structure. */
const plannedWithinMs = 600_000;

const commonFlags = {
  // Late calls must count as late, not be refused.
  '--limits-requests-in-flight': '100000',
  // Nothing else may use the CPU or the GPUs while serving is measured.
  '--cpu-profiling': 'off',
};

/** @throws BenchmarkNotPossible if its GPUs do not start; Error if a function cannot be planned */
export async function startGpuServer(servers: Servers, options: GpuServerOptions): Promise<GpuServer> {
  const flags = { ...commonFlags, ...options.flags };
  const server = await servers.startHost(Object.entries(flags).flat(), options.environment);
  const address: HostAddress = { url: server.url, apiKey: undefined };
  try {
    const isEmulated = await planned(address, options);
    return { address, isEmulated, stop: () => stopServer(server) };
  } catch (error) {
    await stopServer(server);
    throw error;
  }
}

/** Resolves with whether the host's GPUs are emulated, when every function is planned. */
async function planned(
  address: HostAddress,
  { functionCount, allowsEmulated, progress }: GpuServerOptions,
): Promise<boolean> {
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
    const scheduled = functions.filter(({ index }) => index !== null).length;
    if (status === 'up' && scheduled >= functionCount) return isEmulated;
    await mustBePossible(address);
    progress(`${scheduled} of ${functionCount} functions are planned`);
    if (performance.now() > untilMs) {
      throw new Error(`after 10 minutes ${scheduled} of ${functionCount} functions are planned`);
    }
    await sleep(pollMs);
  }
}

/** These states end only with another model or with a call; all others are worth waiting for. */
const isRefused = ({ gpuState }: FunctionRow): boolean =>
  gpuState?.kind === 'refused' || gpuState?.kind === 'disagreed' || gpuState?.kind === 'undecided';

/** Reports a function that will never be planned at once, not after the whole time limit. */
async function mustBePossible(address: HostAddress): Promise<void> {
  const { functions } = (await (await request(address, '/api/functions')).json()) as FunctionsAnswer;
  const unavailable = functions.find(({ state }) => state === 'unavailable');
  if (unavailable !== undefined) throw new Error(`${unavailable.name} is unavailable: ${unavailable.reason}`);
  const refused = functions.find(isRefused);
  if (refused !== undefined) throw new Error(`${refused.name} was refused by the GPUs: ${refused.gpuState?.whyNot}`);
}

async function stopServer({ process: child }: StartedServer): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}
