import { concludeTopology, loadMachine, type Machine, type StatedTopology } from '../../hardware/index.ts';
import type { SchedulerGpu } from '../../schedule/index.ts';
import type { GpuProcessInfo, MeasuredTopology } from '../../gpu/index.ts';

/** The engine limits the weights itself; the planners know nothing about the rest. */
const reserveBytes = 0;
/** Assumed bandwidth of a link that could not be timed: as good as none. */
const bandwidthMinGBps = 0.001;

/** Share of the engine's bytes on a GPU for weights; the rest is for activations, constants, and weights in transit. */
const weightShare = 0.85;

/** The GPUs as places. */
export function schedulerGpusOf({ gpus, switches }: Machine): SchedulerGpu[] {
  return gpus.map((gpu) => ({
    capacityBytes: Math.floor(gpu.memoryBytes * weightShare),
    switch: gpu.switch,
    linkGBps: gpu.linkGBps,
    uplinkGBps: switches[gpu.switch]!.uplinkGBps,
  }));
}

/** For weights, on the smallest GPU: a plan has the same layers on each. */
export const capacityBytesOf = (machine: Machine): number =>
  Math.min(...schedulerGpusOf(machine).map(({ capacityBytes }) => capacityBytes));

/**
 * This machine for the planners: its GPUs with the measured bandwidths between them, and NVLink if a GPU loads faster
 * with another's help. Values that a measured layer profile does not need (arithmetic speeds) are copied from the
 * DeepPlan paper's machine, and marked as such.
 *
 * @throws MachineError for a stated topology that these GPUs cannot have
 */
export function machineOf(info: GpuProcessInfo, topology: MeasuredTopology, stated?: StatedTopology): Machine {
  const like = loadMachine('p3.8xlarge');
  const [gpuLike] = like.gpus;
  const { switches, links } = concludeTopology(topology, stated);
  return {
    name: 'here',
    description: info.devices.map(({ name }) => name).join(', '),
    source:
      'bandwidths measured on this machine; arithmetic as on p3.8xlarge, which measured layer profiles do not use',
    sockets: like.sockets,
    memoryBytes: like.memoryBytes,
    gpus: info.devices.map(({ name, index, limitBytes, multiprocessors }) => ({
      ...gpuLike!,
      model: name,
      memoryBytes: limitBytes,
      reserveBytes,
      switch: Math.max(
        0,
        switches.findIndex(({ gpus }) => gpus.includes(index)),
      ),
      linkGBps: Math.max(bandwidthMinGBps, topology.gpus[index]?.loadGBps ?? gpuLike!.linkGBps),
      multiprocessors,
    })),
    switches: switches.map(({ uplinkGBps }) => ({ uplinkGBps: Math.max(bandwidthMinGBps, uplinkGBps) })),
    nvlinks: links
      .filter(({ isHelp }) => isHelp)
      .map(({ gpus, linkGBps }) => ({ gpus, linkGBps: Math.max(bandwidthMinGBps, linkGBps), copySetupUs: 10 })),
  };
}
