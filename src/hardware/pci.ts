/** A GPU's place on the PCIe bus, from /sys. */
import { realpathSync } from 'node:fs';
import { join } from 'node:path';
import { readInteger, readText } from '../tools/index.ts';

/** @param root of the file system, for tests */
export function readPciPlace(pciBusId: string, root = '/') {
  // The driver writes the domain with 8 or 4 digits; /sys has 4, in lower case.
  const id = pciBusId.toLowerCase().replace(/^0{4}(?=[0-9a-f]{4}:)/, '');
  /** Below `root`. */
  const folder = `sys/bus/pci/devices/${id}`;
  let upstream = id;
  try {
    // .../pci0000:00/0000:00:03.0/0000:01:00.0/0000:02:08.0/0000:03:00.0: root port, switch, its port, the GPU.
    const chain = realpathSync(join(root, folder))
      .split('/')
      .filter((part) => /^[0-9a-f]{4}:[0-9a-f]{2}:/.test(part));
    upstream = chain.length >= 3 ? chain.slice(0, -2).join('/') : (chain[0] ?? id);
  } catch {
    // Virtual machines may hide the device.
  }
  const node = readInteger(root, `${folder}/numa_node`) ?? -1;
  // "16.0 GT/s PCIe"
  const speed = /^([\d.]+) GT\/s/.exec(readText(root, `${folder}/max_link_speed`) ?? '')?.[1];
  const width = readInteger(root, `${folder}/max_link_width`);
  return {
    folder,
    /**
     * The port above the GPU's own, which is the same for GPUs that share a switch; the GPU's bus address if it is
     * unknown.
     */
    upstream,
    numaNode: node >= 0 ? node : null,
    /** The fastest that the GPU's link can be: 10^9 transfers per second on each lane, as /sys writes it. */
    link: speed === undefined || width === undefined ? null : { gigatransfers: speed, lanes: width },
  };
}
