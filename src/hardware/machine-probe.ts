import { readCores } from './cores.ts';
import { readText } from '../tools/index.ts';
import { readGpuDriver } from './gpu-driver.ts';
import { loadMachine } from './machine-file.ts';
import type { Machine, MachineGpu } from './machine.ts';
import { readMemory } from './memory.ts';
import { readPciPlace } from './pci.ts';

/**
 * This machine in the planners' form. Cores, memory, GPU models, their PCIe links and shared switches are read from
 * /proc and /sys. How fast the GPUs compute comes from the preset of the same model, or else of the most similar one;
 * `source` says which. NVLink cannot be read without the driver, so none is listed.
 */
export function probeMachine(root = '/'): Machine {
  const cores = readCores(root);
  const perSocket = Math.max(1, Math.floor(cores.physical / cores.sockets));
  const base = {
    name: 'here',
    description: cores.model ?? 'the machine at hand',
    sockets: Array.from({ length: cores.sockets }, () => ({ cores: perSocket })),
    memoryBytes: readMemory(root).totalBytes,
    nvlinks: [],
  };
  const found = readGpuDriver({ root }).gpus;
  if (found.length === 0) {
    return { ...base, source: 'Read from /proc and /sys.', gpus: [], switches: [] };
  }
  const reference = likeliestPreset(found[0]!.model);
  const like = reference.gpus[0]!;
  const switches: string[] = [];
  const gpus = found.map(({ model, busId }): MachineGpu => {
    const { upstream, linkGBps, memoryBytes } = readDevice(root, busId);
    if (!switches.includes(upstream)) switches.push(upstream);
    return Object.assign({}, like, {
      model,
      switch: switches.indexOf(upstream),
      linkGBps: linkGBps ?? like.linkGBps,
      memoryBytes: memoryBytes ?? like.memoryBytes,
    });
  });
  return {
    ...base,
    source:
      'Cores, memory and PCIe links read from /proc and /sys; rates of the GPUs estimated as those of ' +
      `preset ${reference.name}.`,
    gpus,
    switches: switches.map((_, index) => ({
      uplinkGBps: Math.max(...gpus.filter((gpu) => gpu.switch === index).map((gpu) => gpu.linkGBps)),
    })),
    ...(reference.costs === undefined ? {} : { costs: reference.costs }),
  };
}

const words = (text: string): string[] => text.toLowerCase().split(/[^a-z0-9]+/);

/** The preset whose GPU name shares the most words with the model; among equals the one with the newest GPU. */
function likeliestPreset(model: string): Machine {
  const wanted = new Set(words(model).filter((word) => word !== 'nvidia'));
  const alike = (machine: Machine): number =>
    words(machine.gpus[0]?.model ?? '').filter((word) => wanted.has(word)).length;
  const presets = ['h200', 'a5000x2', 'p3.8xlarge'].map(loadMachine);
  return presets.reduce((best, machine) => (alike(machine) > alike(best) ? machine : best));
}

/** Share of a PCIe link's speed that large copies reach. */
const payloadShare = 0.82;

function readDevice(root: string, busId: string) {
  const { folder, upstream, link } = readPciPlace(busId, root);
  const [gigatransfers, lanes] = [Number(link?.gigatransfers ?? 0), link?.lanes ?? 0];
  // From the third generation on 128 of 130 bits are data.
  const coding = gigatransfers >= 8 ? 128 / 130 : 0.8;
  return {
    upstream,
    linkGBps: gigatransfers > 0 && lanes > 0 ? ((gigatransfers * lanes * coding) / 8) * payloadShare : undefined,
    memoryBytes: largestBarBytes(readText(root, `${folder}/resource`)),
  };
}

/** The GPU's memory, if all of it is mapped ("resizable BAR", as on servers); undefined for a window of 256 MB. */
function largestBarBytes(resource: string | undefined): number | undefined {
  const sizes = (resource ?? '').split('\n').map((line) => {
    const [start, end] = line.split(' ').map(Number);
    return start !== undefined && end !== undefined && end > start ? end - start + 1 : 0;
  });
  const largest = Math.max(0, ...sizes);
  return largest > 2 ** 30 ? largest : undefined;
}
