/** What ran out, by trying: the same load on a machine that has one thing without end, and all others as before. */
import type { Machine } from '../../hardware/index.ts';
import { withCores } from '../../hardware/index.ts';

export const capacityResources = ['gpu time', 'gpu memory', 'links', 'host memory', 'cores', 'separate hosts'] as const;
export type CapacityResource = (typeof capacityResources)[number];

/** As good as without end, and a number that formulas bear. */
const endless = 1e4;

/** Of a machine, what could run out on it. */
export function resourcesOf(
  machine: Machine,
  {
    hosts,
    usesCpu,
    exceedsHostMemory,
  }: { readonly hosts: number; readonly usesCpu: boolean; readonly exceedsHostMemory: boolean },
): CapacityResource[] {
  return capacityResources.filter((resource) => {
    switch (resource) {
      case 'gpu time':
      case 'gpu memory':
      case 'links':
        return machine.gpus.length > 0;
      case 'host memory':
        return machine.gpus.length === 0 || exceedsHostMemory;
      case 'cores':
        return usesCpu;
      case 'separate hosts':
        return hosts > 1;
    }
  });
}

export function relaxed(machine: Machine, resource: CapacityResource): Machine {
  switch (resource) {
    case 'gpu time':
      return {
        ...machine,
        gpus: machine.gpus.map((gpu) => ({
          ...gpu,
          gemmTflops: gpu.gemmTflops * endless,
          batchedGemmTflops: gpu.batchedGemmTflops * endless,
          memoryGBps: gpu.memoryGBps * endless,
          kernelUs: gpu.kernelUs / endless,
        })),
        ...(machine.costs && {
          costs: {
            ...machine.costs,
            launchUs: machine.costs.launchUs / endless,
            coldLaunchUs: machine.costs.coldLaunchUs / endless,
            operatorLaunchUs: machine.costs.operatorLaunchUs / endless,
          },
        }),
      };
    case 'gpu memory':
      return { ...machine, gpus: machine.gpus.map((gpu) => ({ ...gpu, memoryBytes: gpu.memoryBytes * endless })) };
    case 'links':
      return {
        ...machine,
        gpus: machine.gpus.map((gpu) => ({ ...gpu, linkGBps: gpu.linkGBps * endless, copySetupUs: 0 })),
        switches: machine.switches.map(({ uplinkGBps }) => ({ uplinkGBps: uplinkGBps * endless })),
        ...(machine.hostMemory && {
          hostMemory: { ...machine.hostMemory, bandwidthGBps: machine.hostMemory.bandwidthGBps * endless },
        }),
        ...(machine.costs && { costs: { ...machine.costs, issueUs: machine.costs.issueUs / endless } }),
      };
    case 'host memory':
      return {
        ...machine,
        memoryBytes: machine.memoryBytes * endless,
        ...(machine.hostMemory && {
          hostMemory: { ...machine.hostMemory, pinnedBytes: machine.hostMemory.pinnedBytes * endless },
        }),
      };
    case 'cores':
      return withCores(machine, 1e6);
    case 'separate hosts':
      // The router 'one' is what has none.
      return machine;
  }
}
