import { usage } from '../error.ts';
/** What a replay has beside the GPUs: the CPU with its sessions, workers, and the tier of host memory. */
import type { Machine } from '../../hardware/index.ts';
import { filledStart, type OfferCache } from '../../replay/index.ts';
import type { CpuOffer, WorkersPlace } from '../../schedule/index.ts';
import { type Load } from './load.ts';
import type { CpuGiven } from '../values.ts';
import { given } from '../../tools/index.ts';

export interface PlacesOptions {
  readonly cpu?: ReadonlyMap<string, CpuGiven>;
  readonly cpuMemory?: number;
  readonly workers?: WorkersPlace;
  readonly hostMemory?: number;
  readonly warmup?: number;
}

export type Places = ReturnType<typeof placesOf>;

/**
 * Throws CliError for options that exclude each other, and ProfileError for a name that is no model.
 *
 * @param machines the machines of one scheduler, which uses their host memory as one
 * @param isOneOfMany whether this is one of several hosts, each with a scheduler of its own
 */
export function placesOf(
  options: PlacesOptions,
  machine: Machine,
  load: Load,
  offers: OfferCache,
  machines: readonly Machine[],
  isOneOfMany = false,
) {
  const { cpu, workers, cpuMemory } = options;
  if (cpu === undefined && (workers !== undefined || cpuMemory !== undefined)) {
    throw usage('--workers and --cpu-memory need --cpu: what a run takes there, such as bert-base=180ms@8');
  }
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
    ...given({ cpuMemoryBytes, workers }),
    // If all functions fit into host memory, they count as read: a host reads its functions when it starts.
    ...(isExceeded && disk !== undefined
      ? { host: { capacityBytes, diskGBps: disk.readGBps, filledWith } }
      : undefined),
    cpuOf: (model: string): CpuOffer | undefined => {
      const given = cpu?.get(model);
      return given === undefined ? undefined : cpuOffer(given, offers.weightBytes(model), machine);
    },
    hostMemory: {
      capacityBytes,
      functionsBytes,
      diskCapacityBytes: disk?.capacityBytes,
      ...(isExceeded && disk !== undefined ? { filledFunctions: filledWith.length } : undefined),
    },
    /** What a report says of them. */
    settings: {
      ...(cpu === undefined ? undefined : { cpu: [...cpu].map(cpuText).join(',') }),
      ...(cpu === undefined ? undefined : { cpu_memory_bytes: cpuMemoryBytes ?? null }),
      ...(workers === undefined ? undefined : { workers: `${workers.slots}@${workers.roundTripMs}ms` }),
      ...given({ host_memory_bytes: options.hostMemory }),
    },
  };
}

/** A session whose costs are not given holds its weights once, and loads as fast as the disk reads them. */
export function cpuOffer(
  { latencyMs, cores, loadMs, bytes }: CpuGiven,
  weightBytes: number,
  { disk }: Machine,
): CpuOffer {
  const diskMs = disk === undefined ? undefined : weightBytes / (disk.readGBps * 1e6);
  return { latencyMs, cores, loadMs: loadMs ?? diskMs ?? 0, bytes: bytes ?? weightBytes };
}

function cpuText([model, { latencyMs, cores, loadMs, bytes }]: readonly [string, CpuGiven]): string {
  const session = [loadMs === undefined ? '' : `:${loadMs}ms`, bytes === undefined ? '' : `:${bytes}B`];
  return `${model}=${latencyMs}ms@${cores}${session.join('')}`;
}
