/** A host with all functions planned for its GPUs: the start of each benchmark that serves from GPUs. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { request, type HostAddress } from '../src/cli/client.ts';
import type { FunctionRow, FunctionsAnswer } from '../src/host/dashboard/index.ts';
import { BenchmarkNotPossible } from './benchmark.ts';
import { inTime, NotInTime } from './budget.ts';
import type { Servers, StartedServer } from './servers.ts';
import { readScheduler } from './simulated/host-snapshot.ts';

export interface GpuServer {
  readonly address: HostAddress;
  /** The functions that are planned, by name. */
  readonly planned: readonly string[];
  /** Whether the host's GPUs are emulated, so that its times mean nothing. */
  readonly isEmulated: boolean;
  stop(): Promise<void>;
}

/** For a run with little time. Times are those of `performance.now()`. */
export interface Patience {
  /** From then on so many planned functions are enough. */
  readonly fewerFromMs: number;
  readonly fewer: number;
  /** Then the host is given up. */
  readonly untilMs: number;
}

export interface GpuServerOptions {
  /** Flags of the host, beside those for every measurement. */
  readonly flags: Readonly<Record<string, string>>;
  readonly functionCount: number;
  readonly environment: Readonly<Record<string, string>>;
  readonly allowsEmulated: boolean;
  readonly progress: (text: string) => void;
  /** Default: all functions within ten minutes. */
  readonly patience?: Patience | undefined;
}

const pollMs = 100;
/** Registration compiles programs, and measures the layers and operators of each structure. */
const plannedWithinMs = 600_000;
/** A host that has pinned much memory takes seconds to free it; after this long it is killed. */
const stopsWithinMs = 10_000;

const commonFlags = {
  // Late calls must count as late, not be refused.
  '--limits-requests-in-flight': '100000',
  // Nothing else may use the CPU or the GPUs while serving is measured.
  '--cpu-profiling': 'off',
};

/**
 * @throws BenchmarkNotPossible if its GPUs do not start; Error if a function cannot be planned; NotInTime if too few
 * are planned in time
 */
export async function startGpuServer(servers: Servers, options: GpuServerOptions): Promise<GpuServer> {
  const flags = { ...commonFlags, ...options.flags };
  const untilMs = options.patience?.untilMs ?? Infinity;
  const server = await inTime(servers.startHost(Object.entries(flags).flat(), options.environment), untilMs);
  const address: HostAddress = { url: server.url, apiKey: undefined };
  try {
    // A host that hangs does not answer the questions either.
    const found = await inTime(planned(address, options), untilMs + 2 * pollMs);
    return { address, ...found, stop: () => stopServer(server) };
  } catch (error) {
    await stopServer(server);
    throw error;
  }
}

/** Resolves when enough functions are planned. */
async function planned(
  address: HostAddress,
  { functionCount, allowsEmulated, progress, patience }: GpuServerOptions,
): Promise<Pick<GpuServer, 'isEmulated' | 'planned'>> {
  const untilMs = patience?.untilMs ?? performance.now() + plannedWithinMs;
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
    const names = functions.filter(({ index }) => index !== null).map(({ name }) => name);
    const isShort = patience !== undefined && performance.now() > patience.fewerFromMs;
    const enough = isShort ? Math.min(patience.fewer, functionCount) : functionCount;
    if (status === 'up' && names.length >= enough) return { isEmulated, planned: names.toSorted() };
    const states = await statesOf(address);
    const found = `${names.length} of ${functionCount} functions are planned`;
    progress(`${found}; ${states}${status === 'up' ? '' : `; the GPU process is ${status}: ${reason ?? ''}`}`);
    if (performance.now() > untilMs) {
      if (patience !== undefined) throw new NotInTime(`${found} in the time there was (${states})`);
      throw new Error(`after 10 minutes ${found}`);
    }
    await sleep(pollMs);
  }
}

/** These states end only with another model or with a call; all others are worth waiting for. */
const isRefused = ({ gpuState }: FunctionRow): boolean =>
  gpuState?.kind === 'refused' || gpuState?.kind === 'disagreed' || gpuState?.kind === 'undecided';

/**
 * Counts of the functions by state, for progress.
 * @throws Error for a function that will never be planned, at once and not after the whole time limit
 */
async function statesOf(address: HostAddress): Promise<string> {
  const { functions } = (await (await request(address, '/api/functions')).json()) as FunctionsAnswer;
  const unavailable = functions.find(({ state }) => state === 'unavailable');
  if (unavailable !== undefined) throw new Error(`${unavailable.name} is unavailable: ${unavailable.reason}`);
  const refused = functions.find(isRefused);
  if (refused !== undefined) throw new Error(`${refused.name} was refused by the GPUs: ${refused.gpuState?.whyNot}`);
  const counts = new Map<string, number>();
  for (const { state, gpuState } of functions) {
    const shown = state === 'ready' ? (gpuState?.kind ?? 'no GPU') : state;
    counts.set(shown, (counts.get(shown) ?? 0) + 1);
  }
  return [...counts].map(([shown, count]) => `${count} ${shown}`).join(', ');
}

async function stopServer({ process: child }: StartedServer): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), stopsWithinMs);
  await ended;
  clearTimeout(timer);
}
