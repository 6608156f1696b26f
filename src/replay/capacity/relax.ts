/**
 * Finds the scarce resource by trying: the same load on a machine where one resource is unlimited, and all others are
 * as before.
 */
import type { Machine } from '../../hardware/index.ts';
import { withCores } from '../../hardware/index.ts';
import { capacityResources, type CapacityResource } from '../../report/index.ts';

/** As good as unlimited, and small enough for the formulas. */
const endless = 1e4;

/** The resources that could run out on a machine. */
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
      case 'disk':
        return machine.gpus.length > 0 && machine.disk !== undefined && exceedsHostMemory;
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
    case 'disk':
      return {
        ...machine,
        ...(machine.disk && { disk: { ...machine.disk, readGBps: machine.disk.readGBps * endless } }),
      };
    case 'cores':
      return withCores(machine, 1e6);
    case 'separate hosts':
      // The router 'one' has no network between hosts.
      return machine;
  }
}
