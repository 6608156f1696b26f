/** A GPU's place on the PCIe bus, from /sys. */
import { readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return null;
  }
}

/** @param root of the file system, for tests */
export function readPciPlace(pciBusId: string, root = '/') {
  // The driver writes the domain with 8 or 4 digits; /sys has 4, in lower case.
  const id = pciBusId.toLowerCase().replace(/^0{4}(?=[0-9a-f]{4}:)/, '');
  const folder = join(root, 'sys/bus/pci/devices', id);
  let upstream = id;
  try {
    // .../pci0000:00/0000:00:03.0/0000:01:00.0/0000:02:08.0/0000:03:00.0: root port, switch, its port, the GPU.
    const chain = realpathSync(folder)
      .split('/')
      .filter((part) => /^[0-9a-f]{4}:[0-9a-f]{2}:/.test(part));
    if (chain.length >= 3) upstream = chain.slice(0, -2).join('/');
    else if (chain[0] !== undefined) [upstream] = chain;
  } catch {
    // Virtual machines may hide the device.
  }
  const node = Number(readText(join(folder, 'numa_node')) ?? -1);
  const speed = readText(join(folder, 'max_link_speed'));
  const width = readText(join(folder, 'max_link_width'));
  return {
    /**
     * The port above the GPU's own, which is the same for GPUs that share a switch; the GPU's bus address if it is
     * unknown.
     */
    upstream,
    numaNode: Number.isInteger(node) && node >= 0 ? node : null,
    link: speed === null || width === null || !/GT\/s/.test(speed) ? null : `${speed.replace(/ PCIe$/, '')} x${width}`,
  };
}
