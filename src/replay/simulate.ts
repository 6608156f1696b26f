import type { Machine } from '../hardware/index.ts';
import { schedulerGpus, type HostTier, type OfferSheet, type Policy, type WorkersPlace } from '../schedule/index.ts';
import { TraceForesight } from './foresight.ts';
import type { GpuChange, SimulatorOptions } from './simulator-options.ts';
import { runSimulation, type SimulatedRun } from './simulator.ts';
import type { ReplayObserver, Trace } from './types.ts';

export interface SimulationSettings {
  readonly machine: Machine;
  /** `oracle`: evict by the trace's own future, which is read first. */
  readonly policy: Omit<Policy, 'eviction'> & { readonly eviction: Policy['eviction'] | 'oracle' };
  /** The sheet of a trace's function, read once; functions of one model should share its offers. */
  readonly sheetOf: (functionIndex: number, name: string) => OfferSheet;
  /** For each GPU's memory, instead of the machine's value. */
  readonly reserveBytes?: number;
  /** The observer does not hear of this many first invocations. */
  readonly warmupInvocations?: number;
  readonly gpuChanges?: readonly GpuChange[];
  /** For sessions on the CPU; left out: unlimited. */
  readonly cpuMemoryBytes?: number;
  readonly workers?: WorkersPlace;
  /** Left out: everything is in host memory. */
  readonly host?: HostTier;
}

/**
 * Replays a trace on a virtual clock and reports to the observer. Throws RangeError for a trace that is not in order of
 * arrival.
 */
export async function simulate(
  trace: Trace,
  settings: SimulationSettings,
  observer: ReplayObserver,
): Promise<SimulatedRun> {
  const { policy } = settings;
  const foresight = policy.eviction === 'oracle' ? await TraceForesight.of(trace) : undefined;
  return await runSimulation(trace, simulatorOptions(settings, observer, foresight));
}

/** Options for the simulator of one host. */
export function simulatorOptions(
  settings: SimulationSettings,
  observer: ReplayObserver,
  foresight?: TraceForesight,
): SimulatorOptions {
  const { machine, reserveBytes, policy, sheetOf, warmupInvocations, gpuChanges, workers, host } = settings;
  const cores = machine.sockets.reduce((sum, socket) => sum + socket.cores, 0);
  return {
    gpus: schedulerGpus(machine, reserveBytes),
    cpu: { cores, memoryBytes: settings.cpuMemoryBytes ?? Infinity },
    workers: workers ?? null,
    host,
    policy: { ...policy, eviction: foresight ?? (policy.eviction as Policy['eviction']) },
    onArrival: foresight && ((functionIndex) => foresight.arrived(functionIndex)),
    sheetOf,
    observer,
    warmupInvocations: warmupInvocations ?? 0,
    gpuChanges: gpuChanges ?? [],
  };
}
