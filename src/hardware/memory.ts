/** The main memory of a machine, and how much of it this process may use. */
import { freemem, totalmem } from 'node:os';
import { controlGroupFolders, readInteger, readText } from '../tools/index.ts';

export type Memory = ReturnType<typeof readMemory>;

/** Reads the memory of the machine whose /proc and /sys are below `root`. */
export function readMemory(root = '/') {
  const meminfo = fieldsOf(readText(root, 'proc/meminfo'), /^(\w+):\s*(\d+) kB$/gm, 1024);
  const totalBytes = meminfo.get('MemTotal') ?? totalmem();
  const availableBytes = meminfo.get('MemAvailable') ?? freemem();
  const limits = readLimits(root, totalBytes);
  const tightest = limits.toSorted((a, b) => a.limitBytes - b.limitBytes)[0];
  return {
    totalBytes,
    /** Bytes that could be allocated now without swapping. */
    availableBytes,
    /** The tightest limit of the control groups around this process; undefined: no limit. */
    limitBytes: tightest?.limitBytes,
    /** Bytes that the group with that limit holds and the kernel cannot take back. */
    limitUsedBytes: tightest?.usedBytes,
    /** What may be divided: the limit, or all memory of the machine. */
    ownBytes: tightest?.limitBytes ?? totalBytes,
    /** Bytes that this process and its children can still allocate: the least of machine and control groups. */
    usableBytes: Math.min(
      availableBytes,
      ...limits.map(({ limitBytes, usedBytes }) => Math.max(0, limitBytes - usedBytes)),
    ),
  };
}

/** The numbers of a file with a name and a number on each line. */
function fieldsOf(text: string | undefined, line: RegExp, unit = 1): ReadonlyMap<string, number> {
  return new Map(Array.from((text ?? '').matchAll(line), ([, name = '', number]) => [name, Number(number) * unit]));
}

interface GroupLimit {
  readonly limitBytes: number;
  readonly usedBytes: number;
}

/** The limits of all control groups around this process. */
function readLimits(root: string, totalBytes: number): GroupLimit[] {
  const forms = [
    { controller: undefined, limits: ['memory.max', 'memory.high'], usage: 'memory.current', held: heldInVersion2 },
    { controller: 'memory', limits: ['memory.limit_in_bytes'], usage: 'memory.usage_in_bytes', held: heldInVersion1 },
  ];
  const found: GroupLimit[] = [];
  for (const { controller, limits, usage, held } of forms) {
    for (const folder of controlGroupFolders(root, controller)) {
      const statistics = fieldsOf(readText(root, `${folder}/memory.stat`), /^(\w+) (\d+)$/gm);
      const usageBytes = readInteger(root, `${folder}/${usage}`);
      // A container sees only its own group; version 1 tells there of tighter ones above it.
      const given = [
        ...limits.map((name) => readInteger(root, `${folder}/${name}`)),
        statistics.get('hierarchical_memory_limit'),
      ];
      // Version 1 writes "no limit" as a number near 2^63.
      const limitBytes = Math.min(...given.map((bytes) => bytes ?? Infinity));
      if (limitBytes >= totalBytes) continue;
      const heldBytes = statistics.size === 0 ? undefined : held(statistics, root, folder);
      // Without any figure nothing is known to be in use.
      const usedBytes = Math.min(heldBytes ?? usageBytes ?? 0, usageBytes ?? heldBytes ?? 0, limitBytes);
      found.push({ limitBytes, usedBytes });
    }
  }
  return found;
}

const sumOf = (statistics: ReadonlyMap<string, number>, names: readonly string[]): number =>
  names.reduce((sum, name) => sum + (statistics.get(name) ?? 0), 0);

// Files that no process maps are only cached: the kernel drops them before it ends a process.

function heldInVersion2(statistics: ReadonlyMap<string, number>): number {
  // Kernels before 5.18 do not say `kernel`.
  const parts = ['kernel_stack', 'pagetables', 'sec_pagetables', 'percpu', 'sock', 'slab_unreclaimable'];
  const kernel = statistics.get('kernel');
  const unreclaimable =
    kernel === undefined
      ? sumOf(statistics, parts)
      : Math.max(0, kernel - (statistics.get('slab_reclaimable') ?? 0)) + (statistics.get('sock') ?? 0);
  return sumOf(statistics, ['anon', 'shmem', 'file_mapped']) + unreclaimable;
}

function heldInVersion1(statistics: ReadonlyMap<string, number>, root: string, folder: string): number {
  // The fields with `total_` include the groups below.
  const isWhole = statistics.has('total_rss');
  const names = ['rss', 'mapped_file', 'shmem'].map((name) => (isWhole ? `total_${name}` : name));
  return sumOf(statistics, names) + (readInteger(root, `${folder}/memory.kmem.usage_in_bytes`) ?? 0);
}
