/** Reads from a host what the simulator needs to repeat a replay. */
import { request, type HostAddress } from '../../src/cli/client.ts';
import { CliError } from '../../src/cli/error.ts';
import { LiveError } from '../../src/replay/index.ts';
import { Semaphore } from '../../src/tools/index.ts';
import {
  parseHostScheduler,
  parseOfferedFunction,
  type HostScheduler,
  type OfferedFunction,
} from './host-scheduler.ts';

export type HostSnapshot = Awaited<ReturnType<typeof openSnapshot>>;

const fetchesMax = 8;

/** The host's scheduler, or why it is unknown: other servers of the protocol do not describe theirs. */
export async function readScheduler(host: HostAddress): Promise<HostScheduler | { readonly missing: string }> {
  try {
    return parseHostScheduler(await (await request(host, '/api/scheduler')).json());
  } catch (error) {
    if (error instanceof LiveError || error instanceof CliError) return { missing: error.message };
    throw error;
  }
}

/**
 * The scheduler's inputs for these functions, and for the others that are on a GPU.
 * @throws CliError where the host has no GPUs
 */
export async function openSnapshot(
  host: HostAddress,
  scheduler: Awaited<ReturnType<typeof readScheduler>>,
  names: readonly string[],
) {
  if ('missing' in scheduler || scheduler.status !== 'up' || scheduler.gpus.length === 0) {
    throw new CliError(`there is nothing to simulate beside the host at ${host.url}: ${whyNot(scheduler)}`);
  }
  const resident = scheduler.functions.filter(({ residents }) => residents.length > 0).map(({ name }) => name);
  return { scheduler, functions: await fetchFunctions(host, scheduler, [...new Set([...names, ...resident])]) };
}

function whyNot(scheduler: Awaited<ReturnType<typeof readScheduler>>): string {
  if ('missing' in scheduler) return scheduler.missing;
  return scheduler.reason ?? `its GPUs are '${scheduler.status}'`;
}

async function fetchFunctions(
  host: HostAddress,
  { gpus }: HostScheduler,
  names: readonly string[],
): Promise<ReadonlyMap<string, OfferedFunction>> {
  const fetches = new Semaphore(fetchesMax);
  const fetchOne = async (name: string): Promise<readonly [string, OfferedFunction]> => {
    using _turn = await fetches.lock();
    const response = await request(host, `/api/scheduler/${encodeURIComponent(name)}`);
    return [name, parseOfferedFunction(await response.json(), gpus.length)];
  };
  return new Map(await Promise.all(names.map(fetchOne)));
}
