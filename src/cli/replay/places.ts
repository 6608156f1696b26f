/** What a replay has beside the GPUs: the CPU with its sessions, workers, and the tier of host memory. */
import { usage } from '../error.ts';
import { coresOf, type Machine } from '../../hardware/index.ts';
import { filledStart, type DemandOptions, type OfferCache } from '../../replay/index.ts';
import { coresIn, LatencyBook, type CpuOffer, type WorkersPlace } from '../../schedule/index.ts';
import { type Load } from './load.ts';
import { instanceMs, parseCpuProfile, PoolTables, slowdownBeside, type CpuProfile } from '../../cpu/index.ts';
import { readProfile } from '../planning.ts';
import type { CpuGiven, CpuProfileGiven } from '../values.ts';
import { getOrMake, given } from '../../tools/index.ts';

export interface PlacesOptions {
  /** As it was given, for reports. */
  readonly cpu?: ReadonlyMap<string, CpuGiven | CpuProfileGiven>;
  readonly cpuMemory?: number;
  readonly workers?: WorkersPlace;
  readonly hostMemory?: number;
  readonly warmup?: number;
}

export type Places = ReturnType<typeof placesOf>;

/**
 * Throws CliError for options that exclude each other, and ProfileError for a name that is no model.
 *
 * @param cpu by model @param machines the machines of one scheduler, which uses their host memory as one
 * @param isOneOfMany whether this is one of several hosts, each with a scheduler of its own
 */
export function placesOf(
  options: PlacesOptions,
  cpu: ReadonlyMap<string, CpuCosts> | undefined,
  machine: Machine,
  load: Load,
  offers: OfferCache,
  machines: readonly Machine[],
  isOneOfMany = false,
) {
  const { workers, cpuMemory } = options;
  if (cpu === undefined && (workers !== undefined || cpuMemory !== undefined)) {
    throw usage('--workers and --cpu-memory need --cpu: what a run takes there, such as bert-base=180ms@8');
  }
  const leasedCores = leasedCoresOf(cpu, machine, load, isOneOfMany);
  // Without GPUs main memory is there for sessions alone.
  const cpuMemoryBytes = cpuMemory ?? (machine.gpus.length === 0 ? machine.memoryBytes : undefined);
  let functionsBytes = 0;
  for (const [index] of load.trace.functionNames.entries()) functionsBytes += offers.hostBytes(load.modelOf(index));
  const { disk } = machine;
  const hasGpus = machine.gpus.length > 0;
  const pinnedBytes = ({ hostMemory, memoryBytes }: Machine): number =>
    options.hostMemory ?? hostMemory?.pinnedBytes ?? memoryBytes;
  const capacityBytes = hasGpus ? pinnedBytes(machine) : (cpuMemoryBytes ?? machine.memoryBytes);
  const allPinnedBytes = machines.reduce((sum, each) => sum + pinnedBytes(each), 0);
  const isExceeded = hasGpus && functionsBytes > allPinnedBytes;
  const bytesOf = (index: number): number => offers.hostBytes(load.modelOf(index));
  // Each host of a fleet gets to know its functions by their calls.
  const filledWith =
    isExceeded && !isOneOfMany
      ? filledStart(load.trace, { capacityBytes: allPinnedBytes, warmup: options.warmup ?? 0, bytesOf })
      : [];
  return {
    ...given({ cpuMemoryBytes, workers, leasedCores }),
    // If all functions fit into host memory, they count as read: a host reads its functions when it starts.
    ...(isExceeded && disk !== undefined
      ? { host: { capacityBytes, diskGBps: disk.readGBps, filledWith } }
      : undefined),
    cpuOf: (model: string): CpuOffer | undefined => {
      const given = cpu?.get(model);
      return given === undefined ? undefined : cpuOffer(given, offers.weightBytes(model), machine);
    },
    demandOf: (model: string, sloMs: number): DemandOptions | undefined => {
      const given = cpu?.get(model);
      return given === undefined ? undefined : demandOf(given, machine, sloMs);
    },
    /** Milliseconds of a run on the CPU of another machine. */
    latencyMsOf: (model: string): number | undefined => cpu?.get(model)?.latencyMs,
    hostMemory: {
      capacityBytes,
      functionsBytes,
      diskCapacityBytes: disk?.capacityBytes,
      ...(isExceeded && disk !== undefined ? { filledFunctions: filledWith.length } : undefined),
    },
    /** What a report says of them. */
    settings: {
      ...(options.cpu === undefined ? undefined : { cpu: [...options.cpu].map(cpuText).join(',') }),
      ...(cpu === undefined ? undefined : { cpu_memory_bytes: cpuMemoryBytes ?? null }),
      ...(workers === undefined ? undefined : { workers: `${workers.slots}@${workers.roundTripMs}ms` }),
      ...given({ host_memory_bytes: options.hostMemory }),
    },
  };
}

/** Cores that functions' own instances have: each function of a model has its list. */
function leasedCoresOf(
  cpu: ReadonlyMap<string, CpuCosts> | undefined,
  machine: Machine,
  load: Load,
  isOneOfMany: boolean,
): number | undefined {
  let leased = 0;
  for (const [index] of load.trace.functionNames.entries()) {
    leased += coresIn(cpu?.get(load.modelOf(index))?.list ?? { groups: [] });
  }
  if (leased > 0 && isOneOfMany) throw usage('--cpu with a list of instances is for one machine, not for a fleet');
  const cores = machine.sockets.reduce((sum, socket) => sum + socket.cores, 0);
  if (leased > cores)
    throw usage(`--cpu: the functions' own instances take ${leased} cores together, and ${machine.name} has ${cores}`);
  return leased > 0 ? leased : undefined;
}

