import { freemem, totalmem } from 'node:os';
import { controlGroupFolders, readInteger, readText } from './files.ts';

/** The main memory of a machine, and how much of it this process may use. */
export type Memory = ReturnType<typeof readMemory>;

/** Reads the memory of the machine whose /proc and /sys are below `root`. */
export function readMemory(root = '/') {
  const meminfo = readText(root, 'proc/meminfo') ?? '';
  const bytesOf = (field: string): number | undefined => {
    const kibibytes = new RegExp(`^${field}:\\s*(\\d+) kB`, 'm').exec(meminfo)?.[1];
    return kibibytes === undefined ? undefined : Number(kibibytes) * 1024;
  };
  const totalBytes = bytesOf('MemTotal') ?? totalmem();
  const availableBytes = bytesOf('MemAvailable') ?? freemem();
  const limit = readLimit(root, totalBytes);
  return {
    totalBytes,
    /** Bytes that could be allocated now without swapping. */
    availableBytes,
    /** Limit of the control group; undefined: no limit. */
    limitBytes: limit?.limitBytes,
    /** Bytes in use by the control group, if it has a limit. */
    limitUsedBytes: limit?.usedBytes,
    /** Bytes that this process and its children can still allocate: the smaller of machine and control group. */
    usableBytes: Math.min(
      availableBytes,
      limit === undefined ? Infinity : Math.max(0, limit.limitBytes - limit.usedBytes),
    ),
  };
}

/** Share of the usable memory that functions get by default; the host, files and GPUs have the rest. */
const functionsShare = 0.4;

/** Default memory limit for functions on CPU cores. */
export function defaultFunctionsBytes({ limitBytes, totalBytes }: Memory = readMemory()): number {
  return Math.floor((limitBytes ?? totalBytes) * functionsShare);
}

function readLimit(root: string, totalBytes: number): { limitBytes: number; usedBytes: number } | undefined {
  const limits: { limitBytes: number; usedBytes: number }[] = [];
  const forms = [
    { controller: undefined, limit: 'memory.max', used: 'memory.current' },
    { controller: 'memory', limit: 'memory.limit_in_bytes', used: 'memory.usage_in_bytes' },
  ];
  for (const { controller, limit, used } of forms) {
    for (const folder of controlGroupFolders(root, controller)) {
      const limitBytes = readInteger(root, `${folder}/${limit}`);
      // Version 1 writes "no limit" as a number near 2^63.
      if (limitBytes === undefined || limitBytes >= totalBytes) continue;
      limits.push({ limitBytes, usedBytes: readInteger(root, `${folder}/${used}`) ?? 0 });
    }
  }
  return limits.sort((a, b) => a.limitBytes - b.limitBytes)[0];
}
