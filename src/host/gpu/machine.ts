import { loadMachine, type Machine } from '../../hardware/index.ts';
import type { GpuProcessInfo, MeasuredTopology } from '../../gpu/index.ts';

/** The engine's own limits say what is for weights; of the rest nothing is known to the planners. */
const reserveBytes = 0;

/**
 * This machine as the planners see it: its GPUs with the bandwidths that were measured between them. What a measured profile
 * of layers does not need (speeds of arithmetic) stands as the DeepPlan paper's machine has it, and says so.
 */
export function machineOf(info: GpuProcessInfo, topology: MeasuredTopology): Machine {
  const like = loadMachine('p3.8xlarge');
  const [gpuLike] = like.gpus;
  const switches = [...new Set(topology.gpus.map(({ switch: index }) => index))].toSorted((a, b) => a - b);
  return {
    name: 'here',
    description: info.devices.map(({ name }) => name).join(', '),
    source:
      'bandwidths measured on this machine; arithmetic as on p3.8xlarge, which measured layer profiles do not use',
    sockets: like.sockets,
    memoryBytes: like.memoryBytes,
    gpus: info.devices.map((device) => {
      const measured = topology.gpus[device.index];
      return {
        ...gpuLike!,
        model: device.name,
        memoryBytes: device.limitBytes,
        reserveBytes,
        switch: Math.max(0, switches.indexOf(measured?.switch ?? 0)),
        linkGBps: Math.max(0.001, measured?.loadGBps ?? gpuLike!.linkGBps),
        multiprocessors: device.multiprocessors,
      };
    }),
    switches: switches.map((index) => {
      const members = topology.gpus.filter((gpu) => gpu.switch === index);
      const together = topology.pairs
        .filter(
          ({ gpus: [one, other] }) =>
            members.some((gpu) => gpu.index === one) && members.some((gpu) => gpu.index === other),
        )
        .map(({ loadTogetherGBps }) => loadTogetherGBps);
      const alone = Math.max(...members.map(({ loadGBps }) => loadGBps));
      return { uplinkGBps: Math.max(0.001, together.length > 0 ? Math.max(...together, alone) : alone) };
    }),
    nvlinks: topology.pairs.flatMap(({ gpus, peerGBps }) =>
      peerGBps === null ? [] : [{ gpus, linkGBps: Math.max(0.001, Math.min(...peerGBps)), copySetupUs: 10 }],
    ),
  };
}
