/**
 * Finds the scarce resource by trying: the same load on a machine where one resource is unlimited, and all others are
 * as before.
 */
import type { Machine } from '../../hardware/index.ts';
import { withCores } from '../../hardware/index.ts';
import { capacityResources, type CapacityResource } from '../../report/index.ts';

/** As good as unlimited, and small enough for the formulas. */
const endless = 1e4;

interface Load {
  readonly hosts: number;
  readonly usesCpu: boolean;
  readonly exceedsHostMemory: boolean;
}

interface Resource {
  /** Whether it could run out on a machine. */
  readonly isThere: (machine: Machine, load: Load) => boolean;
  /** What of the machine is another where it is unlimited. */
  readonly relaxed: (machine: Machine) => Partial<Machine>;
}

const hasGpus = ({ gpus }: Machine): boolean => gpus.length > 0;

const resources: Readonly<Record<CapacityResource, Resource>> = {
  'gpu time': {
    isThere: hasGpus,
    relaxed: ({ gpus, costs }) => ({
      gpus: gpus.map((gpu) => ({
        ...gpu,
        gemmTflops: gpu.gemmTflops * endless,
        batchedGemmTflops: gpu.batchedGemmTflops * endless,
        memoryGBps: gpu.memoryGBps * endless,
        kernelUs: gpu.kernelUs / endless,
      })),
      ...(costs && {
        costs: {
          ...costs,
          launchUs: costs.launchUs / endless,
          coldLaunchUs: costs.coldLaunchUs / endless,
          operatorLaunchUs: costs.operatorLaunchUs / endless,
        },
      }),
    }),
  },
  'gpu memory': {
    isThere: hasGpus,
    relaxed: ({ gpus }) => ({ gpus: gpus.map((gpu) => ({ ...gpu, memoryBytes: gpu.memoryBytes * endless })) }),
  },
  links: {
    isThere: hasGpus,
    relaxed: ({ gpus, switches, hostMemory, costs }) => ({
      gpus: gpus.map((gpu) => ({ ...gpu, linkGBps: gpu.linkGBps * endless, copySetupUs: 0 })),
      switches: switches.map(({ uplinkGBps }) => ({ uplinkGBps: uplinkGBps * endless })),
      ...(hostMemory && { hostMemory: { ...hostMemory, bandwidthGBps: hostMemory.bandwidthGBps * endless } }),
      ...(costs && { costs: { ...costs, issueUs: costs.issueUs / endless } }),
    }),
  },
  'host memory': {
    isThere: (machine, { exceedsHostMemory }) => !hasGpus(machine) || exceedsHostMemory,
    relaxed: ({ memoryBytes, hostMemory }) => ({
      memoryBytes: memoryBytes * endless,
      ...(hostMemory && { hostMemory: { ...hostMemory, pinnedBytes: hostMemory.pinnedBytes * endless } }),
    }),
  },
  disk: {
    isThere: (machine, { exceedsHostMemory }) => hasGpus(machine) && machine.disk !== undefined && exceedsHostMemory,
    relaxed: ({ disk }) => ({ ...(disk && { disk: { ...disk, readGBps: disk.readGBps * endless } }) }),
  },
  cores: { isThere: (_, { usesCpu }) => usesCpu, relaxed: (machine) => withCores(machine, 1e6) },
  // The router 'one' has no network between hosts.
  'separate hosts': { isThere: (_, { hosts }) => hosts > 1, relaxed: () => ({}) },
};

/** The resources that could run out on a machine. */
export const resourcesOf = (machine: Machine, load: Load): CapacityResource[] =>
  capacityResources.filter((resource) => resources[resource].isThere(machine, load));

export const relaxed = (machine: Machine, resource: CapacityResource): Machine => ({
  ...machine,
  ...resources[resource].relaxed(machine),
});
