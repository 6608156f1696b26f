import { controlGroupFolders, readText } from './files.ts';

/**
 * How many processes the kernel has ended for lack of memory: of this process's control group, or of the machine where
 * the group does not say. Undefined where neither does.
 */
export function readOomKills(root = '/'): number | undefined {
  const files = [
    ...controlGroupFolders(root, 'memory').map((folder) => `${folder}/memory.oom_control`),
    ...controlGroupFolders(root, undefined).map((folder) => `${folder}/memory.events`),
    'proc/vmstat',
  ];
  for (const file of files) {
    const count = /^oom_kill (\d+)$/m.exec(readText(root, file) ?? '')?.[1];
    if (count !== undefined) return Number(count);
  }
  return undefined;
}
