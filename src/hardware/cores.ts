import { cpus, type CpuInfo } from 'node:os';
import { controlGroupFolders, listFolder, readInteger, readText } from '../tools/index.ts';
import { readLogicalCores, readOnlineCores } from './logical-cores.ts';

/** The processor cores of a machine, and how many of them this process may use. */
export type Cores = ReturnType<typeof readCores>;

/** Reads the cores of the machine whose /proc and /sys are below `root`. */
export function readCores(root = '/') {
  const online = readOnlineCores(root);
  const allowed = readLogicalCores(root).length;
  const quota = readQuota(root);
  return {
    /** Marketing name of the processor; undefined if the system does not say. */
    model: /^model name\s*:\s*(.+)$/m.exec(readText(root, 'proc/cpuinfo') ?? '')?.[1]?.trim() ?? cpus()[0]?.model,
    /** Hardware threads that are online. */
    logical: online.length,
    /** Cores behind them: smaller than `logical` with simultaneous multithreading. */
    physical: new Set(online.map(({ socket, core }) => `${socket}:${core}`)).size,
    sockets: new Set(online.map(({ socket }) => socket)).size,
    numaNodes: Math.max(1, listFolder(root, 'sys/devices/system/node').filter((name) => /^node\d+$/.test(name)).length),
    /** Hardware threads that the CPU affinity of this process allows. */
    allowed: Math.max(1, allowed),
    /** Cores' worth of time that the control group grants, 1.5 for example; undefined: no limit. */
    quota,
    // Rounded down: with two busy threads on 1.5 cores the kernel stops both in every period, which adds latency.
    /** Cores to plan with: the whole cores that affinity and quota leave, at least 1. */
    usable: Math.max(1, Math.floor(Math.min(allowed, quota ?? Infinity))),
  };
}

/** The tightest CPU quota of the control groups around this process: version 2 (`cpu.max`) or 1 (`cpu.cfs_*`). */
function readQuota(root: string): number | undefined {
  const quotas: number[] = [];
  for (const folder of controlGroupFolders(root, undefined)) {
    const [quota, period] = readText(root, `${folder}/cpu.max`)?.split(/\s+/).map(Number) ?? [];
    if (quota !== undefined && period !== undefined && quota > 0 && period > 0) quotas.push(quota / period);
  }
  for (const folder of controlGroupFolders(root, 'cpu')) {
    const quota = readInteger(root, `${folder}/cpu.cfs_quota_us`);
    const period = readInteger(root, `${folder}/cpu.cfs_period_us`);
    if (quota !== undefined && period !== undefined && quota > 0 && period > 0) quotas.push(quota / period);
  }
  return quotas.length > 0 ? Math.min(...quotas) : undefined;
}

/** Periods of the control groups' quotas so far, and those of them in which a group had used it up and was stopped. */
export interface QuotaPeriods {
  readonly all: number;
  readonly stopped: number;
}

/** Periods of the group around this process that was stopped most often; undefined: no group has a quota. */
export function readQuotaPeriods(root = '/'): QuotaPeriods | undefined {
  const folders = [undefined, 'cpu'].flatMap((controller) => controlGroupFolders(root, controller));
  const found = folders.flatMap((folder): QuotaPeriods[] => {
    const text = readText(root, `${folder}/cpu.stat`) ?? '';
    const [all = 0, stopped = 0] = ['nr_periods', 'nr_throttled'].map((name) =>
      Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0),
    );
    return all > 0 ? [{ all, stopped }] : [];
  });
  return found.toSorted((one, other) => other.stopped - one.stopped)[0];
}

let identity: string | undefined;

/** What measurements and layouts that hold for one kind of processor are named by: its model and instruction sets. */
export function processorIdentity(): string {
  const text = readText('/', 'proc/cpuinfo') ?? '';
  return (identity ??= [
    process.platform,
    process.arch,
    cpus()[0]?.model ?? '',
    /^(?:flags|Features)\s*:\s*(.*)$/m.exec(text)?.[1] ?? '',
  ].join('\n'));
}

/** How long each hardware thread of the machine has worked, and been idle. */
export const readCoreTimes = (): readonly CpuInfo[] => cpus();
