/** The machines of the worst hours: presets, and one made of many copies of a preset's GPU. */
import { loadMachine, type Machine } from '../../src/hardware/index.ts';

export const p3 = loadMachine('p3.8xlarge');
export const h100x8 = loadMachine('h100x8');

/** `count` GPUs like those of another machine, two on a switch, each with NVLink to the other GPU of its switch. */
export function manyGpus(count: number, like: Machine = h100x8): Machine {
  const [gpu] = like.gpus;
  const [pcieSwitch] = like.switches;
  const [nvlink] = like.nvlinks;
  const { hostMemory } = like;
  if (gpu === undefined || pcieSwitch === undefined || nvlink === undefined || !hostMemory)
    throw new Error(`${like.name} has no GPUs`);
  const pairs = Math.floor(count / 2);
  return {
    ...like,
    name: `${count} GPUs of ${like.name}`,
    memoryBytes: (like.memoryBytes / like.gpus.length) * count,
    hostMemory: {
      pinnedBytes: (hostMemory.pinnedBytes / like.gpus.length) * count,
      bandwidthGBps: (hostMemory.bandwidthGBps / like.gpus.length) * count,
    },
    gpus: Array.from({ length: count }, (_, index) => ({ ...gpu, switch: Math.floor(index / 2) })),
    switches: Array.from({ length: Math.ceil(count / 2) }, () => pcieSwitch),
    nvlinks: Array.from({ length: pairs }, (_, pair) => ({ ...nvlink, gpus: [2 * pair, 2 * pair + 1] as const })),
  };
}
