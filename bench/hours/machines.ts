/** The machines of the worst hours: presets, and one made of many copies of a preset's GPU. */
import { loadMachine, type Machine } from '../../src/hardware/index.ts';

export const p3 = loadMachine('p3.8xlarge');
export const h100x8 = loadMachine('h100x8');

/** `count` GPUs like those of h100x8, two on a switch, each with NVLink to the other GPU of its switch. */
export function manyGpus(count: number): Machine {
  const [gpu] = h100x8.gpus;
  const [pcieSwitch] = h100x8.switches;
  const [nvlink] = h100x8.nvlinks;
  const { hostMemory } = h100x8;
  if (gpu === undefined || pcieSwitch === undefined || nvlink === undefined || !hostMemory)
    throw new Error('h100x8 has no GPUs');
  const pairs = Math.floor(count / 2);
  return {
    ...h100x8,
    name: `${count} GPUs of h100x8`,
    memoryBytes: (h100x8.memoryBytes / h100x8.gpus.length) * count,
    hostMemory: {
      pinnedBytes: (hostMemory.pinnedBytes / h100x8.gpus.length) * count,
      bandwidthGBps: (hostMemory.bandwidthGBps / h100x8.gpus.length) * count,
    },
    gpus: Array.from({ length: count }, (_, index) => ({ ...gpu, switch: Math.floor(index / 2) })),
    switches: Array.from({ length: Math.ceil(count / 2) }, () => pcieSwitch),
    nvlinks: Array.from({ length: pairs }, (_, pair) => ({ ...nvlink, gpus: [2 * pair, 2 * pair + 1] as const })),
  };
}
