import { cpus } from 'node:os';
import { parseKernelList, readInteger, readText } from '../tools/index.ts';

/** A hardware thread, to which a thread can be pinned. */
export interface LogicalCore {
  /** The operating system's number. */
  readonly id: number;
  readonly socket: number;
  /** The core of this hardware thread, unique within its socket; hardware threads of one core share its units. */
  readonly core: number;
}

/** The hardware threads that are online, by number. If the system does not say, each counts as a core of one socket. */
export function readOnlineCores(root: string): LogicalCore[] {
  const online = parseKernelList(readText(root, 'sys/devices/system/cpu/online') ?? '');
  const ids = online.length > 0 ? online : [...cpus().keys()];
  return ids.map((id) => {
    const topology = `sys/devices/system/cpu/cpu${id}/topology`;
    return {
      id,
      socket: readInteger(root, `${topology}/physical_package_id`) ?? 0,
      core: readInteger(root, `${topology}/core_id`) ?? id,
    };
  });
}

/**
 * Of the hardware threads that are online, those that the affinity of this process allows, from the /proc and /sys below
 * `root`. Affinity masks name cores that a machine could have, too.
 */
export function readLogicalCores(root = '/'): LogicalCore[] {
  const status = readText(root, 'proc/self/status') ?? '';
  const allowed = parseKernelList(/^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1] ?? '');
  return readOnlineCores(root).filter(({ id }) => allowed.length === 0 || allowed.includes(id));
}
