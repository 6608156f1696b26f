import type { Machine } from '../hardware/index.ts';
import { schedulerGpus, type Policy } from '../schedule/index.ts';
import { TraceForesight } from './foresight.ts';
import type { GpuChange, SimulatorOptions } from './simulator-options.ts';
import { runSimulation } from './simulator.ts';
import type { ReplayObserver, Trace } from './types.ts';

/** What the machine, the trace or the kind of replay decides. */
type Decided = 'gpus' | 'cpu' | 'cores' | 'policy' | 'observer' | 'onArrival' | 'gpuChanges';

export interface SimulationSettings extends Omit<SimulatorOptions, Decided> {
  readonly machine: Machine;
  /** `oracle`: evict by the trace's own future, which is read first. */
  readonly policy: Omit<Policy, 'eviction'> & { readonly eviction: Policy['eviction'] | 'oracle' };
  /** For each GPU's memory, instead of the machine's value. */
  readonly reserveBytes?: number;
  /** For sessions on the CPU; left out: unlimited. */
  readonly cpuMemoryBytes?: number;
  /** Those of functions' own instances; left out: none. */
  readonly leasedCores?: number;
}

/**
 * Replays a trace on a virtual clock and reports to the observer. Throws RangeError for a trace that is not in order of
 * arrival.
 */
export function simulate(
  trace: Trace,
  settings: SimulationSettings,
  observer: ReplayObserver,
  gpuChanges: readonly GpuChange[] = [],
): void {
  const foresight = settings.policy.eviction === 'oracle' ? new TraceForesight(trace) : undefined;
  runSimulation(trace, { ...simulatorOptions(settings, observer, foresight), gpuChanges });
}

/** Options for the simulator of one host. Throws RangeError for an oracle without foresight. */
export function simulatorOptions(
  { machine, policy, reserveBytes, cpuMemoryBytes = Infinity, leasedCores = 0, ...rest }: SimulationSettings,
  observer: ReplayObserver,
  foresight?: TraceForesight,
): SimulatorOptions {
  if (policy.eviction === 'oracle' && foresight === undefined)
    throw new RangeError('the oracle knows the arrivals of one host alone, which does not change');
  const cores = machine.sockets.flatMap((each, socket) => Array.from({ length: each.cores }, () => socket));
  return {
    ...rest,
    gpus: schedulerGpus(machine, reserveBytes),
    cores: cores.map((socket, id) => ({ id, socket, core: id })),
    cpu: { cores: cores.length - leasedCores, memoryBytes: cpuMemoryBytes },
    policy: { ...policy, eviction: foresight ?? (policy.eviction as Policy['eviction']) },
    onArrival: foresight && ((functionIndex) => foresight.arrived(functionIndex)),
    observer,
  };
}
