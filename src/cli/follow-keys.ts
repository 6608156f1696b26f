/** Keeps the API keys of a running host as the configuration file has them. */
import { watchFile } from 'node:fs';
import type { RunningHost } from '../host/index.ts';

/** Polled: the file may be behind links that are swapped, as Kubernetes does, and on any file system. */
const everyMs = 5000;

/**
 * @param file undefined: no file was read
 * @param read the API keys of the configuration as it is now
 * @returns reloads them at once
 */
export function followKeys(
  host: Pick<RunningHost, 'reloadKeys'>,
  file: string | undefined,
  read: () => readonly string[],
): () => void {
  const reload = (): void => host.reloadKeys(read);
  if (file !== undefined) watchFile(file, { interval: everyMs, persistent: false }, reload);
  return reload;
}
