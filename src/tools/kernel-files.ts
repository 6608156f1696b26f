/** Reads /proc and /sys below a given root, so that tests can imitate another machine. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The trimmed text of a file; undefined if it cannot be read. */
export function readText(root: string, path: string): string | undefined {
  try {
    return readFileSync(join(root, path), 'utf8').trim();
  } catch {
    return undefined;
  }
}

/** The whole number in a file; undefined if it cannot be read or holds something else ("max"). */
export function readInteger(root: string, path: string): number | undefined {
  const text = readText(root, path);
  return text !== undefined && /^-?\d+$/.test(text) ? Number(text) : undefined;
}

/** A size of a process, by its name in /proc/PID/status; undefined if it is gone, or the system does not tell. */
export function statusBytes(name: `Vm${string}` | `Rss${string}`, pid: number | 'self' = 'self'): number | undefined {
  const kibibytes = new RegExp(`^${name}:\\s*(\\d+) kB$`, 'm').exec(readText('/', `proc/${pid}/status`) ?? '')?.[1];
  return kibibytes === undefined ? undefined : Number(kibibytes) * 1024;
}

/** The names in a folder, sorted; none if it cannot be read. */
export function listFolder(root: string, path: string): string[] {
  try {
    return readdirSync(join(root, path)).sort();
  } catch {
    return [];
  }
}

/** The numbers of a kernel list such as "0-3,8,10-11". */
export function parseKernelList(text: string): number[] {
  const numbers: number[] = [];
  for (const part of text.split(',')) {
    const [first, last = first] = part.trim().split('-');
    if (first === undefined || first === '') continue;
    for (let number = Number(first); number <= Number(last); number++) numbers.push(number);
  }
  return numbers;
}

/**
 * The folders of this process's control group under `mount`, innermost first, up to the mount itself: a limit on any of
 * them applies. In a container the innermost folder often does not exist under that name; the mount then takes its
 * place.
 */
export function controlGroupFolders(root: string, controller: string | undefined): string[] {
  const lines = readText(root, 'proc/self/cgroup')?.split('\n') ?? [];
  const line = lines.find((candidate) => {
    const [, controllers = ''] = candidate.split(':');
    return controller === undefined ? controllers === '' : controllers.split(',').includes(controller);
  });
  // Controllers that share a hierarchy are mounted as "cpu,cpuacct"; "cpu" is a link beside it, where there is one.
  const names = controller === undefined ? [] : [controller, line?.split(':')[1] ?? controller];
  const mounts = names.length === 0 ? ['sys/fs/cgroup'] : [...new Set(names)].map((name) => `sys/fs/cgroup/${name}`);
  const segments = (line?.split(':').slice(2).join(':') ?? '/').split('/').filter(
    // A group outside of this process's namespace is named with "..", and cannot be seen.
    (segment) => segment !== '' && segment !== '..',
  );
  const folders: string[] = [];
  for (let depth = segments.length; depth >= 0; depth--) {
    for (const mount of mounts) folders.push([mount, ...segments.slice(0, depth)].join('/'));
  }
  return folders;
}
