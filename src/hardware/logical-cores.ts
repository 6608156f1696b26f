import { availableParallelism } from 'node:os';
import { parseKernelList, readInteger, readText } from '../tools/index.ts';

/** A hardware thread, to which a thread can be pinned. */
export interface LogicalCore {
  /** The operating system's number. */
  readonly id: number;
  readonly socket: number;
  /** The core of this hardware thread, unique within its socket; hardware threads of one core share its units. */
  readonly core: number;
}

/**
 * The hardware threads that are online and allowed by the affinity of this process, by number, from the /proc and /sys
 * below `root`. If the system does not say, each counts as a core of one socket.
 */
export function readLogicalCores(root = '/'): LogicalCore[] {
  const online = parseKernelList(readText(root, 'sys/devices/system/cpu/online') ?? '');
  const allowed = parseKernelList(
    /^Cpus_allowed_list:\s*(\S+)/m.exec(readText(root, 'proc/self/status') ?? '')?.[1] ?? '',
  );
  const ids = online.length === 0 ? Array.from({ length: availableParallelism() }, (_, id) => id) : online;
  return ids
    .filter((id) => allowed.length === 0 || allowed.includes(id))
    .map((id) => {
      const topology = `sys/devices/system/cpu/cpu${id}/topology`;
      return {
        id,
        socket: readInteger(root, `${topology}/physical_package_id`) ?? 0,
        core: readInteger(root, `${topology}/core_id`) ?? id,
      };
    });
}