/** What a run costs, with the profile that says so, if one does. */
export type CpuCosts = CpuGiven & { readonly profiled?: Profiled };

export interface Profiled {
  readonly profile: CpuProfile;
  readonly calls: number;
  readonly delayMs: number;
  readonly tables: Map<number, PoolTables>;
}

/** @throws CliError for a file that is no profile, ProfileError for one that lacks instances of one thread */
export function costsOf(given: CpuGiven | CpuProfileGiven): CpuCosts {
  if (!('profile' in given)) return given;
  const { profile: file, calls, delayMs, loadMs, bytes } = given;
  const profile = readProfile(file, parseCpuProfile);
  const [threads = 1] = profile.pool.threads;
  const latencyMs = instanceMs(profile.pool, threads, profile.pool.batches[0] ?? 1);
  if (latencyMs === undefined) throw usage(`--cpu: ${file} has no time of one row on ${threads} threads`);
  const profiled = { profile, calls, delayMs, tables: new Map<number, PoolTables>() };
  return { latencyMs, cores: threads, loadMs: loadMs ?? profile.startMs, bytes, profiled };
}

/** As the pools of a host have it: instances of one thread on demand, and lists of others by the load. */
function profiledDemand({ profile, calls, delayMs, tables }: Profiled, cores: number, sloMs: number): DemandOptions {
  const { pool, service } = profile;
  const [[threads = 1], [rowsPerCall = 1]] = [pool.threads, pool.batches];
  const callsMax = rowsPerCall > 1 ? 1 : calls;
  const alike = service.configurations.filter((each) => each.threads === threads);
  const { serviceTime } = alike.toSorted((a, b) => b.concurrency - a.concurrency)[0] ?? { serviceTime: [1] };
  return {
    limits: { batchMax: callsMax, batchDelayMs: delayMs, instancesMax: Math.max(1, Math.floor(cores / threads)) },
    msOf: (rows, together = 1) =>
      instanceMs(pool, threads, rows * rowsPerCall)! * slowdownBeside(serviceTime, together),
    swaps: {
      tables: getOrMake(
        tables,
        cores,
        () => new PoolTables(profile, { cores, batchMax: callsMax * rowsPerCall, batchTimeoutMs: delayMs }),
      ),
      sloMs,
      rowsPerCall,
    },
  };
}

/** How instances on demand join the calls of a function, as many as there are cores for; undefined: not at all. */
function demandOf(
  { latencyMs, cores, joined, profiled }: CpuCosts,
  machine: Machine,
  sloMs: number,
): DemandOptions | undefined {
  if (profiled !== undefined) return profiledDemand(profiled, coresOf(machine), sloMs);
  if (joined === undefined) return undefined;
  const machineCores = coresOf(machine);
  if (cores > machineCores)
    throw usage(
      `--cpu: an instance whose calls share runs takes ${cores} cores, and ${machine.name} has ${machineCores}`,
    );
  const times = new LatencyBook();
  times.expect(cores, 1, latencyMs);
  times.expect(cores, joined.calls, joined.ms);
  return {
    limits: { batchMax: joined.calls, batchDelayMs: joined.delayMs, instancesMax: Math.floor(machineCores / cores) },
    msOf: (rows) => times.ms(cores, rows),
  };
}

/** A session whose costs are not given holds its weights once, and loads as fast as the disk reads them. */
export function cpuOffer(
  { latencyMs, cores, loadMs, bytes, list, joined }: CpuGiven,
  weightBytes: number,
  { disk }: Machine,
): CpuOffer {
  // Its instances are there from the beginning.
  if (list !== undefined) return { latencyMs, cores, list };
  const diskMs = disk === undefined ? undefined : weightBytes / (disk.readGBps * 1e6);
  const session = { loadMs: loadMs ?? diskMs ?? 0, bytes: bytes ?? weightBytes };
  // As a pool offers it: so many calls share the cores of a run, and what a call then takes is learnt.
  if (joined !== undefined) return { latencyMs: undefined, cores: cores / joined.calls, ...session };
  return { latencyMs, cores, ...session };
}

function cpuText([model, given]: readonly [string, CpuGiven | CpuProfileGiven]): string {
  const session = [
    given.loadMs === undefined ? '' : `:${given.loadMs}ms`,
    given.bytes === undefined ? '' : `:${given.bytes}B`,
  ].join('');
  if ('profile' in given) return `${model}=${given.profile}+${given.calls}/${given.delayMs}ms${session}`;
  const { latencyMs, cores, list, joined } = given;
  if (list !== undefined) {
    const groups = list.groups.map((each) => `${each.instances}x${each.threads}x${each.batch}@${each.latencyMs}ms`);
    return `${model}=${groups.join('+')}/${list.batchTimeoutMs}ms`;
  }
  const shared = joined === undefined ? '' : `+${joined.calls}@${joined.ms}ms/${joined.delayMs}ms`;
  return `${model}=${latencyMs}ms@${cores}${shared}${session}`;
}
