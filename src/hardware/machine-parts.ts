/** Derived machines: with fewer GPUs or cores, or with several times as many in one box. */
import { loadMachine, MachineError, machinePresets } from './machine-file.ts';
import type { Machine } from './machine.ts';

/** The machine with only its first GPUs; cores and memory stay. */
export function withFirstGpus(machine: Machine, count: number): Machine {
  return {
    ...machine,
    gpus: machine.gpus.slice(0, count),
    nvlinks: machine.nvlinks.filter(({ gpus }) => gpus.every((gpu) => gpu < count)),
  };
}

/** The machine with so many cores, on one socket. */
export function withCores(machine: Machine, cores: number): Machine {
  return { ...machine, sockets: [{ cores }] };
}

export const coresOf = ({ sockets }: Machine): number => sockets.reduce((sum, { cores }) => sum + cores, 0);

/**
 * A preset or file, or 'h200x8': eight GPUs of preset h200 in one machine, each behind a switch of its own, with eight
 * times its cores and memory.
 * @throws MachineError
 */
export function loadMachineOf(name: string): Machine {
  const [, base = '', count = ''] = /^([^/\\]+)x(\d+)$/.exec(name) ?? [];
  if (machinePresets().includes(name) || !machinePresets().includes(base)) return loadMachine(name);
  return withGpus(loadMachine(base), Number(count), name);
}

function withGpus(machine: Machine, count: number, name: string): Machine {
  const own = machine.gpus.length;
  if (own === 0 || count === 0) {
    throw new MachineError(`'${name}' is ${count} GPUs of a machine that has ${own}; both must be at least 1`);
  }
  const times = Math.ceil(count / own);
  const { hostMemory, switches } = machine;
  const gpus = Array.from({ length: count }, (_, index) => {
    const gpu = machine.gpus[index % own]!;
    return { ...gpu, switch: Math.floor(index / own) * switches.length + gpu.switch };
  });
  return {
    ...machine,
    name,
    description: `${count} GPUs as those of ${machine.name}`,
    sockets: Array.from({ length: times }, () => machine.sockets).flat(),
    memoryBytes: machine.memoryBytes * times,
    ...(hostMemory && {
      hostMemory: { pinnedBytes: hostMemory.pinnedBytes * times, bandwidthGBps: hostMemory.bandwidthGBps * times },
    }),
    gpus,
    switches: Array.from({ length: times }, () => switches).flat(),
    nvlinks: Array.from({ length: times }, (_, box) =>
      machine.nvlinks.map((link) => ({
        ...link,
        gpus: [link.gpus[0] + box * own, link.gpus[1] + box * own] as const,
      })),
    )
      .flat()
      .filter((link) => link.gpus.every((gpu) => gpu < count)),
  };
}
