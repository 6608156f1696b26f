/** Reads from a host what the simulator needs to repeat a live replay. */
import {
  LiveError,
  parseHostScheduler,
  parseOfferedFunction,
  type HostScheduler,
  type OfferedFunction,
} from '../../replay/index.ts';
import { Semaphore } from '../../tools/index.ts';
import { request, type HostAddress } from '../client.ts';
import { CliError } from '../error.ts';

export type HostSnapshot = NonNullable<Awaited<ReturnType<typeof openSnapshot>>>;

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
 *
 * @param wish undefined: where the host has GPUs; true: an error where it has none
 * @returns undefined where there is nothing to simulate
 */
export async function openSnapshot(
  host: HostAddress,
  scheduler: Awaited<ReturnType<typeof readScheduler>>,
  names: readonly string[],
  wish: boolean | undefined,
) {
  if (wish === false) return undefined;
  if ('missing' in scheduler || scheduler.status !== 'up' || scheduler.gpus.length === 0) {
    if (wish === undefined) return undefined;
    throw new CliError(`there is nothing to simulate beside the host at ${host.url}: ${whyNot(scheduler)}`);
  }
  const resident = scheduler.functions.filter(({ residents }) => residents.length > 0).map(({ name }) => name);
  return { scheduler, functions: await fetchFunctions(host, scheduler, [...new Set([...names, ...resident])]) };
}

function whyNot(scheduler: Awaited<ReturnType<typeof readScheduler>>): string {
  if ('missing' in scheduler) return scheduler.missing;
  return scheduler.reason ?? `its GPUs are '${scheduler.status}'`;
}

/** The same functions as they are now; those that are gone are left out. */
export async function functionsNow(
  host: HostAddress,
  { scheduler, functions }: HostSnapshot,
): Promise<ReadonlyMap<string, OfferedFunction>> {
  try {
    return await fetchFunctions(host, scheduler, [...functions.keys()]);
  } catch (error) {
    if (error instanceof LiveError || error instanceof CliError) return new Map();
    throw error;
  }
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
